"""The server's half of Algorithm 1: accept releases, keep totals and class buffers, hand out teachers.

A board never trains and never waits. Accepting a release or making a teacher costs the same with 10 clients as with
100,000: totals are updated by what changed, and observations are drawn from a buffer for each class. A robust
aggregate is made from at most SAMPLED clients' means of a class.
"""

import random
import time
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from repshare import buffers, wire
from repshare.aggregation import aggregate, strangeness
from repshare.books import SLACK, Books, Member, forget, keys_of, read_head, read_members, read_releases, read_rows
from repshare.errors import Outdated, Refused, RepshareError
from repshare.representations import Release, Representations, Teacher, stack
from repshare.stores import MemoryStore, Store, Transaction
from repshare.task import MOST_OBSERVATIONS, Task
from repshare.totals import read_totals

SAMPLED = 64
EXPIRED_AT_ONCE = 10  # releases, in one transaction: others come in between
STRANGE = 4.0  # times the usual distance from the others: an outlier
FEWEST = 4  # clients below which nobody is called an outlier


class Wants(NamedTuple):
    """What a client asks of a board. The seed makes the draw repeatable, wherever the board is."""

    observations: int  # M↓, a class
    seed: int
    peers: tuple[str, ...] | None = None  # None: everyone
    classes: tuple[int, ...] | None = None  # None: all
    precision: str = "fp32"  # of the answer's numbers


class Status(NamedTuple):
    """How a board stands."""

    version: int
    clients: int
    shown: list[Member]
    strangeness: list[float | None]
    """For each of those shown, how many times farther its means are from the others' than is usual."""

    def outliers(self) -> list[str]:
        """Those shown whose releases are unlike the others'."""
        pairs = zip(self.shown, self.strangeness, strict=True)
        return [member.name for member, score in pairs if score is not None and score > STRANGE]


class _Draw(NamedTuple):
    """Which observations a client will see."""

    books: Books
    slots: list[tuple[int, int]]  # class, place in its buffer


class Board:
    """One task's state over a store; without one, in memory."""

    def __init__(self, task: Task, store: Store | None = None, clock: Callable[[], float] = time.time) -> None:
        self.task, self.store, self.clock = task, store or MemoryStore(), clock

    def accept(self, client: str, body: bytes) -> int:
        """Make this release the client's current one, and say the board's version.

        Repeating it changes nothing; a refused one neither.
        """
        (outcome,) = self.accept_all([(client, body)])
        if isinstance(outcome, RepshareError):
            raise outcome
        return outcome

    def accept_all(self, bodies: Sequence[tuple[str, bytes]]) -> list[int | RepshareError]:
        """Accept each client's release, all in one transaction: the version after it, or why it was not accepted."""
        outcomes: list[int | RepshareError] = [0] * len(bodies)
        good: dict[int, Release] = {}
        for number, (client, body) in enumerate(bodies):
            try:
                good[number] = self._checked(client, body)
            except RepshareError as error:
                outcomes[number] = error

        def work(state: Transaction) -> None:
            if len(good) > 1:  # at once what each will need
                state.get([key for number in good for key in keys_of(bodies[number][0])])
            for number, release in good.items():
                try:
                    outcomes[number] = self._enter(state, *bodies[number], release)
                except Refused as error:  # before it has changed anything
                    outcomes[number] = error

        if good:
            self.store.transact(work)
        return outcomes

    def _checked(self, client: str, body: bytes) -> Release:
        if not isinstance(client, str) or not client or "\n" in client:
            raise Refused(f"{client!r} is not a client's name: it must be one line and not empty")
        release = wire.decode_release(body)
        self.task.check(release)
        return release

    def _enter(self, state: Transaction, client: str, body: bytes, release: Release) -> int:
        books = Books(self.task, state, client)
        if books.body == body:
            return books.version
        if books.release and books.release.round > release.round:
            raise Outdated(f"{client} published round {books.release.round} already: {release.round} is older")
        return books.enter(release, body, self.clock())

    def withdraw(self, client: str) -> int:
        """Forget the client's release, and say the board's version."""
        return self.store.transact(lambda state: Books(self.task, state, client).leave())

    def teach(self, client: str, wants: Wants) -> bytes:
        """A teacher for this client, as bytes: what the others shared, and nothing where only itself did."""
        ((_, body),) = self.teach_all([(client, wants)])
        return body

    def teach_all(self, questions: Sequence[tuple[str, Wants]]) -> list[tuple[int, bytes]]:
        """Each client's teacher, all of one state of the board, whose version is said with them."""

        def work(state: Transaction) -> tuple[int, list[Teacher]]:
            if len(questions) > 1:  # at once what each will need
                state.get([key for client, _ in questions for key in keys_of(client)[:3]])
            drawn = [self._draw(Books(self.task, state, client, reading=True), wants) for client, wants in questions]
            if len(questions) > 1:
                state.get(buffers.keys_of([slot for draw in drawn for slot in draw.slots]))
            teachers = [
                self._from_everyone(state, draw, wants)
                if wants.peers is None
                else self._from_peers(state, client, wants)
                for draw, (client, wants) in zip(drawn, questions, strict=True)
            ]
            return drawn[0].books.version, teachers

        version, teachers = self.store.read(work)
        return [
            (version, wire.encode_teacher(teacher._replace(space=self.task.space), wants.precision))
            for teacher, (_, wants) in zip(teachers, questions, strict=True)
        ]

    def version(self) -> int:
        """A number that grows with every change."""
        return self.store.read(lambda state: read_head(self.task, state).version)

    def expire(self, limit: int = EXPIRED_AT_ONCE) -> list[str]:
        """Forget releases older than the task's max_age, at most so many, and say whose: nobody's, if none is left."""
        if self.task.max_age is None:
            return []
        latest = self.clock() - self.task.max_age * (1 + SLACK)
        gone, more = list[str](), True

        def work(state: Transaction) -> tuple[list[str], bool]:
            nonlocal limit
            wanted, limit = limit, max(1, limit // 2)  # fewer if it begins again, since another came in between
            return forget(self.task, state, latest, wanted)

        while more and not gone:
            gone, more = self.store.transact(work)
        return gone

    def status(self, limit: int = 100) -> Status:
        """How the board stands, with up to `limit` of its clients."""

        def work(state: Transaction) -> Status:
            head, members = read_head(self.task, state), read_members(self.task, state, limit)
            releases = read_releases(state, [member.name for member in members])
            return Status(head.version, head.members, members, _strangeness([release.means for release in releases]))

        return self.store.read(work)

    def save(self) -> bytes:
        """All that is kept, as bytes."""
        return wire.encode_items(self.store.items())

    def load(self, saved: bytes) -> None:
        """Put back what `save` gave."""
        items = wire.decode_items(saved)
        self.store.transact(lambda state: state.set(items))

    def _draw(self, books: Books, wants: Wants) -> "_Draw":
        rng, sizes = random.Random(wants.seed), books.sizes.tolist()
        labels = _chosen(range(self.task.classes), wants) if wants.peers is None else []
        slots = [
            (label, slot)
            for label in labels
            for slot in buffers.draw(books.place, label, sizes[label], wants.observations, rng)
        ]
        return _Draw(books, slots)

    def _from_everyone(self, state: Transaction, draw: "_Draw", wants: Wants) -> Teacher:
        books, slots = draw
        others = books.totals.clients.tolist()
        for label in books.place.classes:
            others[label] -= 1
        taught = _chosen((label for label, clients in enumerate(others) if clients), wants)
        drawn = [row for _, row in buffers.read(state, slots)]
        means = books.totals.means(taught) if self.task.aggregation == "mean" else self._robust(books, state, taught)
        return Teacher(means, read_rows(drawn, [label for label, _ in slots], self.task.dimension))

    def _robust(self, books: Books, state: Transaction, classes: list[int]) -> Representations:
        rng, rows, drawn = random.Random(books.version), [], dict[int, list[tuple[int, int]]]()
        for label in classes:
            buffer = books.means_of(label)
            among = range(int(books.sizes[buffer]))
            slots = rng.sample(among, SAMPLED) if len(among) > SAMPLED else among
            drawn[label] = [(buffer, slot) for slot in slots]
        state.get(buffers.keys_of([slot for each in drawn.values() for slot in each]))  # at once what each class needs
        for label, each in drawn.items():
            among_rows = [row for _, row in buffers.read(state, each)]
            vectors = read_rows(among_rows, [label] * len(among_rows), self.task.dimension).vectors
            rows.append((aggregate(vectors, self.task.aggregation), label, int(books.totals.samples[label])))
        return stack(rows, self.task.dimension)

    def _from_peers(self, state: Transaction, client: str, wants: Wants) -> Teacher:
        rng, releases = random.Random(wants.seed), read_releases(state, sorted(set(wants.peers or ()) - {client}))
        totals = read_totals(None, self.task)
        for release in releases:
            totals.add(release.means, +1, weighted=self.task.counts_samples)
        taught, drawn = _chosen(np.flatnonzero(totals.clients).tolist(), wants), []
        for label in _chosen(range(self.task.classes), wants):
            rows = [row for r in releases for row in zip(*r.observations.of(label), strict=True)]
            drawn += rng.sample(rows, min(wants.observations, len(rows)))
        means = totals.means(taught)
        if self.task.aggregation != "mean":
            each = [np.concatenate([r.means.of(label).vectors for r in releases]) for label in taught]
            centres = [aggregate(vectors, self.task.aggregation) for vectors in each]
            means = stack(list(zip(centres, taught, means.counts.tolist(), strict=True)), self.task.dimension)
        return Teacher(means, stack(drawn, self.task.dimension))


def longest_release(task: Task) -> int:
    """Bytes that a release of this task can have."""
    return wire.LONGEST_HEADER_BYTES + task.classes * (1 + MOST_OBSERVATIONS) * (4 * task.dimension + 12)


def _chosen(classes: Iterable[int], wants: Wants) -> list[int]:
    if wants.classes is None:
        return list(classes)
    wanted = set(wants.classes)
    return [label for label in classes if label in wanted]


def _strangeness(means: list[Representations]) -> list[float | None]:
    """For each client the median over its classes, where enough clients share one."""
    scores: list[list[float]] = [[] for _ in means]
    if not means:
        return []
    labels, vectors = (np.concatenate(rows) for rows in zip(*((m.labels, m.vectors) for m in means), strict=True))
    owners = np.repeat(np.arange(len(means)), [len(rows.labels) for rows in means])
    order = np.argsort(labels, kind="stable")  # class by class
    for rows in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        if len(rows) >= FEWEST:
            for owner, score in zip(owners[rows].tolist(), strangeness(vectors[rows]).tolist(), strict=True):
                scores[owner].append(score)
    return [median(of_one) if of_one else None for of_one in scores]
