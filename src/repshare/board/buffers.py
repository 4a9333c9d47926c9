"""Numbered buffers of rows, each row owned by a client, within one transaction of a store.

Replacing a client's rows, removing them and drawing some at random cost the same however many there are: every client
knows the slots it owns, and a slot that becomes free is filled with the buffer's last row.
"""

import math
import random
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.errors import Damaged
from repshare.stores import Transaction, decoding

IN_QUEUE = -1  # in place of a buffer's number: what follows is a number in the queue
Rows = Mapping[int, Sequence[bytes]]
"""A client's rows: buffer -> the contents of its rows."""


class ClientIndex(NamedTuple):
    """The slots of a client's rows, and what else is often needed of it. Its key begins with `place/`."""

    queued: float  # when it last joined the queue of releases that expire (see `Board.expire`)
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

    def move(self, buffer: int, old: int, new: int) -> None:
        """Own the new slot instead of the old one."""
        slots = self.slots[buffer]
        slots[slots.index(old)] = new


def decode_index(kept: bytes | None) -> ClientIndex:
    """Return a client's index; an unknown client owns nothing. Raises ValueError or struct.error if it is damaged."""
    if kept is None:
        return ClientIndex(-math.inf, {}, [])
    queued, shared, *numbers = struct.unpack(f"<d{len(kept) // 8 - 1}q", kept)
    slots, at = dict[int, list[int]](), shared
    while 0 <= at < len(numbers) - 1:
        buffer, size = numbers[at : at + 2]
        slots[buffer] = numbers[at + 2 : at + 2 + size]
        at += 2 + size
    if not 0 <= shared <= at == len(numbers) or any(slot < 0 for own in slots.values() for slot in own):
        raise ValueError("slots and classes do not fit")
    number = slots.pop(IN_QUEUE, [None])[0]
    return ClientIndex(queued, slots, numbers[:shared], number)


def replace(state: Transaction, client: str, index: ClientIndex, rows: Rows, sizes: NDArray[np.int64]) -> bool:
    """Let the client own these rows and no others. Changes `sizes`, and `index` if True; the caller keeps them."""
    slots, owner = index.slots, client.encode()
    moved = {buffer: len(own) for buffer, own in slots.items()} != {buffer: len(own) for buffer, own in rows.items()}
    if moved:
        _resize(state, client, index, rows, sizes)
    state.set(
        {
            row_key(buffer, slot): b"%s\n%s" % (owner, row)
            for buffer, own in slots.items()
            for slot, row in zip(own, rows[buffer], strict=True)
        }
    )
    return moved


def _resize(state: Transaction, client: str, index: ClientIndex, rows: Rows, sizes: NDArray[np.int64]) -> None:
    """Let the client own as many slots as it has rows."""
    indexes = {client: index}  # of this client, and of others whose rows move
    for buffer in sorted({*index.slots, *rows}):
        own, wanted = index.slots.setdefault(buffer, []), len(rows.get(buffer, ()))
        while len(own) > wanted:
            free, last = own.pop(), int(sizes[buffer]) - 1
            if not 0 <= free <= last:
                raise Damaged(index_key(client), f"slot {free} of a buffer of {last + 1} rows")
            sizes[buffer] = last
            _move_last(state, indexes, buffer, last, free)
        while len(own) < wanted:
            own.append(int(sizes[buffer]))
            sizes[buffer] += 1
        if not own:
            del index.slots[buffer]
    del indexes[client]
    state.set({index_key(owner): other.encode() for owner, other in indexes.items()})


def _move_last(state: Transaction, indexes: dict[str, ClientIndex], buffer: int, last: int, free: int) -> None:
    """Move a buffer's last row to a slot that has become free; the index of its owner changes."""
    ((owner_name, contents),) = read(state, [(buffer, last)])
    state.delete([row_key(buffer, last)])
    if free == last:
        return
    state.set({row_key(buffer, free): b"%s\n%s" % (owner_name, contents)})
    owner = owner_name.decode()
    with decoding(index_key(owner)):
        if owner not in indexes:
            indexes[owner] = decode_index(*state.get([index_key(owner)]))
        indexes[owner].move(buffer, last, free)


def draw(index: ClientIndex, buffer: int, size: int, wanted: int, rng: random.Random) -> list[int]:
    """Draw up to `wanted` different slots of a buffer, none of them this client's."""
    own = set(index.slots.get(buffer, ()))
    drawn = rng.sample(range(size), min(size, wanted + len(own)))
    return [slot for slot in drawn if slot not in own][:wanted]


def read(state: Transaction, slots: Sequence[tuple[int, int]]) -> list[tuple[bytes, bytes]]:
    """Return the owner's name and the contents of each (buffer, slot)."""
    keys = row_keys(slots)
    return [read_row(key, row) for key, row in zip(keys, state.get(keys), strict=True)]


def read_row(key: str, row: bytes | None) -> tuple[bytes, bytes]:
    """Return a row's owner and contents."""
    owner, mark, contents = (row or b"").partition(b"\n")
    if not mark:
        raise Damaged(key, "the row is missing" if row is None else "it names no owner")
    return owner, contents


def read_ahead(state: Transaction, indexes: Iterable[ClientIndex], sizes: NDArray[np.int64]) -> None:
    """Read at once what giving up all slots of these clients will need: the last rows, and their owners' indexes."""
    freed = Counter[int]()
    for index in indexes:
        freed.update({buffer: len(slots) for buffer, slots in index.slots.items()})
    last = [(buffer, int(sizes[buffer]) - back) for buffer, rows in freed.items() for back in range(1, rows + 1)]
    state.get([index_key(owner.decode()) for owner, _ in read(state, last)])


def row_keys(slots: Iterable[tuple[int, int]]) -> list[str]:
    """Return the key of each (buffer, slot)."""
    return [row_key(buffer, slot) for buffer, slot in slots]


def row_key(buffer: int, slot: int) -> str:
    """Return the key of a row."""
    return f"row/{buffer}/{slot}"


def index_key(client: str) -> str:
    """Return the key of a client's index."""
    return f"place/{client}"
