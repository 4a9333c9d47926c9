"""A process's memory of its boards: totals that it has read or written, and answers made of them.

Every change of a board gives its head a new stamp, drawn at random. So whoever reads the stamp that it remembers knows
that the board is as it remembers, whichever process wrote last, and whatever backup was put in place of what.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

from repshare.board.totals import Totals

MOST_BYTES = 20_000_000  # of all boards of a process
MOST_ANSWERS = 4  # of one board; those that differ are of other precisions, or for clients that are alone in a class

Answers = dict[Hashable, bytes]


class Remembered(NamedTuple):
    """A board as it was with this stamp. Nobody may change the totals."""

    stamp: bytes
    totals: Totals
    answers: Answers

    @property
    def size(self) -> int:
        """Bytes, or more: an answer takes at most half of what the totals do."""
        return (1 + MOST_ANSWERS // 2) * self.totals.numbers.nbytes


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
