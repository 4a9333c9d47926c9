"""Stores that live as long as the process."""

import threading
from collections.abc import Callable, Iterator, Sequence

from repshare.stores.store import Changes, Database, Result, Store, Transaction, only_read


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
        """Run `work` while no other does; its changes are kept if it ends without an error."""
        with self._alone:
            changes = Changes(self._read, self._scan)
            result = work(changes)
            for key, value in changes.made.items():
                if value is None:
                    self._kept.pop(key, None)
                else:
                    self._kept[key] = value
            return result

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Run work that only reads."""
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

    def __init__(self) -> None:
        self._stores: dict[str, MemoryStore] = {}

    def store(self, name: str) -> MemoryStore:
        """The store of this name."""
        return self._stores.setdefault(name, MemoryStore(name))

    def close(self) -> None:
        """Do nothing: there is nothing to close."""
