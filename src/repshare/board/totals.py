"""Sums over the last release of every client: what global class means are made of."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.sharing import fixed_point
from repshare.sharing.representations import Representations
from repshare.sharing.task import Task
from repshare.stores import decoding

Numbers = NDArray[np.int64]


class Totals(NamedTuple):
    """Exact in any order (see `fixed_point`): counting a client in and out again leaves no trace."""

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
        counts = sign * means.counts
        rows = np.empty((len(counts), self.numbers.shape[1]), np.int64)
        rows[:, -3], rows[:, -2], rows[:, -1] = counts if weighted else sign, counts, sign
        rows[:, :-3] = fixed_point.weigh(means.vectors, rows[:, -3:-2])
        self.numbers[means.labels] += rows

    def overflow(self, longest: float) -> bool:
        """Return whether the sums are so large that adding is no longer safe; no mean is longer than `longest`."""
        return not fixed_point.fits(longest, int(self.weights.max(initial=0))) and fixed_point.overflows(self.vectors)

    def means(self, among: Sequence[int]) -> Representations:
        """Return the mean of each of these classes."""
        labels = np.array(among, np.int64)
        rows = self.numbers if len(among) == len(self.numbers) else self.numbers[labels]
        vectors = fixed_point.mean(rows[:, :-3], rows[:, -3:-2])
        return Representations(vectors.astype(np.float32), labels, rows[:, -2])

    def copy(self) -> "Totals":
        """Return totals that can be changed apart from these."""
        return Totals(self.numbers.copy())

    def encode(self) -> bytes:
        """Encode as bytes."""
        return self.numbers.tobytes()


def shape_of(task: Task) -> tuple[int, int]:
    """Return the rows and columns of a task's totals."""
    return task.rows, task.columns + 3


def read_totals(kept: bytes | None, task: Task) -> Totals:
    """Return totals from bytes; those of no clients, if there are none."""
    shape = shape_of(task)
    if kept is None:
        return Totals(np.zeros(shape, np.int64))
    with decoding("totals"):
        return Totals(np.frombuffer(kept, np.int64).reshape(shape).copy())
