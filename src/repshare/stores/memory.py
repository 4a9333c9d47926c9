"""A store that lives as long as the process."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class MemoryStore:
    """A dictionary, one transaction at a time."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}
        self._alone = threading.Lock()

    @contextmanager
    def transaction(self) -> Iterator["_Changes"]:
        """Begin one; its changes are kept when the block ends without an error."""
        with self._alone:
            changes = _Changes(self._kept)
            yield changes
            changes.keep()

    def items(self) -> Mapping[str, bytes]:
        """Everything kept."""
        with self._alone:
            return dict(self._kept)


class _Changes:
    def __init__(self, kept: dict[str, bytes]) -> None:
        self._kept = kept
        self._changed: dict[str, bytes | None] = {}

    def get(self, key: str) -> bytes | None:
        return self._changed[key] if key in self._changed else self._kept.get(key)

    def set(self, key: str, value: bytes) -> None:
        self._changed[key] = value

    def delete(self, key: str) -> None:
        self._changed[key] = None

    def keep(self) -> None:
        for key, value in self._changed.items():
            if value is None:
                self._kept.pop(key, None)
            else:
                self._kept[key] = value
