"""Clients live in workers and stay there; only releases, teachers and records travel.

`Inline` keeps them in this process, `Processes` in one process for each core. A worker computes with one thread, so
that sums inside a convolution are formed in the same order everywhere: the bits do not depend on how many there are.
"""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import torch

from repshare.board import Wants
from repshare.client import Client, Record
from repshare.errors import RepshareError, WorkerFailed
from repshare.methods import find_method
from repshare.randomness import derive
from repshare.samples import Samples
from repshare.simulation.plan import Plan, build_model

Bodies = Mapping[int, bytes | None]


class Outcome(NamedTuple):
    """What a client's round comes to."""

    record: Record
    release: bytes | None


class Workers(Protocol):
    """Somewhere for clients to live."""

    def begin(self, plan: Plan) -> None:
        """Build this plan's clients, in place of any before."""

    def round(self, teachers: Bodies) -> dict[int, Outcome]:
        """One round of each of these clients, with what each of them downloads."""

    def evaluate(self, bodies: Bodies) -> dict[int, float]:
        """Test accuracy of each of these clients, after it has taken in what it downloads, if anything."""


class Mailbox:
    """An exchange whose other end is a simulator: what to collect is put in, what was published is taken out."""

    def __init__(self) -> None:
        self.inbox: bytes | None = None
        self.outbox: bytes | None = None

    def collect(self, wants: Wants) -> bytes:
        """What the simulator asked for in this client's place."""
        if self.inbox is None:
            raise ValueError("nothing was put in")
        return self.inbox

    def publish(self, body: bytes) -> None:
        """Leave it for the simulator."""
        self.outbox = body


class Worker:
    """Some of a plan's clients."""

    def __init__(self, plan: Plan, indices: list[int]) -> None:
        self.plan, self.mailboxes = plan, {index: Mailbox() for index in indices}
        self.test = Samples(plan.test, device=plan.run.setting.device)
        self.clients = {index: self._client(index) for index in indices}

    def round(self, teachers: Bodies) -> dict[int, Outcome]:
        """One round of each of these clients."""
        return {index: self._one_round(index, body) for index, body in teachers.items()}

    def evaluate(self, bodies: Bodies) -> dict[int, float]:
        """Test accuracy of each of these clients."""
        return {index: self._test(index, body) for index, body in bodies.items()}

    def _client(self, index: int) -> Client:
        run, name = self.plan.run, self.plan.name(index)
        part = self.plan.parts[index]
        return Client(
            build_model(self.plan, self.plan.model(index), derive(run.seed, name, "model")),
            (self.plan.train[0][part], self.plan.train[1][part]),
            self.mailboxes[index],
            name=name,
            policy=run.setting.policy,
            method=find_method(run.method),
            test=self.test,
            seed=run.seed,
            device=run.setting.device,
        )

    def _one_round(self, index: int, teacher: bytes | None) -> Outcome:
        box = self.mailboxes[index]
        box.inbox, box.outbox = teacher, None
        return Outcome(self.clients[index].round(test=False), box.outbox)

    def _test(self, index: int, body: bytes | None) -> float:
        client = self.clients[index]
        if body is not None and client.method.absorb is not None:
            client.method.absorb(client.learner, body)
        return client.evaluate()


class Inline:
    """All clients in this process, one after the other: the simplest to debug."""

    def __enter__(self) -> Self:
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)
        return self

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self._threads)

    def begin(self, plan: Plan) -> None:
        """Build this plan's clients."""
        self._worker = Worker(plan, list(range(len(plan.parts))))

    def round(self, teachers: Bodies) -> dict[int, Outcome]:
        """One round of each of these clients."""
        return self._worker.round(teachers)

    def evaluate(self, bodies: Bodies) -> dict[int, float]:
        """Test accuracy of each of these clients."""
        return self._worker.evaluate(bodies)


class Processes:
    """Clients dealt out over processes in turn."""

    def __init__(self, count: int | None = None) -> None:
        self.count = count or os.cpu_count() or 1

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        self._lines, self._processes = [], []
        with _no_interrupt():
            for _ in range(self.count):
                ours, theirs = context.Pipe()
                process = context.Process(target=_work, args=(theirs,), daemon=True)
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

    def begin(self, plan: Plan) -> None:
        """Build this plan's clients, each in its process."""
        everyone = range(len(plan.parts))
        self._ask([("begin", (plan, list(everyone[place :: self.count]))) for place in range(self.count)])

    def round(self, teachers: Bodies) -> dict[int, Outcome]:
        """One round of each of these clients, in parallel."""
        return self._each("round", teachers)

    def evaluate(self, bodies: Bodies) -> dict[int, float]:
        """Test accuracy of each of these clients, in parallel."""
        return self._each("evaluate", bodies)

    def _each(self, verb: str, bodies: Bodies) -> dict[int, Any]:
        shares: list[dict[int, bytes | None]] = [{} for _ in range(self.count)]
        for index, body in bodies.items():
            shares[index % self.count][index] = body
        answers = self._ask([(verb, (share,)) for share in shares])
        together = {index: answer for part in answers for index, answer in part.items()}
        return {index: together[index] for index in bodies}

    def _ask(self, questions: list[tuple[str, tuple[Any, ...]]]) -> list[Any]:
        for place, question in enumerate(questions):
            try:
                self._lines[place].send(question)
            except BrokenPipeError as error:
                raise self._died(place) from error
        return [self._answer(place) for place in range(len(questions))]

    def _answer(self, place: int) -> Any:
        try:
            answer, error, trace = self._lines[place].recv()
        except (EOFError, ConnectionResetError) as gone:
            raise self._died(place) from gone
        if isinstance(error, RepshareError):
            raise error
        if error is not None:
            raise WorkerFailed(f"worker {place + 1} of {self.count} failed:\n{trace}")
        return answer

    def _died(self, place: int) -> WorkerFailed:
        process = self._processes[place]
        process.join(timeout=5)
        return WorkerFailed(f"worker {place + 1} of {self.count} died with exit code {process.exitcode}")


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Processes started in here do not hear Ctrl-C, from their first moment: the parent decides what it means."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _work(line: "Connection[Any, Any]") -> None:
    """A worker process's life: answer questions until the line is closed."""
    torch.set_num_threads(1)
    worker: Worker | None = None
    while True:
        try:
            verb, arguments = line.recv()
        except EOFError:
            return
        answer: Any = None
        try:
            if verb == "begin":
                worker = Worker(*arguments)
            else:
                answer = getattr(worker, verb)(*arguments)
        except Exception as error:  # whatever it is, the parent must hear of it
            line.send((None, error if isinstance(error, RepshareError) else repr(error), traceback.format_exc()))
        else:
            line.send((answer, None, ""))
