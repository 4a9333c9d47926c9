"""A process's memory of its boards: totals, and the answers without observations, each of which serves many clients."""

import threading
from collections import OrderedDict
from collections.abc import Hashable

MOST_BYTES = 20_000_000  # of all boards of a process


class Cache:
    """Bytes, of at most `most_bytes` in all: what was used last stays.

    What belongs to a state of a board is kept under its stamp, which is drawn at random with every change. So nothing
    in here is ever out of date, whichever process wrote last, and whatever backup was put in place of what; and what is
    kept of a change that is not made in the end is never asked for.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._taken = most_bytes, 0
        self._kept: OrderedDict[Hashable, bytes] = OrderedDict()
        self._alone = threading.Lock()

    def get(self, key: Hashable) -> bytes | None:
        """Return what is kept under this key."""
        with self._alone:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: Hashable, made: bytes) -> bytes:
        """Keep this, in place of what was used longest ago; return it."""
        with self._alone:
            self._taken += len(made) - len(self._kept.pop(key, b""))
            self._kept[key] = made
            while self._taken > self._most:
                _, oldest = self._kept.popitem(last=False)
                self._taken -= len(oldest)
        return made

    def clear(self) -> None:
        """Forget everything."""
        with self._alone:
            self._kept.clear()
            self._taken = 0
