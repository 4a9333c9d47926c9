"""A worker holds some of a run's clients: those that are active in memory, the others on disk."""

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from repshare.board import Wants
from repshare.client import Client, Record
from repshare.exchange import Exchange
from repshare.measures import Score, View
from repshare.randomness import derive
from repshare.samples import Samples
from repshare_lab.methods import find_method
from repshare_lab.simulation.checkpoint import SavedState, States
from repshare_lab.simulation.plan import Plan, agree, as_tensors, build_model
from repshare_lab.simulation.shared_space import SharedAgreement
from repshare_lab.threads import compute_with_one_thread

RESIDENT = 1000  # clients that a worker keeps in memory: about half a gigabyte of LeNet5s

Bodies = Mapping[int, bytes | None]


class RoundResult(NamedTuple):
    """The result of a round of some clients."""

    records: dict[int, Record]
    releases: dict[int, bytes]
    sums: list[Any]
    """Sums instead, where the method can add up: one a worker."""


@dataclass
class Mailbox(Exchange):
    """An exchange whose other end is a simulator: what to collect is put in, what was published is taken out."""

    inbox: bytes
    outbox: bytes | None = None

    def collect(self, wants: Wants) -> bytes:
        """The teacher that the simulator asked for in this client's place."""
        return self.inbox

    def publish(self, body: bytes) -> None:
        """Leave it for the simulator."""
        self.outbox = body

    def behind(self, own: int) -> float:
        """Return infinity: nobody but the simulator sees it."""
        return math.inf


class Worker:
    """Some of a plan's clients. It computes with one thread, so that sums inside a convolution have one order."""

    def __init__(self, plan: Plan, folder: Path, versions: Mapping[int, SavedState], resident: int = RESIDENT) -> None:
        compute_with_one_thread()
        self.plan, self.method, self.resident = plan, find_method(plan.run.method, plan.run.setting), resident
        self.train = (as_tensors(plan.train_inputs), torch.from_numpy(plan.train_labels))
        self.test = Samples((plan.test_inputs, plan.test_labels), device=plan.run.setting.device)
        self.policy = self.method.adapt(plan.run.setting.policy)
        self.space: SharedAgreement | None = None
        if self.method.in_space:
            self.space = SharedAgreement(*agree(plan))
            self.space.test, self.space.has_vectors = self.test, plan.space is not None
        self.states = States(folder)
        self._clients: OrderedDict[int, Client] = OrderedDict()  # in memory, least recently used first
        self._committed = dict(versions)  # listed in the last checkpoint: not to be removed
        self._versions = dict(versions)  # each client's newest state on disk
        self._changed: set[int] = set()  # in memory, and not on disk as they are

    def round(self, number: int, teachers: Bodies) -> RoundResult:
        """Carry out this round of these clients."""
        records, releases = dict[int, Record](), dict[int, bytes]()
        for index, teacher in teachers.items():
            client, box = self.client(index), Mailbox(teacher or b"")  # without a server, collects nothing
            client.exchange, client.round_number = box, number - 1  # the run's round, also for one who has missed some
            self._changed.add(index)
            records[index] = client.round(test=False)
            client.exchange = None
            if box.outbox is not None:
                releases[index] = box.outbox
        if self.method.add_up is None:
            return RoundResult(records, releases, [])
        together = {self.plan.name(i): body for i, body in releases.items()}
        return RoundResult(records, {}, [self.method.add_up(together)] if together else [])

    def evaluate(self, bodies: Bodies) -> dict[int, Score]:
        """Test each of these clients."""
        return {index: self._test(index, body) for index, body in bodies.items()}

    def models(self, bodies: Bodies) -> dict[int, dict[str, bytes]]:
        """Return the files of each of these clients' models, by how their names end."""
        return {index: encode_model(self._complete(index, body)) for index, body in bodies.items()}

    def look(self, indices: Iterable[int]) -> dict[int, View]:
        """Return each of these clients' view of the test samples."""
        return {index: self.client(index).learner.view(self.test) for index in indices}

    def client(self, index: int) -> Client:
        """Return the client, out of memory, or from its state on disk, or new."""
        if index not in self._clients:
            client = self._build(index)
            if index in self._versions:
                client.load(self.states.read(index, self._versions[index]))
            self._clients[index] = client
        self._clients.move_to_end(index)
        while len(self._clients) > self.resident:
            oldest, client = self._clients.popitem(last=False)
            if oldest in self._changed:
                self._write(oldest, client)
        return self._clients[index]

    def save(self) -> dict[int, SavedState]:
        """Write the state of every client that has changed since the last time."""
        for index in sorted(self._changed):
            self._write(index, self._clients[index])
        written = {i: version for i, version in self._versions.items() if self._committed.get(i) != version}
        self._committed = dict(self._versions)
        return written

    def _test(self, index: int, body: bytes | None) -> Score:
        return self._complete(index, body).learner.evaluate(self.test)

    def _complete(self, index: int, body: bytes | None) -> Client:
        """Return the client, after it has absorbed what it downloads, if anything."""
        client = self.client(index)
        if body is not None:
            client.learner.absorb(body)
            self._changed.add(index)
        return client

    def _write(self, index: int, client: Client) -> None:
        before = self._versions.get(index)
        self._versions[index] = self.states.write(index, client.round_number, client.save())
        self._changed.discard(index)
        if before is not None and before.round != client.round_number and before != self._committed.get(index):
            self.states.remove(index, before)

    def _build(self, index: int) -> Client:
        run, name, model = self.plan.run, self.plan.name(index), None
        if self.space is None:
            model = build_model(self.plan, self.plan.model(index), derive(run.seed, name, "model"))
        return Client(
            model,
            Samples(self.train, rows=torch.from_numpy(self.plan.part(index)), device=run.setting.device),
            name=name,
            policy=run.setting.policy,
            method=self.method,
            test=self.test,
            seed=run.seed,
            head=run.setting.head,
            space=self.space,
            classes=self.plan.classes,
        )


def encode_model(client: Client) -> dict[str, bytes]:
    """Return the files of what a client has learned, by how their names end."""
    files = client.learner.files(client.round_number)
    return {f".{name.removeprefix('model.')}": body for name, body in files.items()}
