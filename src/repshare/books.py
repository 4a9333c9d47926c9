"""What a board keeps, and under which keys.

head             version, the queue's ends, and the sizes of all buffers, as int64
totals           sums over clients, see `totals`
release/CLIENT   its last release, as it came
place/CLIENT     the slots it owns, see `buffers`
row/BUFFER/SLOT  buffers 0 to C−1: observations by class; C to 2C−1: means by class, only where the aggregate
                 is not a mean; 2C: the clients themselves
queue/NUMBER     clients in the order in which they may be forgotten, only where releases age
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare import buffers, wire
from repshare.errors import Refused
from repshare.representations import Release, Representations
from repshare.stores import Transaction
from repshare.task import Task
from repshare.totals import read_totals

SLACK = 1 / 8  # of max_age: how much longer than that a release may be kept
LOOKED_AT = 100  # of the queue, in one transaction


class Head(NamedTuple):
    """Numbers that change with nearly everything."""

    numbers: NDArray[np.int64]

    @property
    def version(self) -> int:
        """Grows with every change."""
        return int(self.numbers[0])

    @property
    def queue(self) -> range:
        """The numbers of those in the queue."""
        return range(int(self.numbers[1]), int(self.numbers[2]))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Rows in each buffer."""
        return self.numbers[3:]

    @property
    def members(self) -> int:
        """How many clients there are."""
        return int(self.numbers[-1])


class Member(NamedTuple):
    """What a board knows of a client."""

    name: str
    round: int
    published: float  # seconds since 1970
    bytes: int
    samples: dict[int, int]  # by class, behind its means


class Books:
    """A board's state and one client's part in it, open for one transaction."""

    def __init__(self, task: Task, state: Transaction, client: str, *, reading: bool = False) -> None:
        """`reading`: without the client's last release, which is long, and needed only to change something."""
        self.task, self.state, self.client = task, state, client
        head, totals, place, *body = state.get(keys_of(client)[: 3 if reading else 4])
        self.head, self.totals = _read_head(task, head), read_totals(totals, task)
        self.place = self._place_before = buffers.read_place(place)
        self.body = body[0] if body else None
        self.release = wire.decode_release(self.body) if self.body else None

    @property
    def version(self) -> int:
        """The board's."""
        return self.head.version

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Rows in each buffer."""
        return self.head.sizes

    def means_of(self, label: int) -> int:
        """The buffer of a class's means."""
        return self.task.classes + label

    def enter(self, release: Release, body: bytes, now: float) -> int:
        """Put this release in place of the client's last one."""
        self.totals.swap(self.release.means if self.release else None, release.means, weighted=self.task.counts_samples)
        classes = release.means.labels.tolist()
        if classes != self.place.classes:
            self.place = self.place._replace(classes=classes)
        if self.totals.overflow(self.task.norm_bound):
            raise Refused(f"the task is full: {self.totals.weights.max()} samples of one class")
        if self.task.max_age and now - self.place.queued > SLACK * self.task.max_age:
            self._queue_up(now)
        return self._close(self._rows(release, len(body), now), {_release_key(self.client): body})

    def leave(self) -> int:
        """Forget the client."""
        if self.body is None:
            return self.version
        if self.release:
            self.totals.add(self.release.means, -1, weighted=self.task.counts_samples)
        version = self._close({}, {})
        self.state.delete([_release_key(self.client), buffers.place_key(self.client)])
        return version

    def _rows(self, release: Release, size: int, now: float) -> dict[int, list[bytes]]:
        rows: dict[int, list[bytes]] = {}
        for label, row in _rows_of(release.observations):
            rows.setdefault(label, []).append(row)
        if self.task.aggregation != "mean":
            for label, row in _rows_of(release.means):
                rows[self.means_of(label)] = [row]
        samples = [
            list(pair) for pair in zip(release.means.labels.tolist(), release.means.counts.tolist(), strict=True)
        ]
        rows[2 * self.task.classes] = [f"[{release.round}, {now!r}, {size}, {samples}]".encode()]  # JSON
        return rows

    def _queue_up(self, now: float) -> None:
        self.state.set({f"queue/{self.head.queue.stop}": json.dumps([self.client, now]).encode()})
        self.head.numbers[2] += 1
        self.place = self.place._replace(queued=now)

    def _close(self, rows: buffers.Rows, items: dict[str, bytes]) -> int:
        moved = buffers.replace(self.state, self.client, self.place, rows, self.sizes)
        self.head.numbers[0] += 1
        if moved or self.place is not self._place_before:
            items[buffers.place_key(self.client)] = self.place.encode()
        self.state.set({"head": self.head.numbers.tobytes(), "totals": self.totals.encode(), **items})
        return self.version


def forget(task: Task, state: Transaction, latest: float, limit: int) -> tuple[list[str], bool]:
    """Remove clients that queued up until `latest` and have not published since: who it was, and whether to go on.

    What is needed is read at once, whatever the number of classes: over a network, one by one takes so long that
    another always comes in between.
    """
    head = read_head(task, state)
    numbers = [f"queue/{number}" for number in head.queue[:LOOKED_AT]]
    waiting = [json.loads(kept or "") for kept in state.get(numbers)]
    due = list(takewhile(lambda each: each[1] <= latest, waiting))
    silent, places, passed = list[str](), list[buffers.Place](), 0
    for (client, queued), kept in zip(due, state.get([buffers.place_key(client) for client, _ in due]), strict=True):
        if len(silent) == limit:
            break
        passed += 1
        place = buffers.read_place(kept)
        if place.queued == queued and client not in silent:
            silent.append(client)
            places.append(place)
    if not passed:
        return [], False
    state.get([key for client in silent for key in keys_of(client)])
    buffers.read_ahead(state, places, head.sizes)
    for client in silent:
        Books(task, state, client).leave()
    head = read_head(task, state)
    head.numbers[1] += passed
    state.set({"head": head.numbers.tobytes()})
    state.delete(numbers[:passed])
    return silent, True


def read_head(task: Task, state: Transaction) -> Head:
    """The head alone."""
    return _read_head(task, state.get(["head"])[0])


def read_members(task: Task, state: Transaction, limit: int) -> list[Member]:
    """Up to `limit` clients."""
    shown = range(min(read_head(task, state).members, limit))
    found = buffers.read(state, [(2 * task.classes, slot) for slot in shown])
    known = ((name.decode(), *json.loads(row)) for name, row in found)
    return [Member(name, round, published, size, dict(samples)) for name, round, published, size, samples in known]


def read_releases(state: Transaction, clients: Sequence[str]) -> list[Release]:
    """The last releases of these clients, where they have any."""
    return [wire.decode_release(body) for body in state.get([_release_key(client) for client in clients]) if body]


def read_rows(rows: Iterable[bytes], labels: Sequence[int], dimension: int) -> Representations:
    """Rows of these classes' buffers."""
    counts, vectors = [], []
    for row in rows:
        count, _, vector = row.partition(b"\n")
        counts.append(int(count))
        vectors.append(vector)
    numbers = np.frombuffer(b"".join(vectors), np.float32).reshape(len(counts), dimension)
    return Representations(numbers, np.array(labels, np.int64), np.array(counts, np.int64))


def _rows_of(given: Representations) -> Iterator[tuple[int, bytes]]:
    """Each row's class, and what is kept of it."""
    numbers, width = given.vectors.tobytes(), given.vectors.shape[1] * given.vectors.itemsize
    for place, (label, count) in enumerate(zip(given.labels.tolist(), given.counts.tolist(), strict=True)):
        yield label, b"%d\n%s" % (count, numbers[place * width : (place + 1) * width])


def _read_head(task: Task, kept: bytes | None) -> Head:
    size = 3 + 2 * task.classes + 1
    return Head(np.zeros(size, np.int64) if kept is None else np.frombuffer(kept, np.int64).copy())


def keys_of(client: str) -> list[str]:
    """What changing something for a client begins with reading."""
    return ["head", "totals", buffers.place_key(client), _release_key(client)]


def _release_key(client: str) -> str:
    return f"release/{client}"
