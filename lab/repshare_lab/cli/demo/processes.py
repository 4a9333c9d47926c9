"""Processes that end with the process that started them, however that ends, and with all they left in a folder."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from repshare.errors import WorkerFailed

# A shell that leads the group of all processes waits for the end of its input, which comes when this process is killed.
LEADER = "trap '' TERM; read end; kill -s TERM 0; sleep 1; rm -rf -- \"$@\"; kill -s KILL 0"


class DemoProcesses:
    """Several processes of repshare, until they are closed; the output of each is in the folder."""

    def __init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="repshare-demo-", ignore_cleanup_errors=True)
        self.folder, self._running = Path(self._temporary.name), dict[str, subprocess.Popen[bytes]]()
        read, self._pipe = os.pipe()
        command = ["sh", "-c", LEADER, "leader", str(self.folder)]
        self._leader = subprocess.Popen(command, stdin=read, stderr=subprocess.DEVNULL, process_group=0)
        os.close(read)

    def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start `repshare` with these arguments. Its temporary files are in the folder, too: PyTorch leaves some."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "repshare", *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "TMPDIR": str(self.folder), **(environment or {})},
                process_group=self._leader.pid,  # not ours: Ctrl-C is for us alone
            )  # fmt: skip

    def running(self, name: str) -> bool:
        """Whether it is still running. Raises WorkerFailed, with its last line, if one did not end well."""
        for each, process in self._running.items():
            if code := process.poll():
                *_, last = ["no output", *(self.folder / f"{each}.log").read_text(errors="replace").split("\n")[:-1]]
                raise WorkerFailed(f"{each} ended with exit code {code}: {last.removeprefix('repshare: ')}")
        return self._running[name].poll() is None

    def close(self) -> None:
        """Stop them all; what does not end when it is asked to is killed."""
        os.killpg(self._leader.pid, signal.SIGTERM)  # with a process whose start Ctrl-C cut short: it is in no list
        for process in self._running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
        os.killpg(self._leader.pid, signal.SIGKILL)
        for process in (*self._running.values(), self._leader):
            process.wait()
        os.close(self._pipe)
        self._temporary.cleanup()
