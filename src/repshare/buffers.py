"""Numbered buffers of rows, each row owned by a client, within one transaction of a store.

Replacing a client's rows, removing them and drawing some at random cost the same however many there are: every client
knows the slots it owns, and a slot that becomes free is filled with the buffer's last row.
"""

import json
import math
import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.stores import Transaction

Rows = Mapping[int, Sequence[bytes]]
"""What a client owns: buffer -> the contents of its rows."""


class Place(NamedTuple):
    """Where a client's rows are, and what else must be known of it often."""

    queued: float  # when it last queued up to be forgotten (see `Board.expire`)
    slots: dict[int, list[int]]  # by buffer
    classes: list[int]  # of which it shares means

    def encode(self) -> bytes:
        """As bytes."""
        return json.dumps([self.queued, list(self.slots.items()), self.classes], separators=(",", ":")).encode()


def read_place(kept: bytes | None) -> Place:
    """A client's place; an unknown client owns nothing."""
    if kept is None:
        return Place(-math.inf, {}, [])
    queued, slots, classes = json.loads(kept)
    return Place(queued, dict(slots), classes)


def replace(state: Transaction, client: str, place: Place, rows: Rows, sizes: NDArray[np.int64]) -> bool:
    """Let the client own these rows and no others. Changes `sizes`, and `place` where True; the caller keeps them."""
    written: dict[str, bytes] = {}
    owner, moved = client.encode(), False
    for buffer in sorted({*place.slots, *rows}):
        own, wanted = place.slots.setdefault(buffer, []), rows.get(buffer, ())
        moved = moved or len(own) != len(wanted)
        while len(own) > len(wanted):
            _free(state, client, place, buffer, sizes)
        while len(own) < len(wanted):
            own.append(int(sizes[buffer]))
            sizes[buffer] += 1
        if not own:
            del place.slots[buffer]
        for slot, row in zip(own, wanted, strict=True):
            written[_key(buffer, slot)] = b"%s\n%s" % (owner, row)
    state.set(written)
    return moved


def draw(place: Place, buffer: int, size: int, wanted: int, rng: random.Random) -> list[int]:
    """Up to `wanted` different slots of a buffer, none of them in this place."""
    own = set(place.slots.get(buffer, ()))
    drawn = rng.sample(range(size), min(size, wanted + len(own)))
    return [slot for slot in drawn if slot not in own][:wanted]


def read(state: Transaction, slots: Sequence[tuple[int, int]]) -> list[tuple[str, bytes]]:
    """The owner and the contents of each (buffer, slot)."""
    found = state.get(keys_of(slots))
    return [_whose(row) for row in found if row is not None]


def keys_of(slots: Sequence[tuple[int, int]]) -> list[str]:
    """Under which the contents of each (buffer, slot) are kept."""
    return [_key(*slot) for slot in slots]


def _free(state: Transaction, client: str, place: Place, buffer: int, sizes: NDArray[np.int64]) -> None:
    """Give up the last of the client's slots; the buffer's last row moves there, and its owner learns of it."""
    free, last = place.slots[buffer].pop(), int(sizes[buffer]) - 1
    sizes[buffer] = last
    (row,) = state.get([_key(buffer, last)])
    state.delete([_key(buffer, last)])
    if free == last or row is None:
        return
    state.set({_key(buffer, free): row})
    owner, _ = _whose(row)
    if owner == client:
        _rename(place.slots[buffer], last, free)
        return
    (kept,) = state.get([place_key(owner)])
    other = read_place(kept)
    _rename(other.slots[buffer], last, free)
    state.set({place_key(owner): other.encode()})


def place_key(client: str) -> str:
    """Under which a client's place is kept."""
    return f"place/{client}"


def _rename(slots: list[int], old: int, new: int) -> None:
    slots[slots.index(old)] = new


def _key(buffer: int, slot: int) -> str:
    return f"row/{buffer}/{slot}"


def _whose(row: bytes) -> tuple[str, bytes]:
    client, _, contents = row.partition(b"\n")
    return client.decode(), contents
