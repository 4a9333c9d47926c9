"""Workers in this process or in one for each core."""

import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from repshare.errors import ConfigError, RepshareError, WorkerFailed
from repshare.measures import Score, View
from repshare.space.frozen import keep_freed_memory
from repshare_lab.simulation.checkpoint import SavedState
from repshare_lab.simulation.plan import Plan, map_plan, write_plan
from repshare_lab.simulation.workers import RESIDENT, Bodies, RoundResult, Worker
from repshare_lab.threads import one_thread

NOT_WORKING = (1, 2)  # exit codes of a process that ended before it waited for a question: in the script that it ran


class Workers(ABC):
    """Some workers, each with some of a run's clients. The bits of a run do not depend on where or how many they are.

    Use it in a `with` statement.
    """

    count: int

    def __enter__(self) -> Self:
        # Its name shows whose it was, if we are killed. Windows keeps files that are still mapped.
        self._scratch = tempfile.TemporaryDirectory(prefix="repshare-", ignore_cleanup_errors=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._scratch.cleanup()

    def begin(self, plan: Plan, folder: Path | None, versions: Mapping[int, SavedState]) -> None:
        """Make room for this plan's clients, in place of any before; some continue from states in the folder."""
        self._plan = plan
        before = [*Path(self._scratch.name).iterdir()]
        room = Path(tempfile.mkdtemp(dir=self._scratch.name))
        self._hand_over(plan, room, folder or room / "states", self._deal(versions))
        for old in before:
            shutil.rmtree(old, ignore_errors=True)  # where a mapped file cannot be removed, it goes with the scratch

    def round(self, number: int, teachers: Bodies) -> RoundResult:
        """Carry out this round of these clients with what each downloads."""
        reports = self._ask("round", [(number, share) for share in self._deal(teachers)])
        records = {i: record for report in reports for i, record in report.records.items()}
        releases = {i: body for report in reports for i, body in report.releases.items()}
        sums = [part for report in reports for part in report.sums]
        return RoundResult({i: records[i] for i in teachers}, {i: releases[i] for i in teachers if i in releases}, sums)

    def evaluate(self, bodies: Bodies) -> dict[int, Score]:
        """Test each of these clients, after it has absorbed what it downloads, if anything."""
        answers = self._ask("evaluate", [(share,) for share in self._deal(bodies)])
        together = {index: score for part in answers for index, score in part.items()}
        return {index: together[index] for index in bodies}

    def models(self, bodies: Bodies) -> dict[int, dict[str, bytes]]:
        """Return the models of these clients as files, each with what it downloads, if anything."""
        answers = self._ask("models", [(share,) for share in self._deal(bodies)])
        together = {index: files for part in answers for index, files in part.items()}
        return {index: together[index] for index in bodies}

    def look(self) -> dict[int, View]:
        """Return every client's view of the test samples."""
        shares = [(range(place, self._plan.clients, self.count),) for place in range(self.count)]
        together = {index: view for part in self._ask("look", shares) for index, view in part.items()}
        return dict(sorted(together.items()))

    def save(self) -> dict[int, SavedState]:
        """Write the state of every client that has changed since the last time."""
        answers = self._ask("save", [()] * self.count)
        return {index: version for part in answers for index, version in part.items()}

    def _deal(self, of_clients: Mapping[int, Any]) -> list[dict[int, Any]]:
        """Return each worker's share of what there is of clients, who are dealt out in turn."""
        return [{i: own for i, own in of_clients.items() if i % self.count == place} for place in range(self.count)]

    @abstractmethod
    def _hand_over(self, plan: Plan, room: Path, states: Path, shares: list[dict[int, SavedState]]) -> None:
        """Give every worker the plan, and its share of the states. `room` is a new folder for this run."""

    @abstractmethod
    def _ask(self, verb: str, questions: list[tuple[Any, ...]]) -> list[Any]:
        """Ask every worker at once, and wait for all answers."""


class Inline(Workers):
    """All clients in this process, one after the other: the simplest to debug."""

    count = 1

    def __init__(self, resident: int = RESIDENT) -> None:
        """Prepare the worker. Use it in a `with` statement.

        Args:
            resident: Number of clients kept in memory. The rest is kept on disk.
        """
        self.resident = resident

    def __enter__(self) -> Self:
        self._alone = one_thread()
        self._alone.__enter__()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        self._alone.__exit__(None, None, None)
        super().__exit__()

    def _hand_over(self, plan: Plan, room: Path, states: Path, shares: list[dict[int, SavedState]]) -> None:
        self._worker = Worker(plan, states, shares[0], self.resident)

    def _ask(self, verb: str, questions: list[tuple[Any, ...]]) -> list[Any]:
        return [getattr(self._worker, verb)(*question) for question in questions]


def choose_workers(wanted: int | None, clients: int, resident: int = RESIDENT) -> Workers:
    """Return workers in this number of processes; 0: in this one. Default: one for each core, at most one a client."""
    if (wanted or 0) > clients:
        raise ConfigError(f"{wanted} workers are too many for {clients} clients: at most one for each")
    return Inline(resident) if wanted == 0 else Processes(wanted or min(clients, os.cpu_count() or 1), resident)


class Processes(Workers):
    """A process for each core."""

    def __init__(self, count: int | None = None, resident: int = RESIDENT) -> None:
        """Prepare the pool. Use it in a `with` statement: its processes start there.

        Args:
            count: Number of processes. Default: one for each core.
            resident: Number of clients that each process keeps in memory. The rest is kept on disk.
        """
        self.count, self.resident = count or os.cpu_count() or 1, resident

    def __enter__(self) -> Self:
        context: Any = multiprocessing.get_context("spawn")
        if sys.platform == "linux":  # copies of one process that has imported PyTorch, instead of an import each
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload([__name__])
        self._lines, self._processes, self._waiting = list[Any](), list[Any](), False
        super().__enter__()
        for _ in range(self.count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, self.resident), daemon=True)
            process.start()
            theirs.close()
            self._lines.append(ours)
            self._processes.append(process)
        return self

    def __exit__(self, kind: object = None, *_: object) -> None:
        for line, process in zip(self._lines, self._processes, strict=True):
            if kind is not None:
                process.terminate()
            line.close()  # a worker that reads the end of its line ends
        for process in self._processes:
            process.join()
        super().__exit__()

    def _hand_over(self, plan: Plan, room: Path, states: Path, shares: list[dict[int, SavedState]]) -> None:
        write_plan(plan, room)
        self._ask("begin", [(plan.run, plan.classes, room, states, share) for share in shares])

    def _ask(self, verb: str, questions: list[tuple[Any, ...]]) -> list[Any]:
        if self._waiting:  # the next answer is to something else
            raise WorkerFailed("the workers were interrupted before they had answered: start others")
        self._waiting = True
        replies = []
        for place, question in enumerate(questions):
            with self._noticing_death(place):
                self._lines[place].send((verb, question))
        for place in range(len(questions)):
            with self._noticing_death(place):
                replies.append(self._lines[place].recv())
        self._waiting = False
        for place, (_, error) in enumerate(replies):
            if isinstance(error, RepshareError):
                raise error
            if error is not None:
                raise WorkerFailed(f"worker {place + 1} of {self.count} failed:\n{error}")
        return [answer for answer, _ in replies]

    @contextmanager
    def _noticing_death(self, place: int) -> Iterator[None]:
        """Raise WorkerFailed if this worker's process turns out to have ended."""
        try:
            yield
        except (BrokenPipeError, EOFError, ConnectionResetError) as error:
            process = self._processes[place]
            process.join(timeout=5)
            if process.exitcode in NOT_WORKING:
                raise WorkerFailed(
                    'worker processes run your script again: put what it does under `if __name__ == "__main__":`, or '
                    "use no processes (workers=0, Inline())"
                ) from error
            names = [self._plan.name(i) for i in range(place, self._plan.clients, self.count)]
            held = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            raise WorkerFailed(
                f"worker {place + 1} of {self.count} died with exit code {process.exitcode}; it held {held}. "
                "Resume with --resume"
            ) from error


def _work(line: "Connection[Any, Any]", resident: int) -> None:
    """Run a worker process: answer questions until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides about Ctrl-C
    keep_freed_memory()
    worker: Worker | None = None
    while True:
        try:
            verb, arguments = line.recv()
        except EOFError:
            return
        answer: Any = None
        error: RepshareError | str | None = None
        try:
            if verb == "begin":
                run, classes, plan_folder, states, versions = arguments
                worker = Worker(map_plan(run, classes, plan_folder), states, versions, resident)
            else:
                answer = getattr(worker, verb)(*arguments)
        except RepshareError as raised:
            error = raised
        except Exception:  # any error: the parent must hear of it
            error = traceback.format_exc()
        try:
            line.send((answer, error))
        except BrokenPipeError:
            return  # the parent is gone
