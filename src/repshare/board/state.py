"""The state that a board keeps, and its keys.

head             version and the sizes of all buffers, as int64; at a relay also a stamp, drawn anew with every change
totals           sums over clients, see `totals`
release/CLIENT   its last release, as it came
place/CLIENT     its slots, see `buffers`
row/BUFFER/SLOT  buffers 0 to C−1: observations by class; C to 2C−1: means by class, only where the aggregate
                 is not a mean; 2C: the clients themselves

All else is made of the releases: `checking` compares it with them.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from repshare.board import buffers
from repshare.board.buffers import slots_key
from repshare.board.cache import Cache
from repshare.board.totals import Totals, read_totals
from repshare.errors import Refused
from repshare.sharing import wire
from repshare.sharing.representations import Release, Representations
from repshare.sharing.task import Task
from repshare.stores import Transaction, decoding

STAMP_BYTES = 12  # no multiple of 8, so that no head of this version is as long as one of `upgrade`
MOST_COUNTS = 200_000  # of samples by class that are read at once, of all members together


class BoardMember(NamedTuple):
    """A board's knowledge of a client: a row in the last buffer."""

    name: str
    round: int
    published: float  # seconds since 1970
    bytes: int
    samples: dict[int, int]  # by class, behind its means


class BoardState:
    """A board's version, buffers and totals, open for one transaction. `keep` writes what has changed of these."""

    def __init__(
        self,
        task: Task,
        state: Transaction,
        clients: Sequence[str] = (),
        *,
        changing: bool = False,
        cache: Cache | None = None,
    ) -> None:
        """Read the head, and at the same time these clients' slots; if `changing`, also their last releases.

        `cache`: where totals may be, of a board whose changes have stamps.
        """
        self.task, self.state, self._cache = task, state, cache
        more = [*map(release_key, clients), *([] if cache else ["totals"])] if changing else []
        (kept, *_) = state.get(["head", *map(slots_key, clients), *more])
        self._numbers, self.stamp = decode_head(task, kept)

    @property
    def version(self) -> int:
        """Grows with every change."""
        return int(self._numbers[0])

    @property
    def sizes(self) -> buffers.Sizes:
        """Rows in each buffer."""
        return self._numbers[1:]

    @property
    def count(self) -> int:
        """The number of clients."""
        return int(self._numbers[-1])

    @cached_property
    def totals(self) -> Totals:
        """The sums over all clients."""
        known = self._cache.get((self.stamp, "totals")) if self._cache and self.stamp else None
        return read_totals(known or self.state.get(["totals"])[0], self.task)

    def release(self, client: str) -> Release | None:
        """Return a client's last release, if it has any."""
        return next(iter(read_releases(self.state, [client])), None)

    def enter(self, client: str, before: Release | None, release: Release, body: bytes, date: float) -> None:
        """Replace the client's last release by this one."""
        self._count(before, release)
        if self.totals.overflow(self.task.norm_bound):
            raise Refused(f"the task is full: {self.totals.weights.max()} samples of one class")
        rows: dict[int, list[bytes]] = {}
        for label, row in _encode_rows(release.observations):
            rows.setdefault(label, []).append(row)
        if self.task.aggregation != "mean":
            rows |= {means_buffer(self.task, label): [row] for label, row in _encode_rows(release.means)}
        samples = dict(zip(release.means.labels.tolist(), release.means.counts.tolist(), strict=True))
        rows[members_buffer(self.task)] = [encode_member(BoardMember(client, release.round, date, len(body), samples))]
        self._own(client, rows, list(samples))
        self.state.set({release_key(client): body})

    def leave(self, client: str, before: Release | None) -> None:
        """Forget the client and its last release."""
        buffers.read_ahead(self.state, buffers.read_slots(self.state, client), self.sizes)
        self._count(before, None)
        self._own(client, {}, [])
        self.state.delete([release_key(client), slots_key(client)])

    def renew(self, client: str, date: float, slack: float) -> None:
        """Let the client's last release count as published on this date, if that is more than `slack` seconds later."""
        member = self.member(client)
        if member and not 0 <= date - member.published <= slack:
            row = encode_member(member._replace(published=date))
            (slot,) = buffers.read_slots(self.state, client).owned[members_buffer(self.task)]
            self.state.set({buffers.row_key(members_buffer(self.task), slot): buffers.encode_row(client, row)})

    def keep(self) -> int:
        """Write what all clients share, and return the version. Where there is a cache, it gets the totals."""
        totals = self.totals.encode()
        stamp = os.urandom(STAMP_BYTES) if self._cache else b""
        if self._cache:
            self._cache.put((stamp, "totals"), totals)
        self.state.set({"head": self._numbers.tobytes() + stamp, "totals": totals})
        return self.version

    def members(self, numbers: Iterable[int]) -> list[BoardMember]:
        """Return the clients in these slots of the last buffer."""
        places = [(members_buffer(self.task), number) for number in numbers]
        found = zip(buffers.row_keys(places), buffers.read(self.state, places), strict=True)
        return [decode_member(key, name, row) for key, (name, row) in found]

    def first_members(self, limit: int) -> list[BoardMember]:
        """Return up to `limit` clients; fewer, where the number of classes makes that too much."""
        return self.members(range(min(self.count, limit, max(1, MOST_COUNTS // self.task.rows))))

    def member(self, client: str) -> BoardMember | None:
        """Return this client, if it has published anything."""
        owned = buffers.read_slots(self.state, client).owned
        return next(iter(self.members(owned.get(members_buffer(self.task), ()))), None)

    def _count(self, old: Release | None, new: Release | None) -> None:
        for release, sign in ((old, -1), (new, +1)):
            if release:
                self.totals.add(release.means, sign, weighted=self.task.counts_samples)

    def _own(self, client: str, rows: buffers.Rows, classes: list[int]) -> None:
        """Let the client own these rows, and share means of these classes."""
        slots = buffers.read_slots(self.state, client)
        before = slots.encode()
        buffers.replace(self.state, client, slots, rows, self.sizes)
        if (after := slots._replace(classes=classes).encode()) != before:
            self.state.set({slots_key(client): after})
        self._numbers[0] += 1


def decode_head(task: Task, kept: bytes | None) -> tuple[buffers.Sizes, bytes]:
    """Return the head's numbers and its stamp; those of an empty board if there is none."""
    size = 8 * (1 + count_buffers(task))
    kept = bytes(size) if kept is None else kept
    with decoding("head"):
        if len(kept) not in (size, size + STAMP_BYTES):
            raise ValueError(f"{len(kept)} bytes that make no sense")
        numbers = np.frombuffer(kept[:size], np.int64).copy()
        if numbers.min() < 0:
            raise ValueError("a negative size")
        return numbers, kept[size:]


def encode_member(member: BoardMember) -> bytes:
    """Encode a client's row as JSON."""
    samples = [list(each) for each in member.samples.items()]
    return f"[{member.round}, {member.published!r}, {member.bytes}, {samples}]".encode()


def decode_member(key: str, name: str, row: bytes) -> BoardMember:
    """Return what a board knows of a client, from the client's row."""
    with decoding(key):
        round, published, size, samples = json.loads(row)
        return BoardMember(name, int(round), float(published), int(size), dict(samples))


def means_buffer(task: Task, label: int) -> int:
    """Return the buffer of a class's means."""
    return task.rows + label


def members_buffer(task: Task) -> int:
    """Return the buffer of the clients themselves: the last one."""
    return 2 * task.rows


def count_buffers(task: Task) -> int:
    """Return the number of buffers."""
    return members_buffer(task) + 1


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


def release_key(client: str) -> str:
    """Return the key of a client's release."""
    return f"release/{client}"
