"""The state that a board keeps, and its keys.

time             how old the board is, see `clock`
head             version, the queue's ends, and the sizes of all buffers, as int64; at a relay also the stamp of the
                 totals, see `memory`
totals           sums over clients, see `totals`
release/CLIENT   its last release, as it came
place/CLIENT     its index: the slots it owns, see `buffers`
row/BUFFER/SLOT  buffers 0 to C−1: observations by class; C to 2C−1: means by class, only where the aggregate
                 is not a mean; 2C: the clients themselves
queue/NUMBER     clients in the order in which they may be forgotten, only where releases age: each client once

All else is made of the releases: `checking` compares it with them.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.board import buffers, clock
from repshare.board.memory import Answers, Remembered
from repshare.board.totals import read_totals
from repshare.errors import Refused
from repshare.sharing import wire
from repshare.sharing.representations import Release, Representations
from repshare.sharing.task import Task
from repshare.stores import Transaction, decoding

SLACK = 1 / 8  # of max_age: how much longer than that a release may be kept
LOOKED_AT = 100  # of the queue, in one transaction
MOST_FREED = 50_000  # rows of clients that are forgotten in one transaction, or one client's
STAMP_BYTES = 16


class Head(NamedTuple):
    """Numbers that change with nearly everything."""

    numbers: NDArray[np.int64]
    stamp: bytes = b""  # of the totals; none where they are not remembered

    @property
    def version(self) -> int:
        """Grows with every change."""
        return int(self.numbers[0])

    @property
    def queue(self) -> range:
        """The numbers in the queue, some of which stand for no client any more."""
        return range(int(self.numbers[1]), int(self.numbers[2]))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Rows in each buffer."""
        return self.numbers[3:]

    @property
    def members(self) -> int:
        """The number of clients."""
        return int(self.numbers[-1])

    def encode(self) -> bytes:
        """Encode as bytes."""
        return self.numbers.tobytes() + self.stamp


def decode_head(task: Task, kept: bytes) -> Head:
    """Return the head from bytes."""
    with decoding("head"):
        size = 8 * (3 + count_buffers(task))
        numbers, stamp = np.frombuffer(kept[:size], np.int64).copy(), kept[size:]
        if len(kept) not in (size, size + STAMP_BYTES) or not 0 <= numbers[1] <= numbers[2]:
            raise ValueError(f"{len(kept)} bytes that make no sense")
        return Head(numbers, stamp)


class Core:
    """A board's head and totals, open for one transaction: read once, and written once."""

    def __init__(
        self, task: Task, state: Transaction, known: Remembered | None = None, *, reading: bool = False
    ) -> None:
        """`known`: what the process remembers of the board. `reading`: nothing is changed, and so nothing copied."""
        self.task, self.state = task, state
        self.head = read_head(task, state)
        self.known = known is not None and known.stamp == self.head.stamp
        if known and self.known:
            self.totals = known.totals if reading else known.totals.copy()
            self.answers = known.answers
            return
        (kept,) = state.get(["totals"])
        self.totals, self.answers = read_totals(kept, task), Answers()

    def remember(self) -> Remembered:
        """Return what may be remembered of it, once it is kept."""
        return Remembered(self.head.stamp, self.totals, self.answers)

    def keep(self, *, stamped: bool = False) -> None:
        """Write both, with a new stamp if the board is one to be remembered."""
        self.head = self.head._replace(stamp=os.urandom(STAMP_BYTES) if stamped else b"")
        self.answers = Answers()
        self.state.set({"head": self.head.encode(), "totals": self.totals.encode()})


class BoardState:
    """One client's part in a board's state, open for one transaction. `Core.keep` writes what changes in the core."""

    def __init__(self, core: Core, client: str, *, reading: bool = False) -> None:
        """`reading`: without the client's last release, which is long, and needed only to change something."""
        self.task, self.state, self.client = core.task, core.state, client
        self.head, self.totals = core.head, core.totals
        (index,) = self.state.get([buffers.index_key(client)])
        with decoding(buffers.index_key(client)):
            self.index = self._index_before = buffers.decode_index(index)
        self.body, self.release = (None, None) if reading else self._read_release()

    def _read_release(self) -> tuple[bytes | None, Release | None]:
        (body,) = self.state.get([release_key(self.client)])
        return body, None if body is None else decode_release(self.client, body)

    def enter(self, release: Release, body: bytes, now: float, date: float) -> int:
        """Replace the client's last release by this one: now, by the board's clock, and on this date."""
        self._count(release, self.release)
        if self.totals.overflow(self.task.norm_bound):
            full = self.totals.weights.max()
            self._count(self.release, release)
            raise Refused(f"the task is full: {full} samples of one class")
        classes = release.means.labels.tolist()
        if classes != self.index.classes:
            self.index = self.index._replace(classes=classes)
        if self._is_to_queue(now):
            self._join_queue(now)
        return self._write(self._make_rows(release, len(body), date), {release_key(self.client): body})

    def leave(self) -> int:
        """Forget the client."""
        if self.body is None:
            return self.head.version
        self._count(None, self.release)
        self._leave_queue()
        version = self._write({}, {})
        self.state.delete([release_key(self.client), buffers.index_key(self.client)])
        return version

    def _count(self, new: Release | None, old: Release | None) -> None:
        for release, sign in ((old, -1), (new, +1)):
            if release:
                self.totals.add(release.means, sign, weighted=self.task.counts_samples)

    def renew(self, now: float) -> None:
        """Let the client's last release count as published now, by the board's clock."""
        if self._is_to_queue(now):
            self.queue_again(now)

    def queue_again(self, now: float) -> None:
        """Join the queue as if the client had just published."""
        self._join_queue(now)
        self.state.set({buffers.index_key(self.client): self.index.encode()})

    def _make_rows(self, release: Release, size: int, date: float) -> dict[int, list[bytes]]:
        rows: dict[int, list[bytes]] = {}
        for label, row in _encode_rows(release.observations):
            rows.setdefault(label, []).append(row)
        if self.task.aggregation != "mean":
            for label, row in _encode_rows(release.means):
                rows[means_buffer(self.task, label)] = [row]
        samples = [
            list(pair) for pair in zip(release.means.labels.tolist(), release.means.counts.tolist(), strict=True)
        ]
        rows[members_buffer(self.task)] = [f"[{release.round}, {date!r}, {size}, {samples}]".encode()]  # JSON
        return rows

    def _is_to_queue(self, now: float) -> bool:
        """Return whether a release of this moment needs another place in the queue: it would expire too soon."""
        max_age = self.task.max_age
        return max_age is not None and clock.over(self.index.queued, SLACK * max_age, now)

    def _join_queue(self, now: float) -> None:
        self._leave_queue()
        number = self.head.queue.stop
        self.head.numbers[2] += 1
        self.index = self.index._replace(queued=now, number=number)
        self.state.set({queue_key(number): json.dumps([self.client, now]).encode()})
        clock.write(self.state, now)

    def _leave_queue(self) -> None:
        number = self.index.number
        if number is None or number not in self.head.queue:
            return
        self.state.delete([queue_key(number)])
        if number == self.head.queue.stop - 1:
            self.head.numbers[2] -= 1

    def _write(self, rows: buffers.Rows, items: dict[str, bytes]) -> int:
        moved = buffers.replace(self.state, self.client, self.index, rows, self.head.sizes)
        self.head.numbers[0] += 1
        if moved or self.index is not self._index_before:
            items[buffers.index_key(self.client)] = self.index.encode()
        self.state.set(items)
        return self.head.version


def forget(task: Task, state: Transaction, now: float, limit: int, *, stamped: bool = False) -> tuple[list[str], bool]:
    """Remove clients that have published nothing for longer than max_age. Return which, and whether to continue.

    What is needed is read at once, whatever the number of classes: over a network, one by one takes so long that
    another always comes in between.
    """
    head, latest = read_head(task, state), now - (task.max_age or 0.0) * (1 + SLACK)
    keys = [queue_key(number) for number in head.queue[:LOOKED_AT]]
    found = zip(keys, state.get(keys), strict=True)
    waiting = [None if kept is None else decode_queued(key, kept) for key, kept in found]
    due = list(takewhile(lambda each: each is None or not latest < each[1] <= now, waiting))
    state.get([buffers.index_key(each[0]) for each in due if each])
    silent, early, passed, rows = dict[str, buffers.ClientIndex](), list[str](), 0, 0
    for each in due:
        if len(silent) == limit or rows > MOST_FREED:
            break
        passed += 1
        if each and (index := read_index(state, each[0])).queued == each[1]:
            if each[1] > now:  # by a clock that was wrong: the age of this one is unknown
                early.append(each[0])
            else:
                silent[each[0]] = index
                rows += sum(map(len, index.slots.values()))
    if not silent and not early and passed < LOOKED_AT // 2:
        return [], False
    state.get(["totals", *(key for client in silent for key in keys_of(client))])
    buffers.read_ahead(state, silent.values(), head.sizes)
    core = Core(task, state)
    for client in silent:
        BoardState(core, client).leave()
    for client in early:
        BoardState(core, client).queue_again(now)
    state.delete(keys[:passed])
    core.head.numbers[1] = min(head.queue.start + passed, core.head.queue.stop)
    core.keep(stamped=stamped)
    return list(silent), True


def decode_queued(key: str, kept: bytes) -> tuple[str, float]:
    """Return who joined the queue, and when."""
    with decoding(key):
        client, queued = json.loads(kept)
        return str(client), float(queued)


def means_buffer(task: Task, label: int) -> int:
    """Return the buffer of a class's means."""
    return task.classes + label


def members_buffer(task: Task) -> int:
    """Return the buffer of the clients themselves: the last one."""
    return 2 * task.classes


def count_buffers(task: Task) -> int:
    """Return the number of buffers."""
    return members_buffer(task) + 1


def read_head(task: Task, state: Transaction) -> Head:
    """Return the head; that of an empty board if there is none."""
    (kept,) = state.get(["head"])
    return decode_head(task, kept) if kept else Head(np.zeros(3 + count_buffers(task), np.int64))


def read_index(state: Transaction, client: str) -> buffers.ClientIndex:
    """Return a client's index."""
    key = buffers.index_key(client)
    (kept,) = state.get([key])
    with decoding(key):
        return buffers.decode_index(kept)


def read_releases(state: Transaction, clients: Sequence[str]) -> list[Release]:
    """Return the last releases of these clients, where they have any."""
    bodies = state.get([release_key(client) for client in clients])
    return [decode_release(client, body) for client, body in zip(clients, bodies, strict=True) if body is not None]


def decode_release(client: str, body: bytes) -> Release:
    """Return a client's release, as it was kept."""
    with decoding(release_key(client)):
        return wire.decode_release(body)


def decode_rows(rows: Iterable[bytes], labels: Sequence[int], dimension: int) -> Representations:
    """Return rows of these classes' buffers."""
    counts, vectors = [], []
    with decoding("row"):
        for row in rows:
            count, _, vector = row.partition(b"\n")
            counts.append(int(count))
            vectors.append(vector)
        numbers = np.frombuffer(b"".join(vectors), np.float32).reshape(len(counts), dimension)
    return Representations(numbers, np.array(labels, np.int64), np.array(counts, np.int64))


def _encode_rows(given: Representations) -> Iterator[tuple[int, bytes]]:
    """Yield each row's class, and what is kept of it."""
    for label, count, vector in zip(given.labels.tolist(), given.counts.tolist(), given.vectors, strict=True):
        yield label, b"%d\n%s" % (count, vector.tobytes())


def keys_of(client: str) -> list[str]:
    """Return the keys that a change for a client reads."""
    return [buffers.index_key(client), release_key(client)]


def release_key(client: str) -> str:
    """Return the key of a client's release."""
    return f"release/{client}"


def queue_key(number: int | str) -> str:
    """Return the key of this number in the queue, under which its client is kept."""
    return f"queue/{number}"
