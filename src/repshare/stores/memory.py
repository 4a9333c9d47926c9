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

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Do work that only reads."""
        with self._alone:
            return work(_Reading(self._kept))

    def items(self) -> Mapping[str, bytes]:
        """Everything kept."""
        with self._alone:
            return dict(self._kept)

    def clear(self) -> None:
        """Forget everything."""
        with self._alone:
            self._kept.clear()


class _Reading:
    """A transaction that only reads."""

    def __init__(self, kept: Mapping[str, bytes]) -> None:
        self._find = kept.get

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """What stands under each of these keys."""
        return list(map(self._find, keys))

    def set(self, items: Mapping[str, bytes]) -> None:
        """Not here."""
        raise TypeError("this transaction only reads")

    def delete(self, keys: Iterable[str]) -> None:
        """Not here."""
        raise TypeError("this transaction only reads")


class MemoryDatabase:
    """Stores by name, in this process."""

    slow = False

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
    """A transaction that collects what is to be written, and reads nothing twice."""

    def __init__(self, read: Callable[[Sequence[str]], Sequence[bytes | None]]) -> None:
        self._read = read
        self._known: dict[str, bytes | None] = {}  # None: nothing there
        self.made: dict[str, bytes | None] = {}  # None: deleted

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """What stands under each of these keys."""
        known = self._known
        if unknown := list(dict.fromkeys(key for key in keys if key not in known)):
            known.update(zip(unknown, self._read(unknown), strict=True))
        return [known[key] for key in keys]

    def set(self, items: Mapping[str, bytes]) -> None:
        """Put each of these under its key."""
        self._known.update(items)
        self.made.update(items)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove what stands under these keys."""
        gone = dict.fromkeys(keys)
        self._known.update(gone)
        self.made.update(gone)
