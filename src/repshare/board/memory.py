"""A process's memory of its boards: totals and releases that it has read or written, and answers made of totals.

Every change of a board gives its head a new stamp, drawn at random. So whoever reads the stamp that it remembers knows
that the board is as it remembers, whichever process wrote last, and whatever backup was put in place of what.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

from repshare.board.totals import Totals
from repshare.sharing.representations import Release

MOST_BYTES = 20_000_000  # of all boards of a process
MOST_ANSWERS = 4  # of one board; those that differ are of other precisions, or for clients that are alone in a class
BESIDE_BYTES = 1000  # that a release takes besides its numbers

Answers = dict[Hashable, bytes]


class Releases:
    """The releases that came last, by client: as bytes, and decoded."""

    def __init__(self, most_bytes: int = MOST_BYTES * 3 // 4) -> None:
        self._most, self.size = most_bytes, 0
        self._kept: OrderedDict[str, tuple[bytes, Release]] = OrderedDict()

    def get(self, client: str) -> tuple[bytes, Release] | None:
        """Return a client's release, if it is remembered."""
        return self._kept.get(client)

    def put(self, client: str, body: bytes, release: Release) -> None:
        """Remember this one, and forget those that came before all others."""
        self._drop(client)
        self._kept[client] = body, release
        self.size += _size(body, release)
        while self.size > self._most:
            self._drop(next(iter(self._kept)))

    def _drop(self, client: str) -> None:
        if before := self._kept.pop(client, None):
            self.size -= _size(*before)


def _size(body: bytes, release: Release) -> int:
    return len(body) + release.means.vectors.nbytes + release.observations.vectors.nbytes + BESIDE_BYTES


class Remembered(NamedTuple):
    """A board as it was with this stamp. Nobody may change the totals."""

    stamp: bytes
    totals: Totals
    answers: Answers
    releases: Releases  # added to once a change is kept, which gives the board another stamp

    @property
    def size(self) -> int:
        """Bytes, or more: an answer takes at most half of what the totals do."""
        return (1 + MOST_ANSWERS // 2) * self.totals.numbers.nbytes + self.releases.size


class BoardMemory:
    """The boards that were used last, as many as `most_bytes` are enough for."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._taken = most_bytes, 0
        self._boards: OrderedDict[Hashable, tuple[Remembered, int]] = OrderedDict()  # with its size
        self._alone = threading.Lock()

    def find(self, board: Hashable) -> Remembered | None:
        """Return what is remembered of this board."""
        found, _ = self._boards.get(board, (None, 0))
        return found

    def keep(self, board: Hashable, found: Remembered) -> None:
        """Remember this of the board, and forget boards that were used before all others."""
        if not found.stamp:  # of boards whose contents follow from their inputs alone, and of earlier versions
            return
        with self._alone:
            self._drop(board)
            self._boards[board] = found, found.size
            self._taken += found.size
            while self._taken > self._most:
                self._drop(next(iter(self._boards)))

    def _drop(self, board: Hashable) -> None:
        _, size = self._boards.pop(board, (None, 0))
        self._taken -= size
