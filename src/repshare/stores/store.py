"""The promise of a store."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar, cast

from repshare.errors import Damaged, StoreError

Result = TypeVar("Result")
Kept = bytes | Damaged | None
"""The value of a key: one that was written, one that is not what was written, or nothing."""


class Transaction(Protocol):
    """Reads see the writes before them; nothing is kept unless the work ends well."""

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of these keys. Raises Damaged if one of them is not what was written."""

    def set(self, items: Mapping[str, bytes]) -> None:
        """Put each of these under its key."""

    def delete(self, keys: Iterable[str]) -> None:
        """Remove these keys and their values."""

    def scan(self, prefix: str) -> Iterator[tuple[str, bytes | Damaged]]:
        """Yield everything whose key begins with this; nothing of it stays in memory. Change nothing meanwhile."""


class Store(Protocol):
    """Opaque bytes under keys."""

    name: str
    """As it was asked for."""

    def transact(self, work: Callable[[Transaction], Result]) -> Result:
        """Do this work alone, all of it or nothing, durable on return; begin it again if another came in between."""

    def prepare(self, work: Callable[[Transaction], Result]) -> Callable[[], Result]:
        """Do this work without waiting; what is returned must be called, by any thread, to keep it, and returns then.

        Raises StoreError where that is impossible now. No other change can be made in between.
        """
        raise StoreError("this store cannot work without waiting")

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Do work that only reads: on one state, and, where possible, without waiting for others that write."""

    def glance(self, work: Callable[[Transaction], Result]) -> Result:
        """Do work that reads a little, without waiting for others. Raises StoreError where that is impossible now."""
        return self.read(work)

    def items(self) -> dict[str, bytes]:
        """Return everything kept. Raises Damaged if one of the values is not what was written."""
        return self.read(lambda state: {key: sound(kept) for key, kept in state.scan("")})

    def clear(self) -> None:
        """Forget everything."""


class Database(Protocol):
    """Stores by name. Raises StoreError when it is unavailable or cannot write.

    A change that was under way is then made or not, but never in part: over a network, an answer can get lost.
    """

    slow: bool
    """It waits for more than this processor: better asked in batches, from a separate thread."""

    near: bool
    """A short read takes less time than asking a thread to do it."""

    def store(self, name: str) -> Store:
        """Return the store of this name; it need not exist before."""

    def check(self) -> None:
        """Write something and read it back."""
        store, something = self.store("check"), os.urandom(8)  # a store may not write what is there already
        store.transact(lambda state: state.set({"alive": something}))
        if store.read(lambda state: state.get(["alive"])) != [something]:
            raise StoreError("what was written to the store cannot be read back")

    def inspect(self) -> list[str]:
        """Return warnings about how safely it keeps data. Raises ConfigError if it should not be used at all."""
        return []

    def close(self) -> None:
        """Close files and connections."""


def get_each(state: Transaction, keys: Sequence[str]) -> list[Kept]:
    """Return the values of these keys, where a damaged one must not hide the others."""
    try:
        return list(state.get(keys))
    except Damaged as fault:
        return [fault] if len(keys) == 1 else [get_each(state, [key])[0] for key in keys]


def sound(kept: bytes | Damaged) -> bytes:
    """Return the value. Raises Damaged if it is not what was written."""
    if isinstance(kept, Damaged):
        raise kept
    return kept


def all_sound(found: list[Kept]) -> list[bytes | None]:
    """Return the values. Raises Damaged if one of them is not what was written."""
    for kept in found:
        if kept.__class__ is Damaged:
            raise kept
    return cast(list[bytes | None], found)
