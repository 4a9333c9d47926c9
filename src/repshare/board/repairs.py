"""Repairs of a board: what is wrong with it, and how it is rebuilt from its releases, of which all else is made.

A release that cannot be read costs its client that release, and other clients nothing. All other damage costs nothing.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from repshare.board import buffers, clock
from repshare.board.buffers import ClientIndex, index_key, row_key, row_keys
from repshare.board.members import decode_member
from repshare.board.state import (
    BoardState,
    Core,
    Head,
    count_buffers,
    decode_head,
    decode_queued,
    decode_release,
    decode_rows,
    means_buffer,
    members_buffer,
    queue_key,
    release_key,
)
from repshare.board.totals import Totals, read_totals
from repshare.errors import Damaged
from repshare.sharing.representations import Release
from repshare.sharing.task import Task
from repshare.stores import Healed, Transaction, decoding, sound


class Survey:
    """The contents of a board, all read and compared. Its clients are those whose releases can be read."""

    def __init__(self, task: Task, state: Transaction) -> None:
        self.task, self.state = task, state
        self.faults = dict[str, str]()  # key -> what is wrong with it
        self.keys = set[str]()  # of all rows, indexes and entries in the queue
        self.lost = list[str]()  # who was a client, and has no release that can be read
        self.scattered = list[str]()  # clients whose rows are not all where they should be
        self.indexes = dict[str, ClientIndex]()  # of the other clients
        self.totals = read_totals(None, task)  # of those
        self.head: Head | None = None  # None: it cannot be read
        indexes = dict(self._read_indexes())
        misplaced = self._check_rows(indexes)
        self.queue = self._check_queue(indexes)  # the numbers that clients have in it
        if task.max_age is not None:
            misplaced |= indexes.keys() - self.queue.keys()
        everyone = self._compare_releases(indexes, misplaced)
        self._check_head(indexes)
        if not self.lost:
            self._check_totals(everyone)
        with self._noting(clock.KEY):
            clock.StoreClock().now(state)

    @contextmanager
    def _noting(self, key: str) -> Iterator[None]:
        """Note damage that is found to the value of this key."""
        try:
            with decoding(key):
                yield
        except Damaged as fault:
            self.faults[key] = fault.reason

    def _read_indexes(self) -> Iterator[tuple[str, ClientIndex]]:
        for key, kept in self.state.scan(index_key("")):
            self.keys.add(key)
            with self._noting(key):
                yield key.removeprefix(index_key("")), buffers.decode_index(sound(kept))

    def _check_rows(self, indexes: dict[str, ClientIndex]) -> set[str]:
        """Return the clients whose rows are not all there, or not theirs alone."""
        owners, misplaced = dict[str, str](), set[str]()
        for client, index in indexes.items():
            for key in row_keys((buffer, slot) for buffer, own in index.slots.items() for slot in own):
                if (other := owners.setdefault(key, client)) != client:
                    self.faults[index_key(client)] = f"{key} is in the index of {other}, too"
                    misplaced |= {client, other}
        missing = set(owners)
        for key, kept in self.state.scan("row/"):
            self.keys.add(key)
            missing.discard(key)
            with self._noting(key):
                owner, contents = buffers.read_row(key, sound(kept))
                self._check_contents(key, owner, contents)
                if owner.decode() != owners.get(key) and index_key(owner.decode()) not in self.faults:
                    raise Damaged(key, f"it is not in the index of {owner.decode()}")
            if key in self.faults and key in owners:
                misplaced.add(owners[key])
        self.faults |= dict.fromkeys(missing, "it is missing")
        return misplaced | {owners[key] for key in missing}

    def _check_contents(self, key: str, owner: bytes, contents: bytes) -> None:
        buffer = int(key.split("/")[1])
        if buffer == members_buffer(self.task):
            decode_member(key, owner, contents)
        else:
            decode_rows([contents], [buffer % self.task.classes], self.task.dimension)

    def _check_queue(self, indexes: dict[str, ClientIndex]) -> dict[str, int]:
        """Return which client has which number in the queue."""
        numbers = dict[str, int]()
        for key, kept in self.state.scan(queue_key("")):
            self.keys.add(key)
            with self._noting(key):
                client, queued = decode_queued(key, sound(kept))
                if client in indexes and indexes[client].queued == queued:  # others were left by an earlier version
                    numbers[client] = int(key.removeprefix(queue_key("")))
        if self.task.max_age is not None:
            self.faults |= {index_key(client): "it is not in the queue" for client in indexes.keys() - numbers.keys()}
        return numbers

    def _compare_releases(self, indexes: dict[str, ClientIndex], misplaced: set[str]) -> Totals:
        """Find out whose rows are those of its release. Return the totals of all releases that can be read."""
        everyone = read_totals(None, self.task)
        for client, release in self._read_releases():
            if release is None:
                self.lost.append(client)
                continue
            everyone.add(release.means, +1, weighted=self.task.counts_samples)
            index = indexes.get(client)
            if index is None or not self._fits(release, index):
                self.faults.setdefault(index_key(client), "it does not fit the release")
                self.scattered.append(client)
            elif client in misplaced:
                self.scattered.append(client)
            else:
                self.indexes[client] = index
                self.totals.add(release.means, +1, weighted=self.task.counts_samples)
        for client in indexes.keys() - self.indexes.keys() - {*self.scattered, *self.lost}:
            self.faults[release_key(client)] = "it is missing"
            self.lost.append(client)
        return everyone

    def _read_releases(self) -> Iterator[tuple[str, Release | None]]:
        """Yield each client's release; None if it cannot be read."""
        for key, kept in self.state.scan(release_key("")):
            client, release = key.removeprefix(release_key("")), None
            with self._noting(key):
                found = decode_release(client, sound(kept))
                for vectors, labels, _ in (found.means, found.observations):
                    known = vectors.shape[1] == self.task.dimension and set(labels.tolist()) <= {
                        *range(self.task.classes)
                    }
                    if not known or not np.isfinite(vectors).all():
                        raise Damaged(key, "it is not a release of this task")
                release = found
            yield client, release

    def _fits(self, release: Release, index: ClientIndex) -> bool:
        """Return whether a client owns as many rows as it released."""
        classes = release.means.labels.tolist()
        expected = Counter(release.observations.labels.tolist())
        if self.task.aggregation != "mean":
            expected.update(means_buffer(self.task, label) for label in classes)
        expected[members_buffer(self.task)] = 1
        return index.classes == classes and expected == {buffer: len(own) for buffer, own in index.slots.items()}

    def _check_head(self, indexes: dict[str, ClientIndex]) -> None:
        with self._noting("head"):
            (kept,) = self.state.get(["head"])
            if kept is None:
                if indexes or any(True for _ in self.state.scan(release_key(""))):
                    raise Damaged("head", "it is missing")
                return
            self.head = decode_head(self.task, kept)
            sizes = np.zeros(count_buffers(self.task), np.int64)
            for index in indexes.values():
                for buffer, own in index.slots.items():
                    if not 0 <= buffer < len(sizes) or max(own, default=0) >= self.head.sizes[buffer]:
                        raise Damaged("head", "rows beyond its sizes")
                    sizes[buffer] += len(own)
            unread = any(key.startswith(index_key("")) for key in self.faults)
            if not unread and not np.array_equal(sizes, self.head.sizes):
                raise Damaged("head", "its sizes are not those of the rows")

    def _check_totals(self, everyone: Totals) -> None:
        with self._noting("totals"):
            (kept,) = self.state.get(["totals"])
            if not np.array_equal(read_totals(kept, self.task).numbers, everyone.numbers):
                raise Damaged("totals", "they are not the sums of the releases")


def repair(task: Task, state: Transaction, now: float, date: float) -> Healed:
    """Make a board whole: now, by its own clock, and on this date."""
    found = Survey(task, state)
    if not found.faults:
        return Healed({}, [])
    _gather(task, state, found, date)
    core = Core(task, state)
    for client in found.scattered:
        (body,) = state.get([release_key(client)])
        state.delete([release_key(client)])
        if body is not None:
            BoardState(core, client).enter(decode_release(client, body), body, now, date)
    core.keep()
    return Healed(found.faults, [f"the release of {client}" for client in found.lost])


def _gather(task: Task, state: Transaction, found: Survey, date: float) -> None:
    """Leave only those whose rows are where they should be, without gaps between the rows."""
    sizes = np.zeros(count_buffers(task), np.int64)
    rows: dict[int, list[tuple[int, str]]] = {}  # by buffer: slots, and whose
    for client, index in found.indexes.items():
        for buffer, own in index.slots.items():
            rows.setdefault(buffer, []).extend((slot, client) for slot in own)
    kept, moved = set[str](), set[str]()
    for buffer, owned in rows.items():
        sizes[buffer] = len(owned)
        kept |= {row_key(buffer, slot) for slot in range(len(owned))}
        gaps = iter(sorted(set(range(len(owned))) - {slot for slot, _ in owned}))
        for slot, client in owned:
            if slot >= len(owned):
                gap = next(gaps)
                (row,) = state.get([row_key(buffer, slot)])
                state.set({row_key(buffer, gap): row or b""})
                found.indexes[client].move(buffer, slot, gap)
                moved.add(client)
    numbers = [found.queue[client] for client in found.indexes if client in found.queue]
    kept |= {*map(index_key, found.indexes), *map(queue_key, numbers)}
    state.delete([*found.keys - kept, *map(release_key, found.lost)])
    state.set({index_key(client): found.indexes[client].encode() for client in moved})
    # A version that was there before would make others believe that they have seen this board.
    version = found.head.version + 1 if found.head else int(1000 * date)
    head = Head(np.array([version, min(numbers, default=0), max(numbers, default=-1) + 1, *sizes], np.int64))
    state.set({"head": head.encode(), "totals": found.totals.encode()})
