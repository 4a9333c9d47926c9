"""Sums over the last release of every client: what global class means are made of."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare import sums
from repshare.representations import Representations
from repshare.task import Task

Numbers = NDArray[np.int64]


class Totals(NamedTuple):
    """Exact in any order (see `sums`): counting a client in and out again leaves no trace."""

    numbers: Numbers  # (C, d + 3)  one array, because a class's row is changed and kept as a whole

    @property
    def vectors(self) -> Numbers:
        """Weighted sums of class means."""
        return self.numbers[:, :-3]  # (C, d)

    @property
    def weights(self) -> Numbers:
        """The weights' sums."""
        return self.numbers[:, -3]  # (C,)

    @property
    def samples(self) -> Numbers:
        """Samples behind the means."""
        return self.numbers[:, -2]  # (C,)

    @property
    def clients(self) -> Numbers:
        """Clients behind the means."""
        return self.numbers[:, -1]  # (C,)

    def add(self, means: Representations, sign: int, *, weighted: bool) -> None:
        """Count a client's class means in (+1) or out (−1)."""
        rows = np.empty((len(means.labels), self.numbers.shape[1]), np.int64)
        counts = sign * means.counts  # (n,)
        rows[:, -3], rows[:, -2], rows[:, -1] = counts if weighted else sign, counts, sign
        rows[:, :-3] = sums.weigh(means.vectors, rows[:, -3, None])
        self.numbers[means.labels] += rows

    def means(self, among: Sequence[int]) -> Representations:
        """The mean of each of these classes."""
        labels = np.array(among, np.int64)
        rows = self.numbers[labels]
        vectors = sums.mean(rows[:, :-3], rows[:, -3, None])
        return Representations(vectors.astype(np.float32), labels, rows[:, -2])

    def encode(self) -> bytes:
        """As bytes."""
        return self.numbers.tobytes()


def read_totals(kept: bytes | None, task: Task) -> Totals:
    """Totals from bytes; of nobody, if there are none."""
    shape = task.classes, task.dimension + 3
    return Totals(np.zeros(shape, np.int64) if kept is None else np.frombuffer(kept, np.int64).reshape(shape).copy())
