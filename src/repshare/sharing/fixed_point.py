"""Weighted sums that come out the same to the last bit, whatever the order of their terms.

Floating-point addition depends on order, so totals kept by adding and taking away would drift, and two relays (or
two numbers of workers) would disagree. Here a number is a whole multiple of 2⁻³² in an int64, and whole numbers add
exactly in any order.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from repshare.sharing.representations import Representations

STEP = 2.0**-32
LIMIT = 2.0**62  # in steps: half of what an int64 holds, so that one more addition cannot wrap
BESIDE = 3  # numbers of a class in totals next to its sum: weight, samples, clients


def fits(largest: float, weight: int) -> bool:
    """Whether `weight` numbers as large as `largest` can be summed."""
    return math.isfinite(largest) and abs(largest) / STEP * weight < LIMIT


def overflows(total: NDArray[np.int64]) -> bool:
    """Whether a sum is so large that adding to it is no longer safe."""
    return total.size > 0 and max(-int(total.min()), int(total.max())) > LIMIT


def weigh(values: NDArray[Any], weight: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """Values × weight, in steps. Ask `fits` first."""
    steps = np.array(values, np.float64)
    steps *= 1 / STEP  # in place: a product of arrays without dimensions would be none
    whole = np.rint(steps, out=steps).astype(np.int64)
    whole *= weight
    return whole


def mean(total: NDArray[np.int64], weight: int | NDArray[np.int64]) -> NDArray[np.float64]:
    """The mean behind a sum of weighed values whose weights add up to `weight`."""
    return total * STEP / weight


class Totals(NamedTuple):
    """Exact sums over the last release of every client: what global class means are made of."""

    numbers: NDArray[np.int64]  # (C, d + 3)  one array, because a class's row is changed and kept as a whole

    @classmethod
    def zeros(cls, rows: int, columns: int) -> Self:
        """The totals of no clients, for releases of this many rows and columns."""
        return cls(np.zeros((rows, columns + BESIDE), np.int64))

    @classmethod
    def decode(cls, kept: bytes, rows: int, columns: int) -> Self:
        """Totals from bytes. Raises ValueError."""
        return cls(np.frombuffer(kept, np.int64).reshape(rows, columns + BESIDE).copy())

    @property
    def vectors(self) -> NDArray[np.int64]:
        """Weighted sums of class means."""
        return self.numbers[:, :-BESIDE]  # (C, d)

    @property
    def weights(self) -> NDArray[np.int64]:
        """The weights' sums."""
        return self.numbers[:, -3]  # (C,)

    @property
    def samples(self) -> NDArray[np.int64]:
        """Samples behind the means."""
        return self.numbers[:, -2]  # (C,)

    @property
    def clients(self) -> NDArray[np.int64]:
        """Clients behind the means."""
        return self.numbers[:, -1]  # (C,)

    def add(self, means: Representations, sign: int, *, weighted: bool) -> None:
        """Count a client's class means in (+1) or out (−1)."""
        counts = sign * means.counts
        rows = np.empty((len(counts), self.numbers.shape[1]), np.int64)
        rows[:, -3], rows[:, -2], rows[:, -1] = counts if weighted else sign, counts, sign
        rows[:, :-BESIDE] = weigh(means.vectors, rows[:, -3:-2])
        self.numbers[means.labels] += rows

    def overflow(self, longest: float) -> bool:
        """Whether the sums are so large that adding is no longer safe; no mean is longer than `longest`."""
        return not fits(longest, int(self.numbers[:, -3].max(initial=0))) and overflows(self.vectors)

    def means(self, among: Sequence[int]) -> Representations:
        """The mean of each of these classes."""
        labels = np.array(among, np.int64)
        rows = self.numbers if len(among) == len(self.numbers) else self.numbers[labels]
        vectors = mean(rows[:, :-BESIDE], rows[:, -3:-2])
        return Representations(vectors.astype(np.float32), labels, rows[:, -2])
