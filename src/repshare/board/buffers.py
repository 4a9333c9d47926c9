"""Numbered buffers of rows, each row owned by a client, within one transaction of a store.

Replacing a client's rows, removing them and drawing some at random cost the same however many there are: every client
knows the slots it owns, and a slot that becomes free is filled with the buffer's last row.
"""

import math
import random
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.errors import Damaged
from repshare.stores import Transaction, decoding

IN_QUEUE = -1  # in place of a buffer's number: what follows is a place in the queue
Rows = Mapping[int, Sequence[bytes]]
"""A client's rows: buffer -> the contents of its rows."""


class Place(NamedTuple):
    """The slots of a client's rows, and what else is often needed of it."""

    queued: float  # when it last queued up to be forgotten (see `Board.expire`)
    slots: dict[int, list[int]]  # by buffer
    classes: list[int]  # of which it shares means
    number: int | None = None  # in the queue; earlier versions did not write it down

    def encode(self) -> bytes:
        """Encode: how many classes, which, and then for each buffer its number, how many slots, and which."""
        numbers = [len(self.classes), *self.classes]
        for buffer, slots in self.slots.items():
            numbers += [buffer, len(slots), *slots]
        if self.number is not None:
            numbers += [IN_QUEUE, 1, self.number]
        return struct.pack(f"<d{len(numbers)}q", self.queued, *numbers)


def read_place(kept: bytes | None) -> Place:
    """Return a client's slots; an unknown client owns none. Raises ValueError or struct.error if it makes no sense."""
    if kept is None:
        return Place(-math.inf, {}, [])
    queued, shared, *numbers = struct.unpack(f"<d{len(kept) // 8 - 1}q", kept)
    slots, at = dict[int, list[int]](), shared
    while 0 <= at < len(numbers) - 1:
        buffer, size = numbers[at : at + 2]
        slots[buffer] = numbers[at + 2 : at + 2 + size]
        at += 2 + size
    if not 0 <= shared <= at == len(numbers) or any(slot < 0 for own in slots.values() for slot in own):
        raise ValueError("slots and classes do not fit")
    number = slots.pop(IN_QUEUE, [None])[0]
    return Place(queued, slots, numbers[:shared], number)


def replace(state: Transaction, client: str, place: Place, rows: Rows, sizes: NDArray[np.int64]) -> bool:
    """Let the client own these rows and no others. Changes `sizes`, and `place` where True; the caller keeps them."""
    slots, owner = place.slots, client.encode()
    moved = {buffer: len(own) for buffer, own in slots.items()} != {buffer: len(own) for buffer, own in rows.items()}
    if moved:
        _resize(state, client, place, rows, sizes)
    state.set(
        {
            f"row/{buffer}/{slot}": b"%s\n%s" % (owner, row)
            for buffer, own in slots.items()
            for slot, row in zip(own, rows[buffer], strict=True)
        }
    )
    return moved


def _resize(state: Transaction, client: str, place: Place, rows: Rows, sizes: NDArray[np.int64]) -> None:
    """Let the client own as many slots as it has rows."""
    others: dict[str, Place] = {}  # whose rows move
    for buffer in sorted({*place.slots, *rows}):
        own, wanted = place.slots.setdefault(buffer, []), len(rows.get(buffer, ()))
        while len(own) > wanted:
            _free(state, client, place, others, buffer, sizes)
        while len(own) < wanted:
            own.append(int(sizes[buffer]))
            sizes[buffer] += 1
        if not own:
            del place.slots[buffer]
    state.set({place_key(owner): other.encode() for owner, other in others.items()})


def draw(place: Place, buffer: int, size: int, wanted: int, rng: random.Random) -> list[int]:
    """Draw up to `wanted` different slots of a buffer, none of them this client's."""
    own = place.slots.get(buffer, ())
    drawn = rng.sample(range(size), min(size, wanted + len(own)))
    apart = set(own) if len(own) > 1 else own
    return [slot for slot in drawn if slot not in apart][:wanted]


def read(state: Transaction, slots: Sequence[tuple[int, int]]) -> list[tuple[bytes, bytes]]:
    """Return the owner's name and the contents of each (buffer, slot)."""
    keys = keys_of(slots)
    return [read_row(key, row) for key, row in zip(keys, state.get(keys), strict=True)]


def read_row(key: str, row: bytes | None) -> tuple[bytes, bytes]:
    """Return a row's owner and contents."""
    owner, mark, contents = (row or b"").partition(b"\n")
    if not mark:
        raise Damaged(key, "the row is missing" if row is None else "it names no owner")
    return owner, contents


def read_ahead(state: Transaction, places: Sequence[Place], sizes: NDArray[np.int64]) -> None:
    """Read at once what giving up all slots of these places will need: the last rows, and their owners' places."""
    freed = Counter[int]()
    for place in places:
        freed.update({buffer: len(slots) for buffer, slots in place.slots.items()})
    last = [(buffer, int(sizes[buffer]) - back) for buffer, rows in freed.items() for back in range(1, rows + 1)]
    state.get([place_key(owner.decode()) for owner, _ in read(state, last)])


def keys_of(slots: Sequence[tuple[int, int]]) -> list[str]:
    """Return the keys of the contents of each (buffer, slot)."""
    return [f"row/{buffer}/{slot}" for buffer, slot in slots]


def _free(
    state: Transaction, client: str, place: Place, others: dict[str, Place], buffer: int, sizes: NDArray[np.int64]
) -> None:
    """Give up the last of the client's slots; the buffer's last row moves there, and its owner's place changes."""
    free, last = place.slots[buffer].pop(), int(sizes[buffer]) - 1
    if not 0 <= free <= last:
        raise Damaged(place_key(client), f"slot {free} of a buffer of {last + 1} rows")
    sizes[buffer] = last
    ((owner_name, contents),) = read(state, [(buffer, last)])
    state.delete([_key(buffer, last)])
    if free == last:
        return
    owner = owner_name.decode()
    state.set({_key(buffer, free): b"%s\n%s" % (owner_name, contents)})
    if owner != client and owner not in others:
        (kept,) = state.get([place_key(owner)])
        with decoding(place_key(owner)):
            others[owner] = read_place(kept)
    with decoding(place_key(owner)):
        _rename((place if owner == client else others[owner]).slots[buffer], last, free)


def place_key(client: str) -> str:
    """Return the key of a client's slots."""
    return f"place/{client}"


def _rename(slots: list[int], old: int, new: int) -> None:
    slots[slots.index(old)] = new


def _key(buffer: int, slot: int) -> str:
    return f"row/{buffer}/{slot}"
