"""Run a contender in a process of its own: until it ends or its time is up, counting its tree's memory on request."""

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

LAST_LINES = 15
PERIOD_SECONDS = 0.2


class Failed(Exception):
    """A contender did not end well; the message has its last lines."""


class Sample(NamedTuple):
    """What the process tree held at a moment."""

    time: float  # monotonic, seconds
    memory: int  # bytes; a page shared by k processes counts 1/k in each


def run(
    command: Sequence[str], *, timeout: float, environment: Mapping[str, str], watched: bool = False
) -> tuple[float, list[Sample]]:
    """Carry the command out: when it began, and memory samples if `watched` (not while timing: they cost time)."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **environment}, start_new_session=True
        )
        try:
            with _sampling(process.pid) if watched else _nothing() as samples:
                code = process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"not done after {timeout:.0f} s:\n{_last_lines(log.fileno())}") from error
        finally:
            _end(process)
        if code != 0:
            raise Failed(f"exit code {code}:\n{_last_lines(log.fileno())}")
        return began, samples


def tree(root: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (parent := _parent(folder)) is not None:
            children.setdefault(parent, []).append(int(folder.name))
    found = [root]
    for pid in found:  # it grows while we go
        found.extend(children.get(pid, []))
    return found


def memory(pids: Sequence[int]) -> int:
    """Bytes that these processes hold together, shared pages counted once."""
    return sum(map(_proportional, pids))


@contextmanager
def _sampling(root: int) -> Iterator[list[Sample]]:
    samples: list[Sample] = []
    over = threading.Event()

    def sample() -> None:
        while not over.wait(PERIOD_SECONDS):
            samples.append(Sample(time.monotonic(), memory(tree(root))))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


@contextmanager
def _nothing() -> Iterator[list[Sample]]:
    yield []


def _parent(folder: Path) -> int | None:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None  # it has ended meanwhile


def _proportional(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Nothing that was started stays behind, whichever session it moved to."""
    if process.poll() is not None:
        return
    for pid in tree(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def _last_lines(log: int) -> str:
    os.lseek(log, 0, os.SEEK_SET)
    with open(log, errors="replace", closefd=False) as lines:
        return "\n".join(lines.read().strip().splitlines()[-LAST_LINES:])
