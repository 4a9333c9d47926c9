"""Sums over the last release of every client: what global class means are made of."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare import sums
from repshare.representations import Representations, stack
from repshare.task import Task


class Totals(NamedTuple):
    """Exact in any order (see `sums`): counting a client in and out again leaves no trace."""

    vectors: NDArray[np.int64]  # (C, d)  weighted sums of class means
    weights: NDArray[np.int64]  # (C,)    the weights' sums
    samples: NDArray[np.int64]  # (C,)    samples behind the means
    clients: NDArray[np.int64]  # (C,)    clients behind the means

    def add(self, means: Representations, sign: int, *, weighted: bool) -> None:
        """Count a client's class means in (+1) or out (−1)."""
        weights = means.counts if weighted else np.ones_like(means.counts)  # (n,)
        self.vectors[means.labels] += sign * sums.weigh(means.vectors, weights[:, None])
        self.weights[means.labels] += sign * weights
        self.samples[means.labels] += sign * means.counts
        self.clients[means.labels] += sign

    def means(self, among: Iterable[int]) -> Representations:
        """The mean of each of these classes."""
        rows = [
            (sums.mean(self.vectors[c], int(self.weights[c])), int(c), int(self.samples[c])) for c in among
        ]  # (d,), class, count
        return stack(rows, self.vectors.shape[1])

    def encode(self) -> bytes:
        """As bytes."""
        return b"".join(part.tobytes() for part in self)


def read_totals(kept: bytes | None, task: Task) -> Totals:
    """Totals from bytes; of nobody, if there are none."""
    classes, dimension = task.classes, task.dimension
    numbers = np.zeros(classes * (dimension + 3), np.int64) if kept is None else np.frombuffer(kept, np.int64).copy()
    vectors, *counts = np.split(numbers, [classes * (dimension + part) for part in range(3)])
    return Totals(vectors.reshape(classes, dimension), *counts)
