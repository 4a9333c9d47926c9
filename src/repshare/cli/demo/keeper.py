"""A process that outlives the demo by a moment, to end what the demo started if the demo itself was killed.

`python keeper.py [FOLDER]` leads the process group in which all the others are, and waits for the end of its standard
input, which comes when the demo ends in whatever way. Standard library only, and run as a file: it starts in no time.
"""

import os
import shutil
import signal
import sys
import time

SECONDS = 10.0  # for killed processes to be gone


def keep(folder: str | None) -> None:
    """Wait for the demo's end; then kill the group, and remove the folder."""
    sys.stdin.buffer.read()
    group = os.getpgrp()
    if os.fork():
        os._exit(0)
    os.setsid()  # out of the group, to survive it
    deadline = time.monotonic() + SECONDS
    while _kill(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _kill(group: int) -> bool:
    """Return whether anything was left to kill."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS says the latter of a group of zombies
        return False
    return True


if __name__ == "__main__":
    keep(sys.argv[1] if len(sys.argv) > 1 else None)
