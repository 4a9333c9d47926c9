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
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare import buffers, sums, wire
from repshare.errors import Refused
from repshare.representations import Floats, Release
from repshare.stores import Transaction
from repshare.task import Task
from repshare.totals import read_totals

SLACK = 1 / 8  # of max_age: how much longer than that a release may be kept


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

    def __init__(self, task: Task, state: Transaction, client: str) -> None:
        self.task, self.state, self.client = task, state, client
        head, totals, place, self.body = state.get(["head", "totals", buffers.place_key(client), _release_key(client)])
        self.head, self.totals = _read_head(task, head), read_totals(totals, task)
        self.place = buffers.read_place(place)
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
        self._count_out()
        self.totals.add(release.means, +1, weighted=self.task.weighted)
        if sums.overflows(self.totals.vectors):
            raise Refused(f"the task is full: {self.totals.weights.max()} samples of one class")
        if self.task.max_age and now - self.place.queued > SLACK * self.task.max_age:
            self._queue_up(now)
        return self._close(self._rows(release, len(body), now), {_release_key(self.client): body})

    def leave(self) -> int:
        """Forget the client."""
        if self.body is None:
            return self.version
        self._count_out()
        version = self._close({}, {})
        self.state.delete([_release_key(self.client), buffers.place_key(self.client)])
        return version

    def _count_out(self) -> None:
        if self.release:
            self.totals.add(self.release.means, -1, weighted=self.task.weighted)

    def _rows(self, release: Release, size: int, now: float) -> dict[int, list[bytes]]:
        rows: dict[int, list[bytes]] = {}
        for vector, label, count in zip(*release.observations, strict=True):
            rows.setdefault(int(label), []).append(_row(vector, int(count)))
        if self.task.aggregation != "mean":
            for vector, label, count in zip(*release.means, strict=True):
                rows[self.means_of(int(label))] = [_row(vector, int(count))]
        samples = list(zip(release.means.labels.tolist(), release.means.counts.tolist(), strict=True))
        rows[2 * self.task.classes] = [json.dumps([release.round, now, size, samples]).encode()]
        return rows

    def _queue_up(self, now: float) -> None:
        self.state.set({f"queue/{self.head.queue.stop}": json.dumps([self.client, now]).encode()})
        self.head.numbers[2] += 1
        self.place = self.place._replace(queued=now)

    def _close(self, rows: buffers.Rows, items: dict[str, bytes]) -> int:
        buffers.replace(self.state, self.client, self.place, rows, self.sizes)
        self.head.numbers[0] += 1
        self.state.set(
            {
                "head": self.head.numbers.tobytes(),
                "totals": self.totals.encode(),
                buffers.place_key(self.client): self.place.encode(),
                **items,
            }
        )
        return self.version


def forget(task: Task, state: Transaction, latest: float, limit: int) -> int:
    """Remove clients that queued up until `latest` and have not published since: how many it was."""
    forgotten = 0
    while forgotten < limit:
        head = read_head(task, state)
        (kept,) = state.get([f"queue/{head.queue.start}"])
        client, queued = json.loads(kept) if kept else ("", latest + 1)
        if queued > latest:
            break
        state.delete([f"queue/{head.queue.start}"])
        head.numbers[1] += 1
        state.set({"head": head.numbers.tobytes()})
        books = Books(task, state, client)
        if books.body is not None and books.place.queued == queued:
            books.leave()
            forgotten += 1
    return forgotten


def read_head(task: Task, state: Transaction) -> Head:
    """The head alone."""
    return _read_head(task, state.get(["head"])[0])


def read_members(task: Task, state: Transaction, limit: int) -> list[Member]:
    """Up to `limit` clients."""
    shown = range(min(read_head(task, state).members, limit))
    found = buffers.read(state, [(2 * task.classes, slot) for slot in shown])
    known = ((name, *json.loads(row)) for name, row in found)
    return [Member(name, round, published, size, dict(samples)) for name, round, published, size, samples in known]


def read_releases(state: Transaction, clients: Sequence[str]) -> list[Release]:
    """The last releases of these clients, where they have any."""
    return [wire.decode_release(body) for body in state.get([_release_key(client) for client in clients]) if body]


def read_row(row: bytes) -> tuple[Floats, int]:
    """A vector and its count."""
    count, _, vector = row.partition(b"\n")
    return np.frombuffer(vector, np.float32), int(count)


def _row(vector: Floats, count: int) -> bytes:
    return b"%d\n%s" % (count, vector.tobytes())


def _read_head(task: Task, kept: bytes | None) -> Head:
    size = 3 + 2 * task.classes + 1
    return Head(np.zeros(size, np.int64) if kept is None else np.frombuffer(kept, np.int64).copy())


def _release_key(client: str) -> str:
    return f"release/{client}"
