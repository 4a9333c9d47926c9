"""Numbered buffers of rows, each row owned by a client, within one transaction of a store.

Replacing a client's rows, removing them and drawing some at random cost the same however many there are: every client
knows the slots it owns, and a slot that becomes free is filled with the buffer's last row.
"""

import random
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.errors import Damaged
from repshare.stores import Transaction, decoding

Rows = Mapping[int, Sequence[bytes]]
"""A client's rows: buffer -> the contents of its rows."""
Sizes = NDArray[np.int64]
"""The number of rows in each buffer."""


class Slots(NamedTuple):
    """A client's slots, by buffer, and the classes of which it shares means. Its key begins with `place/`."""

    owned: dict[int, list[int]]
    classes: list[int]

    def encode(self) -> bytes:
        """Encode: how many numbers follow; how many classes, which; and for each buffer its number and its slots."""
        numbers = [len(self.classes), *self.classes]
        for buffer, slots in self.owned.items():
            numbers += [buffer, len(slots), *slots]
        return struct.pack(f"<{1 + len(numbers)}q", len(numbers), *numbers)

    def move(self, buffer: int, old: int, new: int) -> None:
        """Own the new slot instead of the old one."""
        slots = self.owned[buffer]
        slots[slots.index(old)] = new

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(map(len, self.owned.values()))


def decode_slots(kept: bytes | None) -> Slots:
    """Return a client's slots; an unknown client owns none. Raises ValueError or struct.error if they are damaged."""
    if kept is None:
        return Slots({}, [])
    length, shared, *numbers = struct.unpack(f"<{len(kept) // 8}q", kept)
    slots, at = dict[int, list[int]](), shared
    while 0 <= at < len(numbers) - 1:
        buffer, size = numbers[at : at + 2]
        slots[buffer] = numbers[at + 2 : at + 2 + size]
        at += 2 + size
    if not 0 <= shared <= at == len(numbers) == length - 1 or any(slot < 0 for own in slots.values() for slot in own):
        raise ValueError("slots and classes do not fit")
    return Slots(slots, numbers[:shared])


def read_slots(state: Transaction, client: str) -> Slots:
    """Return a client's slots."""
    key = slots_key(client)
    (kept,) = state.get([key])
    with decoding(key):
        return decode_slots(kept)


def replace(state: Transaction, client: str, slots: Slots, rows: Rows, sizes: Sizes) -> None:
    """Let the client own these rows and no others. Changes `sizes` and `slots`, which the caller keeps."""
    owners = {client: slots}  # this client, and others whose rows move
    for buffer in sorted({*slots.owned, *rows}):
        own, wanted = slots.owned.setdefault(buffer, []), len(rows.get(buffer, ()))
        while len(own) > wanted:
            free, last = own.pop(), int(sizes[buffer]) - 1
            if not 0 <= free <= last:
                raise Damaged(slots_key(client), f"slot {free} of a buffer of {last + 1} rows")
            sizes[buffer] = last
            _move_last(state, owners, buffer, last, free)
        while len(own) < wanted:
            own.append(int(sizes[buffer]))
            sizes[buffer] += 1
        if not own:
            del slots.owned[buffer]
    items = {slots_key(owner): other.encode() for owner, other in owners.items() if owner != client}
    for buffer, own in slots.owned.items():
        items |= {row_key(buffer, slot): encode_row(client, row) for slot, row in zip(own, rows[buffer], strict=True)}
    state.set(items)


def _move_last(state: Transaction, owners: dict[str, Slots], buffer: int, last: int, free: int) -> None:
    """Move a buffer's last row to a slot that has become free; the slots of its owner change."""
    ((owner, contents),) = read(state, [(buffer, last)])
    state.delete([row_key(buffer, last)])
    if free == last:
        return
    state.set({row_key(buffer, free): encode_row(owner, contents)})
    if owner not in owners:
        owners[owner] = read_slots(state, owner)
    with decoding(slots_key(owner)):
        owners[owner].move(buffer, last, free)


def draw(own: Slots, buffer: int, size: int, wanted: int, rng: random.Random) -> list[int]:
    """Draw up to `wanted` different slots of a buffer, none of them this client's."""
    mine = set(own.owned.get(buffer, ()))
    drawn = rng.sample(range(size), min(size, wanted + len(mine)))
    return [slot for slot in drawn if slot not in mine][:wanted]


def read(state: Transaction, places: Sequence[tuple[int, int]]) -> list[tuple[str, bytes]]:
    """Return the owner's name and the contents of each (buffer, slot)."""
    keys = row_keys(places)
    return [read_row(key, row) for key, row in zip(keys, state.get(keys), strict=True)]


def read_row(key: str, row: bytes | None) -> tuple[str, bytes]:
    """Return a row's owner and contents."""
    owner, mark, contents = (row or b"").partition(b"\n")
    if not mark:
        raise Damaged(key, "the row is missing" if row is None else "it names no owner")
    with decoding(key):
        return owner.decode(), contents


def encode_row(owner: str, contents: bytes) -> bytes:
    """Encode a row."""
    return b"%s\n%s" % (owner.encode(), contents)


def read_ahead(state: Transaction, slots: Slots, sizes: Sizes) -> None:
    """Read at once what giving up all these slots will need: the last rows, and their owners' slots."""
    last = [
        (buffer, int(sizes[buffer]) - back) for buffer, own in slots.owned.items() for back in range(1, len(own) + 1)
    ]
    state.get([slots_key(owner) for owner, _ in read(state, last)])


def row_keys(places: Iterable[tuple[int, int]]) -> list[str]:
    """Return the key of each (buffer, slot)."""
    return [row_key(buffer, slot) for buffer, slot in places]


def row_key(buffer: int, slot: int) -> str:
    """Return the key of a row."""
    return f"row/{buffer}/{slot}"


def slots_key(client: str) -> str:
    """Return the key of a client's slots."""
    return f"place/{client}"
