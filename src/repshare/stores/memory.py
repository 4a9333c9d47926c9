"""Stores that live as long as the process."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from repshare.stores.store import Database, Result, Store, Transaction

Scan = Callable[[str], Iterable[tuple[str, bytes]]]


class MemoryStore(Store):
    """A dictionary, one transaction at a time."""

    def __init__(self, name: str = "") -> None:
        """Create an empty store.

        Args:
            name: The name by which messages call the store.
        """
        self.name = name
        self._kept: dict[str, bytes] = {}
        self._alone = threading.Lock()

    def transact(self, work: Callable[[Transaction], Result]) -> Result:
        """Do this work alone; its changes are kept when it ends without an error."""
        with self._alone:
            changes = Changes(self._read, self._scan)
            result = work(changes)
            self._kept.update(changes.written())
            for key in changes.deleted():
                self._kept.pop(key, None)
            return result

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Do work that only reads."""
        with self._alone:
            return only_read(work, Changes(self._read, self._scan))

    def clear(self) -> None:
        """Forget everything."""
        with self._alone:
            self._kept.clear()

    def _read(self, keys: Sequence[str]) -> list[bytes | None]:
        return [self._kept.get(key) for key in keys]

    def _scan(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        return (each for each in self._kept.items() if each[0].startswith(prefix))


class MemoryDatabase(Database):
    """Stores by name, in this process."""

    remote = False

    def __init__(self) -> None:
        self._stores: dict[str, MemoryStore] = {}

    def store(self, name: str) -> MemoryStore:
        """Return the store of this name."""
        return self._stores.setdefault(name, MemoryStore(name))

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class Changes:
    """A transaction that collects what is to be written, and reads nothing twice."""

    def __init__(self, read: Callable[[Sequence[str]], Sequence[bytes | None]], scan: Scan = lambda prefix: ()) -> None:
        self._read, self._scan = read, scan
        self._known: dict[str, bytes | None] = {}  # None: nothing there
        self.made: dict[str, bytes | None] = {}  # None: deleted

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of these keys."""
        known = self._known
        if unknown := [key for key in dict.fromkeys(keys) if key not in known]:
            known.update(zip(unknown, self._read(unknown), strict=True))
        return [known[key] for key in keys]

    def set(self, items: Mapping[str, bytes]) -> None:
        """Put each of these under its key."""
        self._known.update(items)
        self.made.update(items)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove these keys and their values."""
        gone = dict.fromkeys(keys)
        self._known.update(gone)
        self.made.update(gone)

    def written(self) -> list[tuple[str, bytes]]:
        """Return each key that was set, and its value."""
        return [(key, value) for key, value in self.made.items() if value is not None]

    def deleted(self) -> list[str]:
        """Return the keys that were deleted."""
        return [key for key, value in self.made.items() if value is None]

    def scan(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield everything whose key begins with this."""
        for key, kept in self._scan(prefix):
            if key not in self.made:
                yield key, kept
        for key, value in self.made.items():
            if value is not None and key.startswith(prefix):
                yield key, value


def only_read(work: Callable[[Transaction], Result], changes: Changes) -> Result:
    """Do work that must not write."""
    result = work(changes)
    if changes.made:
        raise TypeError("this transaction only reads")
    return result
