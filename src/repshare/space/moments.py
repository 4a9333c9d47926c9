"""A client's step with matrices of d × d, where it has more samples than vectors have numbers; and what fits memory."""

from pathlib import Path

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from repshare.errors import ConfigError
from repshare.measures import Doubles
from repshare.sharing.representations import Floats
from repshare.space.solution import Solution

FEW = 4000  # samples: up to so many, inner products of all pairs are at hand in any space
ROWS = 4096  # samples that are multiplied at a time
MATRICES = 3  # in fp64 that a step has at once
MEMORY = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")


class Moments:
    """Sums of a client's vectors and of their products, in place of inner products of all pairs of samples."""

    def __init__(self, vectors: Floats, weights: Doubles | None) -> None:
        """Sum up vectors (n, d), each as often as its weight (n,) says; None: once."""
        ones = np.ones(len(vectors)) if weights is None else weights
        self.vectors, self.roots, self.count = vectors, np.sqrt(ones)[:, None], float(ones.sum())
        self.sums = vectors.sum(axis=0, dtype=np.float64) if weights is None else weights @ vectors
        self.products = np.zeros((vectors.shape[1],) * 2)  # (d, d)
        for start in range(0, len(vectors), ROWS):
            rows = vectors[start : start + ROWS] * self.roots[start : start + ROWS]
            self.products += rows.T @ rows
        self._factor: tuple[tuple[float, float], Doubles] | None = None

    def solve(self, view: Solution, right: Doubles) -> Doubles:
        """Solve (I + c Ψ Ψᵀ) x = right (n, C): x = right − c Ψ (I + c ΨᵀΨ)⁻¹ Ψᵀ right.

        A row of Ψ is a centred vector times the root of its sample's weight.
        """
        count, centre = len(self.vectors), view.linear.centre.astype(np.float64)
        weight = view.samples / count / view.scale
        key = weight, view.length
        if self._factor is None or self._factor[0] != key:
            beside = np.outer(self.sums, centre)
            matrix = self.products - beside
            matrix -= beside.T
            matrix += self.count * np.outer(centre, centre)
            matrix *= weight
            matrix[np.diag_indices_from(matrix)] += 1.0
            self._factor = key, cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)[0]
        weighed = self.roots * right
        across = -np.outer(centre, weighed.sum(axis=0))  # Ψᵀ right (d, C)
        places = range(0, count, ROWS)
        for start in places:
            across += self.vectors[start : start + ROWS].astype(np.float64).T @ weighed[start : start + ROWS]
        inner = weight * cho_solve((self._factor[1], True), across, check_finite=False)
        solved = right + self.roots * (centre @ inner)
        for start in places:
            back = self.vectors[start : start + ROWS].astype(np.float64) @ inner
            solved[start : start + ROWS] -= self.roots[start : start + ROWS] * back
        return np.asarray(solved)


def suits_moments(samples: int, dimension: int) -> bool:
    """Whether matrices of d × d are the smaller ones, where it matters."""
    return samples > max(dimension, FEW)


def check_room(samples: int, dimension: int) -> None:
    """Raise ConfigError if a step's matrices do not fit the memory that is free."""
    edge = dimension if suits_moments(samples, dimension) else samples
    needed, free = MATRICES * 8 * edge**2, find_free_bytes()
    if free is not None and needed > free:
        raise ConfigError(
            f"{samples:,} samples of {dimension:,} numbers need {needed / 1e9:.1f} GB for matrices of {edge:,} × "
            f"{edge:,}, and {free / 1e9:.1f} GB are free: take fewer samples, or a space of fewer numbers than samples"
        )


def find_free_bytes() -> int | None:
    """The memory that this process can still have; None where the system does not tell."""
    try:
        told = dict(line.split(":") for line in MEMORY.read_text().splitlines())
        free = 1024 * int(told["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return None
    try:
        most, used = (int(path.read_text()) for path in GROUP)
    except (OSError, ValueError):  # no group, or one without a bound
        return free
    return min(free, most - used)
