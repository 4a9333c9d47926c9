"""Membership inference on releases: which of two samples was in them?

The attacker is the worst that differential privacy promises anything about: it knows the model, every other sample,
both candidates, the mechanism and its noise, and sees every round's release. Its score is the likelihood ratio, but
that means which were shortened are taken as they are, and the other samples of an observation as Gaussian.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.sharing.representations import Floats, Representations
from repshare_lab.audit.bounds import Worlds

FINEST = 1e-6  # of a sum's scale: what a float32 keeps when there is no noise

Releasing = Callable[[Floats], tuple[Representations, Representations]]
"""Makes one round's release, means and observations, of one class from its samples' representations (n, d)."""


class Case(NamedTuple):
    """One class, known to the last sample but one."""

    others: Floats  # (n − 1, d)
    out: Floats  # (d,)  the sample in one world
    within: Floats  # (d,)  the sample in the other

    def world(self, sample: Floats) -> Floats:
        """Return all samples of the class (n, d)."""
        return np.concatenate([sample[None], self.others])


def worst_case(size: int, dimension: int, bound: float) -> Case:
    """Return the two samples that clipping leaves farthest apart, among others that hide nothing."""
    sample = np.zeros(dimension, np.float32)
    sample[0] = bound
    return Case(np.zeros((size - 1, dimension), np.float32), -sample, sample)


def farthest(vectors: Floats) -> Case:
    """Return real representations of a class (n + 1, d): the two that are farthest apart are the candidates."""
    distances = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)
    one, other = np.unravel_index(distances.argmax(), distances.shape)
    others = np.delete(vectors, [one, other], axis=0)
    return Case(others, vectors[one], vectors[other])


def attack(case: Case, release: Releasing, deviation: float, rounds: int, trials: int) -> Worlds:
    """Return the scores of `trials` trials in each of the two worlds; `deviation` is of the noise on a sum."""
    scoring = Scoring(case, deviation)
    return Worlds(*(
        np.array([sum(scoring.score(*release(world)) for _ in range(rounds)) for _ in range(trials)])
        for world in (case.world(case.out), case.world(case.within))
    ))  # fmt: skip


class Scoring:
    """Log-likelihood ratios. What tells the worlds apart lies in one direction, so that a sum is one number."""

    def __init__(self, case: Case, deviation: float) -> None:
        apart = case.within.astype(np.float64) - case.out
        self.direction = apart / np.linalg.norm(apart)
        self.out, self.within = float(case.out @ self.direction), float(case.within @ self.direction)
        along = case.others @ self.direction  # (n − 1,)
        self.size, self.total = len(along) + 1, float(along.sum())
        self.mean, self.variance = float(along.mean()), float(along.var())
        self.deviation = max(deviation, FINEST * max(1.0, abs(self.within), abs(self.out)))

    def score(self, means: Representations, observations: Representations) -> float:
        """Return how much likelier one round's release is with the one sample than with the other."""
        seen = sum(self._of_all(value) for value in self._sums(means))
        for value, count in zip(self._sums(observations), observations.counts, strict=True):
            seen += self._of_some(value, int(count))
        return seen

    def _sums(self, rows: Representations) -> NDArray[np.float64]:
        return rows.vectors.astype(np.float64) @ self.direction * rows.counts

    def _of_all(self, value: float) -> float:
        rest = value - self.total
        return _normal(rest, self.within, self.deviation) - _normal(rest, self.out, self.deviation)

    def _of_some(self, value: float, count: int) -> float:
        """Score a sum of `count` samples drawn at random: the candidate may be among them. Others as if Gaussian."""
        if count >= self.size:
            return self._of_all(value)
        chance = count / self.size
        absent = math.log1p(-chance) + _normal(value, count * self.mean, self._spread(count))
        spread, rest = self._spread(count - 1), value - (count - 1) * self.mean
        with_each = (math.log(chance) + _normal(rest, sample, spread) for sample in (self.within, self.out))
        one, other = (float(np.logaddexp(absent, present)) for present in with_each)
        return one - other

    def _spread(self, drawn: int) -> float:
        """Return the standard deviation of noise and of the sum of `count` others, drawn without replacement."""
        left = 1 - (drawn - 1) / max(1, self.size - 2)
        return math.sqrt(self.deviation**2 + max(0.0, drawn * left * self.variance))


def _normal(value: float, mean: float, deviation: float) -> float:
    """Return the logarithm of a Gaussian's density, apart from what both worlds have in common."""
    return -0.5 * ((value - mean) / deviation) ** 2 - math.log(deviation)
