"""Stores that live as long as the process."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from repshare.stores.store import Result, Transaction


class MemoryStore:
    """A dictionary, one transaction at a time."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}
        self._alone = threading.Lock()

    def transact(self, work: Callable[[Transaction], Result]) -> Result:
        """Do this work alone; its changes are kept when it ends without an error."""
        with self._alone:
            changes = Changes(lambda keys: [self._kept.get(key) for key in keys])
            result = work(changes)
            for key, value in changes.made.items():
                if value is None:
                    self._kept.pop(key, None)
                else:
                    self._kept[key] = value
            return result

    def items(self) -> Mapping[str, bytes]:
        """Everything kept."""
        with self._alone:
            return dict(self._kept)

    def clear(self) -> None:
        """Forget everything."""
        with self._alone:
            self._kept.clear()


class MemoryDatabase:
    """Stores by name, in this process."""

    def __init__(self) -> None:
        self._stores: dict[str, MemoryStore] = defaultdict(MemoryStore)

    def store(self, name: str) -> MemoryStore:
        """The store of this name."""
        return self._stores[name]

    def check(self) -> None:
        """Memory is always there."""

    def close(self) -> None:
        """Nothing to let go of."""


class Changes:
    """A transaction that collects what is to be written; what it has not written it reads from outside."""

    def __init__(self, read: Callable[[Sequence[str]], Sequence[bytes | None]]) -> None:
        self._read = read
        self.made: dict[str, bytes | None] = {}  # None: deleted

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """What stands under each of these keys."""
        if not self.made:
            return list(self._read(keys))
        unknown = [key for key in keys if key not in self.made]
        found = dict(zip(unknown, self._read(unknown), strict=True)) if unknown else {}
        return [self.made[key] if key in self.made else found[key] for key in keys]

    def set(self, items: Mapping[str, bytes]) -> None:
        """Put each of these under its key."""
        self.made.update(items)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove what stands under these keys."""
        self.made.update(dict.fromkeys(keys))
