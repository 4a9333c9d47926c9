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

    def __init__(self, vectors: Floats) -> None:
        self.vectors, self.sums = vectors, vectors.sum(axis=0, dtype=np.float64)
        self.products = np.zeros((vectors.shape[1],) * 2)  # (d, d)
        for start in range(0, len(vectors), ROWS):
            rows = vectors[start : start + ROWS].astype(np.float64)
            self.products += rows.T @ rows
        self._factor: tuple[tuple[float, float], Doubles] | None = None

    def solve(self, view: Solution, right: Doubles) -> Doubles:
        """Solve (I + c Ψ Ψᵀ) x = right (n, C) for the centred vectors Ψ: x = right − c Ψ (I + c ΨᵀΨ)⁻¹ Ψᵀ right."""
        count, centre = len(self.vectors), view.linear.centre.astype(np.float64)
        weight = view.samples / count / view.scale
        key = weight, view.length
        if self._factor is None or self._factor[0] != key:
            beside = np.outer(self.sums, centre)
            matrix = self.products - beside
            matrix -= beside.T
            matrix += count * np.outer(centre, centre)
            matrix *= weight
            matrix[np.diag_indices_from(matrix)] += 1.0
            self._factor = key, cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)[0]
        across = -np.outer(centre, right.sum(axis=0))  # Ψᵀ right (d, C)
        places = range(0, count, ROWS)
        for start in places:
            across += self.vectors[start : start + ROWS].astype(np.float64).T @ right[start : start + ROWS]
        inner = weight * cho_solve((self._factor[1], True), across, check_finite=False)
        solved = right + centre @ inner
        for start in places:
            solved[start : start + ROWS] -= self.vectors[start : start + ROWS].astype(np.float64) @ inner
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
