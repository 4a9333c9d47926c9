"""Processes that end with the process that started them, however that ends, and with all they left in a folder."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from repshare.errors import WorkerFailed

STOP_SECONDS = 10.0  # for a process to end when asked to

# Two shells that wait for the end of their input: it comes when the demo ends in whatever way. The first leads the
# group of all processes, and kills it; the second waits until they are gone, and removes the folder, if it has one.
LEADER = "read end; kill -s KILL 0"
REMOVER = 'read end; sleep 1; rm -rf -- "$@"'


class DemoProcesses:
    """Several processes, for the length of a block; the output of each is in a file."""

    def __init__(self, folder: Path, *, remove: bool) -> None:
        """`remove` the folder, too, if this process is killed."""
        self.folder, self._running = folder, dict[str, subprocess.Popen[bytes]]()
        read, self._pipe = os.pipe()
        folders = [str(folder)] if remove else []
        self._leader, self._remover = (
            subprocess.Popen(["sh", "-c", *command], stdin=read, stderr=subprocess.DEVNULL, process_group=0)
            for command in ([LEADER], [REMOVER, "remover", *folders])
        )
        os.close(read)

    def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start Python with these arguments. Its own temporary files are in the folder, too: PyTorch leaves some."""
        temporary = self.folder / "temporary"
        temporary.mkdir(exist_ok=True)
        with self.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "TMPDIR": str(temporary), **(environment or {})},
                process_group=self._leader.pid,  # not ours: Ctrl-C is for us alone
            )

    @property
    def names(self) -> list[str]:
        """The processes that were started."""
        return list(self._running)

    def running(self, name: str) -> bool:
        """Return whether it is still running. Raises WorkerFailed, with its last line, if it did not end well."""
        code = self._running[name].poll()
        if code:
            *_, last = ["no output", *self.log(name).read_text(errors="replace").strip().splitlines()]
            raise WorkerFailed(f"{name} ended with exit code {code}: {last.removeprefix('repshare: ')}")
        return code is None

    def log(self, name: str) -> Path:
        """Return the file with its output."""
        return self.folder / f"{name}.log"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._remover.kill()  # last: if anything above is cut short, they take over
        os.killpg(self._leader.pid, signal.SIGKILL)  # with a process whose start Ctrl-C cut short: it is in no list
        with suppress(ChildProcessError):  # none is left
            while True:
                os.waitpid(-self._leader.pid, 0)
        for shell in (self._remover, self._leader):
            shell.wait()
        os.close(self._pipe)
