"""Processes that end with the process that started them, however that ends, and with all they left in a folder."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from repshare.cli.demo import keeper
from repshare.errors import WorkerFailed

STOP_SECONDS = 10.0  # for a process to end when asked to


class DemoProcesses:
    """Several processes, for the length of a block; what each says is in a file."""

    def __init__(self, folder: Path, *, remove: bool) -> None:
        """`remove` the folder, too, if this process is killed."""
        self.folder, self._running = folder, dict[str, subprocess.Popen[bytes]]()
        command = [sys.executable, "-I", keeper.__file__, *([str(folder)] if remove else [])]
        self._keeper = subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0)

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
                process_group=self._keeper.pid,  # not ours: Ctrl-C is for us alone, and the keeper kills all at once
            )

    def running(self, name: str) -> bool:
        """Return whether it is still running. Raises WorkerFailed, with its last lines, if it did not end well."""
        code = self._running[name].poll()
        if code:
            raise WorkerFailed(f"{name} ended with exit code {code}: {self._last_words(name)}")
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
        self._keeper.kill()  # last: if anything above is cut short, it takes over
        self._keeper.wait()
        if self._keeper.stdin:
            self._keeper.stdin.close()

    def _last_words(self, name: str) -> str:
        lines = self.log(name).read_text(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("repshare: ") if lines else "it said nothing"
