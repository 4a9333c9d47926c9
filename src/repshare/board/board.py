"""The server's half of Algorithm 1: accept releases, keep totals and class buffers, hand out teachers.

A board never trains and never waits. Accepting a release or making a teacher costs the same with 10 clients as with
100,000: totals are updated by what changed, and observations are drawn from a buffer for each class. A robust
aggregate is made from all clients' means of a class, or of many drawn at random: see `robust`.
"""

import hashlib
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import NamedTuple, TypeVar

import numpy as np

from repshare.board import buffers, repairs
from repshare.board.aggregation import aggregate, strangeness
from repshare.board.clock import StoreClock
from repshare.board.noise import noisiness
from repshare.board.robust import RobustMeans, read_means
from repshare.board.state import (
    SLACK,
    BoardMember,
    BoardState,
    decode_rows,
    find_member,
    forget,
    keys_of,
    read_head,
    read_members,
    read_releases,
)
from repshare.board.totals import read_totals
from repshare.errors import Damaged, Outdated, Refused, RepshareError
from repshare.sharing import wire
from repshare.sharing.representations import Floats, Release, Representations, Teacher, stack
from repshare.sharing.task import MOST_OBSERVATIONS, Task
from repshare.stores import Healed, Healing, MemoryStore, Store, Transaction

EXPIRED_AT_ONCE = 10  # releases, in one transaction: others come in between
STRANGE = 4.0  # times the usual distance from the others: an outlier
FEWEST = 4  # clients below which no client is called an outlier
MOST_COMPARED = 2**22  # numbers that outliers are found by: where there are more, by the first classes and clients


class Wants(NamedTuple):
    """A client's request to a board. The seed makes the draw repeatable, wherever the board is."""

    observations: int
    """M↓: number of observations of each class."""
    seed: int
    """The seed of the draw."""
    peers: tuple[str, ...] | None = None
    """Names of the clients to learn from. Default: all."""
    classes: tuple[int, ...] | None = None
    """Classes to learn. Default: all."""
    precision: str = "fp32"
    """Number format of the answer."""


Made = TypeVar("Made")


class BoardStatus(NamedTuple):
    """The state of a board."""

    version: int
    clients: int
    shown: list[BoardMember]
    strangeness: list[float | None]
    """For each of those shown, how many times farther its means are from the others' than is usual; in a common space,
    how many times more often than usual it is wrong about samples of its own."""

    def outliers(self) -> list[str]:
        """Return the names of those shown whose releases are unlike the others'."""
        pairs = zip(self.shown, self.strangeness, strict=True)
        return [member.name for member, score in pairs if score is not None and score > STRANGE]


class Board:
    """The server's half of Algorithm 1 for one task: accepts releases, and hands out teachers. It never trains."""

    def __init__(
        self, task: Task, store: Store | None = None, clock: Callable[[], float] | None = None, *, key: bytes = b""
    ) -> None:
        """Create a board.

        Args:
            task: What the clients agree on.
            store: Where the state is kept. Default: in memory.
            clock: Gives both the age of releases and their dates, which otherwise come from different clocks.
            key: A secret of the board's keeper, so that clients cannot predict what is drawn. Without one, as in
                simulations, what is drawn follows from seeds and versions alone.
        """
        self.task, self.clock, self.date, self.key = task, StoreClock(clock or time.monotonic), clock or time.time, key
        self.store = Healing(store or MemoryStore(), self._heal)
        self._robust = RobustMeans(task, self.store, repeatable=not key)

    def accept(self, client: str, body: bytes) -> int:
        """Make this release the client's current one, and return the board's version.

        Repeating it changes nothing, nor does a refused one.
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
            if len(good) > 1:  # read at once what each will need
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
        there = BoardState(self.task, state, client)
        if there.body == body:
            return there.head.version
        if there.release and there.release.round > release.round:
            raise Outdated(f"{client} published round {there.release.round} already: {release.round} is older")
        return there.enter(release, body, self.clock.now(state) if self.task.max_age else 0.0, self.date())

    def withdraw(self, client: str) -> int:
        """Forget the client's release, and return the board's version."""
        return self.store.transact(lambda state: BoardState(self.task, state, client).leave())

    def teach(self, client: str, wants: Wants) -> bytes:
        """Return a teacher for this client, as bytes: what the others shared, and nothing where only itself did."""
        ((_, body),) = self.teach_all([(client, wants)])
        return body

    def teach_all(self, questions: Sequence[tuple[str, Wants]]) -> list[tuple[int, bytes]]:
        """Return each client's teacher, all from one state of the board, with that state's version."""
        for client, wants in questions:
            self.task.check_peers(client, wants.peers or ())

        def encode(teachers: Iterable[Teacher]) -> list[bytes]:
            pairs = zip(teachers, questions, strict=True)
            return [
                wire.encode_teacher(each._replace(space=self.task.space), wants.precision) for each, (_, wants) in pairs
            ]

        if self.task.aggregation == "mean":  # encoded one by one: only one teacher at a time besides the bytes
            version, bodies = self.store.read(lambda state: self._make(state, questions, encode))
        else:
            version, teachers = self.store.read(lambda state: self._make(state, questions, list))
            bodies = encode(self._made_robust(version, teachers, questions))
        return [(version, body) for body in bodies]

    def _make(
        self, state: Transaction, questions: Sequence[tuple[str, Wants]], finish: Callable[[Iterable[Teacher]], Made]
    ) -> tuple[int, Made]:
        """Return the board's version, and the teachers that these clients get, finished one by one."""
        if len(questions) > 1:  # read at once what each will need
            state.get([key for client, _ in questions for key in keys_of(client)[:3]])
        views = [BoardState(self.task, state, client, reading=True) for client, _ in questions]
        drawn = [self._draw(view, wants) for view, (_, wants) in zip(views, questions, strict=True)]
        if len(questions) > 1:
            state.get(buffers.row_keys(slot for slots in drawn for slot in slots))
        teachers = (
            self._from_everyone(view, slots, wants) if wants.peers is None else self._from_peers(view, wants)
            for view, slots, (_, wants) in zip(views, drawn, questions, strict=True)
        )
        return views[0].head.version, finish(teachers)

    def version(self) -> int:
        """Return a number that grows with every change."""
        return self.store.read(lambda state: read_head(self.task, state).version)

    def expire(self, limit: int = EXPIRED_AT_ONCE) -> list[str]:
        """Forget releases older than the task's max_age, at most `limit`, and return whose: none, if none is left."""
        if self.task.max_age is None:
            return []
        interval, gone, more = SLACK / 4 * self.task.max_age, list[str](), True

        def work(state: Transaction) -> tuple[list[str], bool]:
            nonlocal limit
            wanted, limit = limit, max(1, limit // 2)  # fewer if it begins again, since another came in between
            state.get(["time", "head"])  # both at once
            return forget(self.task, state, self.clock.keep(state, interval), wanted)

        while more and not gone:
            gone, more = self.store.transact(work)
        return gone

    def status(self, limit: int = 100) -> BoardStatus:
        """Return the state of the board, with up to `limit` of its clients."""
        task = self.task
        head, members = self.store.read(lambda state: (read_head(task, state), read_members(task, state, limit)))
        compared = members[: max(FEWEST, MOST_COMPARED // self.task.dimension)]
        classes = max(1, MOST_COMPARED // (self.task.dimension * max(1, len(compared))))
        means = read_means(self.store, compared, classes)
        judge = _strangeness if task.space is None else partial(noisiness, task)
        scores = dict(zip(means, judge(list(means.values())), strict=True))
        return BoardStatus(head.version, head.members, members, [scores.get(member.name) for member in members])

    def find(self, client: str) -> BoardMember | None:
        """Return what the board knows of this client; None if it has published nothing."""
        return self.store.read(lambda state: find_member(self.task, state, client))

    def find_faults(self) -> dict[str, str]:
        """Return what is damaged, or does not fit together: key -> what is wrong with it."""
        return self.store.store.read(lambda state: repairs.Survey(self.task, state)).faults

    def save(self) -> bytes:
        """Return all that the board keeps, as bytes."""
        return wire.encode_items(self.store.items())

    def load(self, saved: bytes) -> None:
        """Restore what `save` returned."""
        items = wire.decode_items(saved)
        self.store.transact(lambda state: state.set(items))
        self._robust.forget()

    def _heal(self, state: Transaction, _: Damaged) -> Healed:
        return repairs.repair(self.task, state, self.clock.repair(state), self.date())

    def _draw(self, view: BoardState, wants: Wants) -> list[tuple[int, int]]:
        """Return the observations that a client will see: their classes, and their slots in the classes' buffers."""
        rng, sizes = self._random(view, wants), view.head.sizes.tolist()
        labels = _chosen(range(self.task.classes), wants) if wants.peers is None else []
        return [
            (label, slot)
            for label in labels
            for slot in buffers.draw(view.index, label, sizes[label], wants.observations, rng)
        ]

    def _from_everyone(self, view: BoardState, slots: list[tuple[int, int]], wants: Wants) -> Teacher:
        others = view.totals.clients.tolist()
        for label in view.index.classes:
            others[label] -= 1
        taught = _chosen((label for label, clients in enumerate(others) if clients), wants)
        drawn = [row for _, row in buffers.read(view.state, slots)]
        means = view.totals.means(taught)  # `_made_robust` replaces them where the task says so
        return Teacher(means, decode_rows(drawn, [label for label, _ in slots], self.task.dimension))

    def _made_robust(
        self, version: int, teachers: list[Teacher], questions: Sequence[tuple[str, Wants]]
    ) -> list[Teacher]:
        """Return the teachers with robust means in place of those over everyone."""
        pairs = [(teacher, wants.peers is None) for teacher, (_, wants) in zip(teachers, questions, strict=True)]
        labels = {label for teacher, of_everyone in pairs if of_everyone for label in teacher.means.labels.tolist()}
        found = self._robust.of(sorted(labels), version)
        return [
            teacher._replace(means=_in_place(teacher.means, found)) if of_everyone else teacher
            for teacher, of_everyone in pairs
        ]

    def _random(self, view: BoardState, wants: Wants) -> random.Random:
        """Return randomness for one question about one version: always the same, and unpredictable without the key."""
        if not self.key:
            return random.Random(wants.seed)
        asked = f"{view.head.version}\n{view.client}\n{wants.seed}".encode()
        return random.Random(hashlib.blake2b(asked, key=self.key, digest_size=32).digest())

    def _from_peers(self, view: BoardState, wants: Wants) -> Teacher:
        rng = self._random(view, wants)
        releases = read_releases(view.state, sorted(set(wants.peers or ()) - {view.client}))
        totals, least = read_totals(None, self.task), max(1, self.task.named_peers)
        for release in releases:
            totals.add(release.means, +1, weighted=self.task.counts_samples)
        taught, drawn = _chosen(np.flatnonzero(totals.clients >= least).tolist(), wants), []
        for label in _chosen(range(self.task.classes), wants):
            observed = [list(zip(*r.observations.of(label), strict=True)) for r in releases]
            rows = [row for each in observed for row in each]
            if sum(map(bool, observed)) >= least:
                drawn += rng.sample(rows, min(wants.observations, len(rows)))
        means = totals.means(taught)
        if self.task.aggregation != "mean":
            each = [np.concatenate([r.means.of(label).vectors for r in releases]) for label in taught]
            centres = [aggregate(vectors, self.task.aggregation) for vectors in each]
            means = stack(list(zip(centres, taught, means.counts.tolist(), strict=True)), self.task.dimension)
        return Teacher(means, stack(drawn, self.task.dimension))


def longest_release(task: Task) -> int:
    """Return the bytes that a release of this task can have."""
    return wire.LONGEST_HEADER_BYTES + task.classes * (1 + MOST_OBSERVATIONS) * (4 * task.dimension + 12)


def _chosen(classes: Iterable[int], wants: Wants) -> list[int]:
    if wants.classes is None:
        return list(classes)
    wanted = set(wants.classes)
    return [label for label in classes if label in wanted]


def _in_place(means: Representations, found: Mapping[int, Floats]) -> Representations:
    """Return these means with the vectors found for their classes; without classes for which there is none."""
    there = zip(means.labels.tolist(), means.counts.tolist(), strict=True)
    rows = [(found[label], label, count) for label, count in there if label in found]
    return stack(rows, means.vectors.shape[1])


def _strangeness(means: list[Representations]) -> list[float | None]:
    """Return for each client the median over its classes, where enough clients share one."""
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
