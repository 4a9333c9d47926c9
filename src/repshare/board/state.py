"""The state of a board in a store, for the length of one transaction.

head             version and the sizes of all buffers, as int64
totals           sums over clients, see `fixed_point`
release/CLIENT   its last release, as it came
place/CLIENT     its slots
row/BUFFER/SLOT  rows, each owned by a client. Buffers 0 to C−1: observations by class; 2C: the clients themselves. C to
                 2C−1 are empty: up to commit 38a6b14d, they had the class means that medians were made of

Replacing a client's rows, removing them and drawing some at random cost the same however many there are: every client
knows the slots it owns, and a slot that becomes free is filled with the buffer's last row. All of it is made of the
releases: `checking` compares it with them.
"""

import json
import random
import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import filterfalse, starmap
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.errors import Damaged, Refused
from repshare.sharing import wire
from repshare.sharing.fixed_point import Totals
from repshare.sharing.representations import Release, Representations
from repshare.sharing.task import Task
from repshare.stores import Transaction, decoded

STAMP_BYTES = 12  # after the numbers of a head, of relays up to commit 15ddcbb
MOST_COUNTS = 200_000  # of samples by class that are read at once, of all members together

Rows = Mapping[int, Sequence[bytes]]
"""A client's rows: buffer -> the contents of its rows."""
Place = tuple[int, int]
"""A buffer, and a slot in it."""


class BoardMember(NamedTuple):
    """A board's knowledge of a client: a row in the last buffer."""

    name: str
    round: int
    published: float  # seconds since 1970
    bytes: int
    samples: dict[int, int]  # by class, behind its means


class Slots(NamedTuple):
    """The slots that a client owns, by buffer, and the classes of which it shares means."""

    owned: dict[int, list[int]]
    classes: list[int]

    def encode(self) -> bytes:
        """Encode: how many numbers follow; how many classes, which; and for each buffer its number and its slots."""
        numbers = [len(self.classes), *self.classes]
        for buffer, slots in self.owned.items():
            numbers += [buffer, len(slots), *slots]
        return struct.pack(f"<{1 + len(numbers)}q", len(numbers), *numbers)

    @classmethod
    def decode(cls, kept: bytes | None) -> "Slots":
        """A client's slots; an unknown client owns none. Raises ValueError or struct.error."""
        if kept is None:
            return cls({}, [])
        length, shared, *numbers = struct.unpack(f"<{len(kept) // 8}q", kept)
        slots, at, least = dict[int, list[int]](), shared, 0
        while 0 <= at < len(numbers) - 1:
            buffer, size = numbers[at : at + 2]
            slots[buffer] = numbers[at + 2 : at + 2 + size]
            least = min([least, *slots[buffer]])
            at += 2 + size
        if not 0 <= shared <= at == len(numbers) == length - 1 or least < 0:
            raise ValueError("slots and classes do not fit")
        return cls(slots, numbers[:shared])


class BoardState:
    """A board's version, buffers and totals, and the slots of some clients, open for one transaction."""

    def __init__(
        self,
        task: Task,
        state: Transaction,
        clients: Sequence[str] = (),
        *,
        totals: bool = False,
        releases: bool = False,
    ) -> None:
        """Read the head and, at the same time, these clients' slots, and totals and their releases if wanted."""
        self.task, self.state = task, state
        keys = ["head", *map(slots_key, clients), *(map(release_key, clients) if releases else ())]
        kept = dict(zip(keys, state.get([*keys, *(["totals"] if totals else [])]), strict=False))
        self.numbers = decoded("head", decode_head, task, kept["head"])
        self.bodies, self.slots = dict[str, bytes | None](), dict[str, Slots]()
        for client in clients:
            self.slots[client] = decoded(slots_key(client), Slots.decode, kept[slots_key(client)])
            if releases:
                self.bodies[client] = kept[release_key(client)]
        self.version = int(self.numbers[0])  # grows with every change
        self._totals: Totals | None = None
        self._members = 2 * task.rows  # the buffer of clients

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Rows in each buffer."""
        return self.numbers[1:]

    @property
    def count(self) -> int:
        """The number of clients."""
        return int(self.numbers[-1])

    @property
    def totals(self) -> Totals:
        """The sums over all clients."""
        if self._totals is None:
            (known,), shape = self.state.get(["totals"]), (self.task.rows, self.task.columns)
            self._totals = decoded("totals", Totals.decode, known, *shape) if known else Totals.zeros(*shape)
        return self._totals

    def release(self, client: str) -> Release | None:
        """A client's last release, if it has any."""
        body = self.bodies[client]
        return None if body is None else decoded(release_key(client), wire.decode_release, body)

    def put(self, client: str, before: Release | None, release: Release, body: bytes, date: float) -> None:
        """Replace the client's last release by this one, and write what has changed."""
        totals = self._count(before, release)
        if totals.overflow(self.task.norm_bound):
            raise Refused(f"the task is full: {totals.weights.max()} samples of one class")
        rows = _rows_of(release.observations)
        samples = dict(zip(release.means.labels.tolist(), release.means.counts.tolist(), strict=True))
        rows[self._members] = [encode_member(BoardMember(client, release.round, date, len(body), samples))]
        self._write({**self._replace(client, rows, list(samples)), release_key(client): body})

    def remove(self, client: str, before: Release | None) -> None:
        """Forget the client and its last release, and write what has changed."""
        self._prefetch(self.slots[client])
        self._count(before, None)
        self._write(self._replace(client, {}, []))
        self.state.delete([release_key(client), slots_key(client)])

    def renew(self, client: str, date: float, slack: float) -> None:
        """Let the client's last release count as published on this date, if that is more than `slack` seconds later."""
        member = self.member(client)
        if member and not 0 <= date - member.published <= slack:
            (slot,) = self.slots[client].owned[self._members]
            row = _encode_row(client, encode_member(member._replace(published=date)))
            self.state.set({row_key(self._members, slot): row})

    def members(self, numbers: Iterable[int]) -> list[BoardMember]:
        """The clients in these slots of the last buffer."""
        places = [(self._members, number) for number in numbers]
        found = zip(places, self.rows(places), strict=True)
        return [decoded(row_key(*place), decode_member, name, row) for place, (name, row) in found]

    def first_members(self, limit: int) -> list[BoardMember]:
        """Up to `limit` clients; fewer, where the number of classes makes that too much."""
        return self.members(range(min(self.count, limit, max(1, MOST_COUNTS // self.task.rows))))

    def member(self, client: str) -> BoardMember | None:
        """This client, if it has published anything."""
        return next(iter(self.members(self.slots[client].owned.get(self._members, ()))), None)

    def rows(self, places: Sequence[Place]) -> list[tuple[str, bytes]]:
        """The owner's name and the contents of each of these rows."""
        keys = list(starmap(row_key, places))
        return list(map(read_row, keys, self.state.get(keys)))

    def draw(self, client: str, buffer: int, wanted: int, rng: random.Random) -> list[int]:
        """Draw up to `wanted` different slots of a buffer, none of them this client's."""
        mine, size = self.slots[client].owned.get(buffer, ()), int(self.numbers[1 + buffer])
        drawn = rng.sample(range(size), min(size, wanted + len(mine)))
        return list(filterfalse(mine.__contains__, drawn))[:wanted]

    def _count(self, old: Release | None, new: Release | None) -> Totals:
        """Count one release out and another one in; return the totals."""
        totals = self.totals
        for release, sign in ((old, -1), (new, +1)):
            if release:
                totals.add(release.means, sign, weighted=self.task.weighted)
        return totals

    def _replace(self, client: str, rows: Rows, classes: list[int]) -> dict[str, bytes]:
        """Let the client own these rows, and share means of these classes. Return the keys to write, with values."""
        slots, owners = self.slots[client], dict[str, Slots]()  # others, whose rows move
        before = slots.encode()
        for buffer in sorted({*slots.owned, *rows}):
            own, wanted = slots.owned.setdefault(buffer, []), len(rows.get(buffer, ()))
            while len(own) > wanted:
                free, last = own.pop(), int(self.sizes[buffer]) - 1
                if not 0 <= free <= last:
                    raise Damaged(slots_key(client), f"slot {free} of a buffer of {last + 1} rows")
                self.sizes[buffer] = last
                self._move_last({client: slots}, owners, buffer, last, free)
            while len(own) < wanted:
                own.append(int(self.sizes[buffer]))
                self.sizes[buffer] += 1
            if not own:
                del slots.owned[buffer]
        items = dict[str, bytes]()
        for owner, other in owners.items():
            items[slots_key(owner)] = other.encode()
        for buffer, own in slots.owned.items():
            for slot, row in zip(own, rows[buffer], strict=True):
                items[row_key(buffer, slot)] = _encode_row(client, row)
        if (after := slots._replace(classes=classes).encode()) != before:
            items[slots_key(client)] = after
        return items

    def _move_last(self, client: dict[str, Slots], owners: dict[str, Slots], buffer: int, last: int, free: int) -> None:
        """Move a buffer's last row to a slot that has become free; the slots of its owner change."""
        ((owner, contents),) = self.rows([(buffer, last)])
        self.state.delete([row_key(buffer, last)])
        if free == last:
            return
        self.state.set({row_key(buffer, free): _encode_row(owner, contents)})
        if owner not in client and owner not in owners:
            owners[owner] = read_slots(self.state, owner)
        owned = {**owners, **client}[owner].owned.get(buffer, [])
        if last not in owned:
            raise Damaged(slots_key(owner), f"it lacks slot {last} of buffer {buffer}")
        owned[owned.index(last)] = free

    def _prefetch(self, slots: Slots) -> None:
        """Read at once what giving up all these slots will need: the last rows, and their owners' slots."""
        owned = slots.owned.items()
        last = [(buffer, int(self.sizes[buffer]) - back) for buffer, own in owned for back in range(1, len(own) + 1)]
        self.state.get([slots_key(owner) for owner, _ in self.rows(last)])

    def _write(self, items: dict[str, bytes]) -> None:
        """Write these, the head and the totals, with a new version."""
        self.version += 1
        self.numbers[0] = self.version
        self.state.set({**items, "head": self.numbers.tobytes(), "totals": self.totals.numbers.tobytes()})


def decode_head(task: Task, kept: bytes | None) -> NDArray[np.int64]:
    """The numbers of a head; those of an empty board if there is none. Raises ValueError."""
    size = 8 * (2 + 2 * task.rows)
    kept = bytes(size) if kept is None else kept
    if len(kept) not in (size, size + STAMP_BYTES):
        raise ValueError(f"{len(kept)} bytes, not {size}: commit 15ddcbb is the last that upgrades earlier boards")
    numbers = np.frombuffer(kept[:size], np.int64).copy()
    if numbers.min() < 0:
        raise ValueError("a negative size")
    return numbers


def read_slots(state: Transaction, client: str) -> Slots:
    """A client's slots."""
    return decoded(slots_key(client), Slots.decode, state.get([slots_key(client)])[0])


def read_releases(state: Transaction, clients: Sequence[str]) -> list[Release]:
    """The last releases of these clients, where they have any."""
    keys = [release_key(client) for client in clients]
    found = zip(keys, state.get(keys), strict=True)
    return [decoded(key, wire.decode_release, body) for key, body in found if body is not None]


def read_row(key: str, row: bytes | None) -> tuple[str, bytes]:
    """A row's owner and contents."""
    owner, mark, contents = (row or b"").partition(b"\n")
    if not mark:
        raise Damaged(key, "the row is missing" if row is None else "it names no owner")
    try:
        return owner.decode(), contents
    except UnicodeDecodeError as error:
        raise Damaged(key, f"its owner is no text: {error}") from error


def decode_rows(rows: Iterable[bytes], labels: Sequence[int], columns: int) -> Representations:
    """Rows of these classes' buffers. Raises ValueError."""
    counts, vectors = list[int](), list[bytes]()
    for row in rows:
        count, _, vector = row.partition(b"\n")
        counts.append(int(count))
        vectors.append(vector)
    numbers = np.frombuffer(b"".join(vectors), np.float32).reshape(len(counts), columns)
    return Representations(numbers, np.array(labels, np.int64), np.array(counts, np.int64))


def encode_member(member: BoardMember) -> bytes:
    """Encode a client's row as JSON."""
    samples = [*map(list, member.samples.items())]
    return f"[{member.round}, {member.published!r}, {member.bytes}, {samples}]".encode()


def decode_member(name: str, row: bytes) -> BoardMember:
    """Decode a client's row. Raises ValueError or TypeError."""
    round, published, size, samples = json.loads(row)
    return BoardMember(name, int(round), float(published), int(size), dict(samples))


def release_key(client: str) -> str:
    """The key of a client's release."""
    return f"release/{client}"


def slots_key(client: str) -> str:
    """The key of a client's slots."""
    return f"place/{client}"


def row_key(buffer: int, slot: int) -> str:
    """The key of a row."""
    return f"row/{buffer}/{slot}"


def _rows_of(given: Representations) -> dict[int, list[bytes]]:
    """The stored form of these rows, by buffer."""
    rows = dict[int, list[bytes]]()
    for label, count, vector in zip(given.labels.tolist(), given.counts.tolist(), given.vectors, strict=True):
        rows.setdefault(label, []).append(b"%d\n%s" % (count, vector.tobytes()))
    return rows


def _encode_row(owner: str, contents: bytes) -> bytes:
    return b"%s\n%s" % (owner.encode(), contents)
