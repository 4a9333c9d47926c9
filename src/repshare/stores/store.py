"""The promise of a store."""

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from repshare.errors import Damaged, Malformed, StoreError

Result = TypeVar("Result")
Given = ParamSpec("Given")

ABOUT_FORM = (Malformed, ValueError, KeyError, IndexError, TypeError, AttributeError, struct.error)


class Transaction(Protocol):
    """Reads see the writes before them; nothing is kept unless the work ends well."""

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """The values of these keys."""

    def set(self, items: Mapping[str, bytes]) -> None:
        """Put each of these under its key."""

    def delete(self, keys: Iterable[str]) -> None:
        """Remove these keys and their values."""

    def scan(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield each key with this prefix and its value, kept in memory one at a time. Write nothing meanwhile."""


class Store(Protocol):
    """Opaque bytes under keys."""

    name: str
    """The name that `Database.store` was given."""

    def transact(self, work: Callable[[Transaction], Result]) -> Result:
        """Run work in one atomic, durable transaction. It may run more than once: conflicts are retried."""

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Run work that only reads, on one state, and, where possible, without waiting for writers."""

    def items(self) -> dict[str, bytes]:
        """Everything kept."""
        return self.read(lambda state: dict(state.scan("")))

    def clear(self) -> None:
        """Forget everything."""


class Database(Protocol):
    """Stores by name. Raises StoreError when it is unavailable or cannot write.

    A change that was under way is then made or not, but never in part: over a network, an answer can get lost.
    """

    remote: bool = False
    """A read waits for a network."""
    path: Path | None = None
    """The file that all of it is in; None: none."""

    def store(self, name: str) -> Store:
        """The store of this name; it need not exist before."""

    def check(self) -> None:
        """Write something and read it back."""
        store, something = self.store("check"), os.urandom(8)  # a store may not write what is there already
        store.transact(lambda state: state.set({"alive": something}))
        if store.read(lambda state: state.get(["alive"])) != [something]:
            raise StoreError("what was written to the store cannot be read back")

    def find_faults(self) -> list[str]:
        """Faults that the database's own check of itself finds. Default: it has none."""
        return []

    def inspect(self) -> list[str]:
        """Warnings about how safely it keeps data. Raises ConfigError if it should not be used at all."""
        return []

    def close(self) -> None:
        """Close files and connections."""


class Changes:
    """A transaction that a store builds from two reads of its own. It collects writes in `made`, for the store to do.

    No key is read twice.
    """

    def __init__(
        self,
        read: Callable[[Sequence[str]], Sequence[bytes | None]],
        scan: Callable[[str], Iterable[tuple[str, bytes]]] = lambda prefix: (),
    ) -> None:
        self._read, self._scan = read, scan
        self._known: dict[str, bytes | None] = {}  # None: nothing there
        self.made: dict[str, bytes | None] = {}  # None: deleted

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """The values of these keys."""
        known = self._known
        if unknown := list(set(keys) - known.keys()):
            known.update(zip(unknown, self._read(unknown), strict=True))
        return list(map(known.__getitem__, keys))

    def set(self, items: Mapping[str, bytes]) -> None:
        """Put each of these under its key."""
        self._known.update(items)
        self.made.update(items)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove these keys and their values."""
        gone = dict.fromkeys(keys)
        self._known.update(gone)
        self.made.update(gone)

    def apply(self, state: Transaction) -> None:
        """Make these changes in another transaction."""
        kept, gone = dict[str, bytes](), list[str]()
        for key, value in self.made.items():
            if value is None:
                gone.append(key)
            else:
                kept[key] = value
        state.set(kept)
        if gone:
            state.delete(gone)

    def scan(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield everything whose key begins with this."""
        for key, kept in self._scan(prefix):
            if key not in self.made:
                yield key, kept
        for key, value in self.made.items():
            if value is not None and key.startswith(prefix):
                yield key, value


def only_read(work: Callable[[Transaction], Result], changes: Changes) -> Result:
    """Run work on these changes. Raises TypeError if it writes."""
    result = work(changes)
    if changes.made:
        raise TypeError("this transaction only reads")
    return result


def decoded(key: str, read: Callable[Given, Result], *given: Given.args, **more: Given.kwargs) -> Result:
    """Decode a stored value with `read`. Raises Damaged, with its key, where its form is wrong."""
    try:
        return read(*given, **more)
    except ABOUT_FORM as error:
        raise Damaged(key, f"{type(error).__name__}: {error}"[:200]) from error


def find_faults(state: Transaction, decode: Callable[[str, bytes], object]) -> dict[str, str]:
    """Values of a store that cannot be decoded: key -> fault."""
    faults = dict[str, str]()
    for key, kept in state.scan(""):
        try:
            decoded(key, decode, key, kept)
        except Damaged as fault:
            faults[key] = fault.reason
    return faults
