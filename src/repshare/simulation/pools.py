"""Workers in this process or in one for each core."""

import ctypes
import multiprocessing
import os
import platform
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import torch

from repshare.errors import RepshareError, WorkerFailed
from repshare.learning.measures import Score, View
from repshare.simulation.checkpoint import SavedState
from repshare.simulation.plan import Plan, map_plan, write_plan
from repshare.simulation.workers import RESIDENT, Bodies, RoundResult, Worker

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as malloc.h numbers them
KEPT_BYTES = 1 << 30


def open_scratch() -> tempfile.TemporaryDirectory[str]:
    """Return a folder for what runs need on disk. If its owner is killed, its name says whose it was."""
    return tempfile.TemporaryDirectory(prefix="repshare-")


@contextmanager
def make_room(scratch: tempfile.TemporaryDirectory[str]) -> Iterator[Path]:
    """Yield a folder in there for the run that begins in this block. The previous one is removed after that."""
    before = [*Path(scratch.name).iterdir()]
    yield Path(tempfile.mkdtemp(dir=scratch.name))
    for folder in before:
        shutil.rmtree(folder, ignore_errors=True)  # where a mapped file cannot be removed, it goes with the scratch


class Inline:
    """All clients in this process, one after the other: the simplest to debug."""

    def __init__(self, resident: int = RESIDENT) -> None:
        """Prepare the pool. Use it in a `with` statement.

        Args:
            resident: Number of clients kept in memory. The rest is kept on disk.
        """
        self.resident = resident

    def __enter__(self) -> Self:
        self._threads, self._scratch = torch.get_num_threads(), open_scratch()
        return self

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self._threads)
        self._scratch.cleanup()

    def begin(self, plan: Plan, folder: Path | None, versions: Mapping[int, SavedState]) -> None:
        """Make room for this plan's clients."""
        with make_room(self._scratch) as room:
            self._worker = Worker(plan, folder or room, versions, self.resident)

    def round(self, number: int, teachers: Bodies, apart: Collection[int]) -> RoundResult:
        """Carry out this round of these clients."""
        return self._worker.round(number, teachers, apart)

    def evaluate(self, bodies: Bodies) -> dict[int, Score]:
        """Test accuracy of each of these clients."""
        return self._worker.evaluate(bodies)

    def look(self) -> dict[int, View]:
        """Return every client's view of the test samples."""
        return self._worker.look(range(self._worker.plan.clients))

    def save(self) -> dict[int, SavedState]:
        """Write the state of every client that has changed since the last time."""
        return self._worker.save()


class WorkerPool(ABC):
    """Clients dealt out in turn over several workers, wherever these are; `_ask` puts one question to each."""

    count: int

    def begin(self, plan: Plan, folder: Path | None, versions: Mapping[int, SavedState]) -> None:
        """Make room for this plan's clients, each in its worker."""
        self._plan = plan
        shares = [{i: v for i, v in versions.items() if i % self.count == place} for place in range(self.count)]
        self._hand_over(plan, folder, shares)

    def round(self, number: int, teachers: Bodies, apart: Collection[int]) -> RoundResult:
        """Carry out this round of these clients, in parallel."""
        reports = self._ask("round", [(number, share, apart) for share in self._shares(teachers)])
        records = {i: record for report in reports for i, record in report.records.items()}
        releases = {i: body for report in reports for i, body in report.releases.items()}
        sums = [part for report in reports for part in report.sums]
        return RoundResult({i: records[i] for i in teachers}, {i: releases[i] for i in teachers if i in releases}, sums)

    def evaluate(self, bodies: Bodies) -> dict[int, Score]:
        """Test accuracy of each of these clients, in parallel."""
        answers = self._ask("evaluate", [(share,) for share in self._shares(bodies)])
        together = {index: accuracy for part in answers for index, accuracy in part.items()}
        return {index: together[index] for index in bodies}

    def look(self) -> dict[int, View]:
        """Return every client's view of the test samples, computed in parallel."""
        shares = [(range(place, self._plan.clients, self.count),) for place in range(self.count)]
        together = {index: view for part in self._ask("look", shares) for index, view in part.items()}
        return dict(sorted(together.items()))

    def save(self) -> dict[int, SavedState]:
        """Write the state of every client that has changed since the last time, in parallel."""
        answers = self._ask("save", [()] * self.count)
        return {index: version for part in answers for index, version in part.items()}

    def _shares(self, bodies: Bodies) -> list[dict[int, bytes | None]]:
        shares: list[dict[int, bytes | None]] = [{} for _ in range(self.count)]
        for index, body in bodies.items():
            shares[index % self.count][index] = body
        return shares

    @abstractmethod
    def _hand_over(self, plan: Plan, folder: Path | None, shares: list[dict[int, SavedState]]) -> None:
        """Give every worker the plan, and its share of the states."""

    @abstractmethod
    def _ask(self, verb: str, questions: list[tuple[Any, ...]]) -> list[Any]:
        """Ask every worker at once, and wait for all answers."""


class Processes(WorkerPool):
    """A process for each core."""

    def __init__(self, count: int | None = None, resident: int = RESIDENT) -> None:
        """Prepare the pool. Use it in a `with` statement: its processes start there.

        Args:
            count: Number of processes. Default: one for each core.
            resident: Number of clients that each process keeps in memory. The rest is kept on disk.
        """
        self.count, self.resident = count or os.cpu_count() or 1, resident

    def __enter__(self) -> Self:
        context = _choose_start()
        self._lines, self._processes, self._scratch = [], [], open_scratch()
        self._waiting = False
        with _no_interrupt():
            for _ in range(self.count):
                ours, theirs = context.Pipe()
                process = context.Process(target=_work, args=(theirs, self.resident), daemon=True)
                process.start()
                theirs.close()
                self._lines.append(ours)
                self._processes.append(process)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line, process in zip(self._lines, self._processes, strict=True):
            if kind is not None:
                process.terminate()
            line.close()  # a worker that reads the end of its line goes home
        for process in self._processes:
            process.join()
        self._scratch.cleanup()

    def _hand_over(self, plan: Plan, folder: Path | None, shares: list[dict[int, SavedState]]) -> None:
        with make_room(self._scratch) as room:
            write_plan(plan, room)
            folder = folder or room / "states"
            self._ask("begin", [(plan.run, plan.classes, room, folder, share) for share in shares])

    def _ask(self, verb: str, questions: list[tuple[Any, ...]]) -> list[Any]:
        if self._waiting:  # what comes next is an answer to something else
            raise WorkerFailed("the workers were interrupted before they had answered: start others")
        self._waiting = True
        for place, question in enumerate(questions):
            try:
                self._lines[place].send((verb, question))
            except BrokenPipeError as error:
                raise self._died(place) from error
        replies = [self._receive(place) for place in range(len(questions))]
        self._waiting = False
        return [self._answer(place, *reply) for place, reply in enumerate(replies)]

    def _receive(self, place: int) -> Any:
        try:
            return self._lines[place].recv()
        except (EOFError, ConnectionResetError) as gone:
            raise self._died(place) from gone

    def _answer(self, place: int, answer: Any, error: RepshareError | str | None, trace: str) -> Any:
        if isinstance(error, RepshareError):
            raise error
        if error is not None:
            raise WorkerFailed(f"worker {place + 1} of {self.count} failed:\n{trace}")
        return answer

    def _died(self, place: int) -> WorkerFailed:
        process = self._processes[place]
        process.join(timeout=5)
        return WorkerFailed(
            f"worker {place + 1} of {self.count} died with exit code {process.exitcode}; "
            f"it held {self._held(place)}. Go on from the last checkpoint with --resume"
        )

    def _held(self, place: int) -> str:
        names = [self._plan.name(i) for i in range(place, self._plan.clients, self.count)]
        return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _choose_start() -> "SpawnContext | ForkServerContext":
    """Return how workers start: on Linux as copies of a process that has imported what they need (seconds), once.

    Elsewhere what is imported may not survive being copied, and each worker starts from nothing.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "torch._dynamo"])  # an optimizer's first step imports the latter
    return context


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Keep Ctrl-C from processes started in here, from their first moment: the parent decides what it means."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _keep_freed_memory() -> None:
    """Let glibc give freed memory to the next step rather than to the system and back: up to 16 % of a step."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        libc.mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)


def _work(line: "Connection[Any, Any]", resident: int) -> None:
    """Run a worker process: answer questions until the connection is closed."""
    _keep_freed_memory()
    worker: Worker | None = None
    while True:
        try:
            verb, arguments = line.recv()
        except EOFError:
            return
        answer: Any = None
        error: RepshareError | str | None = None
        trace = ""
        try:
            if verb == "begin":
                run, classes, plan_folder, folder, versions = arguments
                worker = Worker(map_plan(run, classes, plan_folder), folder, versions, resident)
            else:
                answer = getattr(worker, verb)(*arguments)
        except Exception as raised:  # whatever it is, the parent must hear of it
            error = raised if isinstance(raised, RepshareError) else repr(raised)
            trace = traceback.format_exc()
        try:
            line.send((answer, error, trace))
        except BrokenPipeError:
            return  # the parent is gone
