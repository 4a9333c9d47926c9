"""Real processes for tests: a relay that can be killed and started again, and clients that join it."""

import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from repshare.cli.main import main
from support.warm import start_warm

REPSHARE = [sys.executable, "-m", "repshare"]
PATIENCE_SECONDS = 120  # of a test on a busy machine


def eventually(condition, what, seconds=PATIENCE_SECONDS):
    """Wait until it is so, and give what it gave."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)
    return found


class Process:
    """A command under way; what it says goes to files."""

    def __init__(self, *arguments, cwd, name, prefix=(), popen=None, cold=False, thorough=False):
        """A copy of a warm process, unless it is to be `cold`: started from nothing, and with memory of its own.

        `popen` starts it in place of `subprocess.Popen`, cold.
        """
        self.out, self.err = (Path(cwd) / f"{name}.{kind}" for kind in ("out", "err"))
        with self.out.open("a") as out, self.err.open("a") as err:
            files = {"cwd": cwd, "stdout": out, "stderr": err}
            if prefix or cold or popen:
                self.process = (popen or subprocess.Popen)([*prefix, *REPSHARE, *map(str, arguments)], **files)
            else:
                self.process = start_warm(list(map(str, arguments)), **files, thorough=thorough)

    def stop(self, how=signal.SIGKILL):
        with suppress(ProcessLookupError):
            self.process.send_signal(how)
        return self.process.wait(PATIENCE_SECONDS)


class RelayProcess(Process):
    """`repshare relay serve` on a free port, or on the one it is told."""

    def __init__(self, folder, *options, port=0, **how):
        before = len(Path(folder, "relay.err").read_text()) if Path(folder, "relay.err").exists() else 0
        super().__init__("relay", "serve", "--port", port, *options, cwd=folder, name="relay", **how)
        self.url = eventually(lambda: self._listening(before), "the relay listens")

    @property
    def port(self):
        return int(self.url.rpartition(":")[2])

    def _listening(self, before):
        assert self.process.poll() is None, self.err.read_text()
        for line in self.err.read_text()[before:].splitlines():
            with suppress(ValueError, TypeError, KeyError):
                return json.loads(line)["url"]
        return None


def records(folder):
    """The rounds that a client has kept so far, without how long they took."""
    path = Path(folder, "records.jsonl")
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [{**json.loads(line), "seconds": None} for line in lines if line.endswith("\n")]


def run(capsys, *arguments, expect=0):
    """A command in this process: what it printed, on both ways."""
    if expect:
        with pytest.raises(SystemExit) as caught:
            main(list(map(str, arguments)))
        assert caught.value.code == expect
    else:
        main(list(map(str, arguments)))
    return capsys.readouterr()
