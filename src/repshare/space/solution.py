"""The solution of a total: the classifier that it makes, and what a client's own step needs of it."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.sharing.parts import SHRINKAGES, Part
from repshare.sharing.representations import Floats
from repshare.space.model import Linear

START = 1e-4  # ρ / n before anyone knows n: close to what votes come to with a thousand samples
UNIT = 0.03  # ρ that weights are scaled to before they are shared: that bounds them by 3 α for every elected ρ
ROUNDED = 0.02  # by how much fp16 may change a shrinkage
FEWEST = 0.01  # τ is at least this share of d, also where all vectors are alike


class SolutionKey(NamedTuple):
    """All that a client's solution depends on, besides the total."""

    samples: int  # of all clients, with this one's
    fixed: float | None  # ρ / n, where it is not voted on
    testing: bool = False  # whether the classifier is to be used as it is; else this client is about to improve it


class Solution(NamedTuple):
    """A client's knowledge of all samples: from the total, or from its own samples alone."""

    samples: int  # n, with this client's
    shrinkage: float | None  # ρ by vote; None: there has been none
    wanted: float  # ρ to solve for, by vote or not
    unit: float  # ρ that shared weights are scaled for: UNIT after a vote
    scale: float  # ρ τ of `wanted`
    used: float  # ρ τ that the total in hand was made for
    length: float  # of the centre, squared
    linear: Linear


class Total:
    """All clients' averages, with the solutions that were asked for: clients that share a total share these."""

    def __init__(self, part: Part) -> None:
        self.part, self.samples = part, part.samples
        self._solutions: dict[SolutionKey, Solution] = {}

    def solution(self, query: SolutionKey) -> Solution:
        """Solve for this client, once. Solutions for the same ρ share one classifier."""
        if query not in self._solutions:
            made = solve(self.part, query)
            for other in self._solutions.values():
                if other.used == made.used:
                    made = made._replace(linear=other.linear)
            self._solutions[query] = made
        return self._solutions[query]


def solve(total: Part, query: SolutionKey) -> Solution:
    """Elect ρ, where it is not fixed, and make the classifier of a total."""
    if query.fixed is not None:
        fixed = query.fixed * query.samples
        return _solve(total, query.samples, fixed, fixed, fixed, fixed)
    wanted = SHRINKAGES[elect(*_count_votes(total))]
    return _solve(total, query.samples, wanted, wanted, UNIT, _reconcile(total, query, wanted))


def solve_own(own: Part, query: SolutionKey, vote: float | None, *, alone: bool) -> Solution:
    """Solve a client's own part, while nobody else has shared any; `vote`: ρ that it was made for."""
    if alone or vote is not None or query.fixed is not None:
        return solve(own, query)
    wanted = START * query.samples
    return _solve(own, query.samples, None, wanted, wanted, wanted)


def _solve(total: Part, samples: int, vote: float | None, wanted: float, unit: float, used: float) -> Solution:
    dimension = len(total.centre)
    mean, shares = total.mean_weight, total.shares if total.weighted is None else total.weighted
    centre: Floats = np.array(total.centre / np.float32(mean), np.float32)  # a copy: products depend on its alignment
    length = square_length(centre)
    spread = max(dimension - length, FEWEST * dimension) * mean  # τ: all are √d long
    weights = total.vectors.astype(np.float64) - total.weights.astype(np.float64)[:, None] * centre.astype(np.float64)
    weights *= total.samples / (used * spread)
    linear = Linear(weights.astype(np.float32), centre, np.array(shares / np.float32(mean), np.float32))
    return Solution(samples, vote, wanted, unit, wanted * spread, used * spread, length, linear)


def _reconcile(total: Part, query: SolutionKey, wanted: float) -> float:
    """Choose the ρ to scale a total by, some of whose parts may be first releases.

    First releases alone are an average of clients' own classifiers, and are read as such. Among others, they count no
    more than that: a W that is too small does no harm.
    """
    before = START * total.first * total.samples
    if total.first > 1 - ROUNDED:
        return before if query.testing else max(wanted, before)
    return UNIT if total.first < ROUNDED else max(UNIT, before)


def _count_votes(total: Part) -> tuple[NDArray[np.floating], float]:
    """Count the weighted shares of right samples by candidate, and how many samples of equal weight tell as much."""
    voters = total.samples * (1 - total.repeated)
    if total.weighted is None:
        return total.hits.sum(axis=0), voters
    weights = total.weighted / np.maximum(total.shares, np.float32(1 / total.samples))  # (C,)  of a class's samples
    mean = total.mean_weight
    return weights @ total.hits / mean, voters * mean**2 / max(float(weights @ total.weighted), mean**2)


def elect(shares: NDArray[np.floating], voters: float) -> int:
    """Elect the largest shrinkage whose hits are not clearly below the best: (candidates,) shares of all voters."""
    most = float(shares.max())
    error = math.sqrt(max(most * (1 - most), 0.0) / max(voters, 1)) / 2  # standard error of such a difference, roughly
    return int(np.flatnonzero(shares >= most - error)[-1])


def square_length(vector: Floats) -> float:
    """The square of a vector's length, in fp64."""
    return float(np.square(vector.astype(np.float64)).sum())
