"""Bounds on ε that an attacker's scores in two worlds prove.

(ε, δ)-differential privacy promises of every test between two data sets that differ in one sample:
true positives ≤ e^ε · false positives + δ. A test that does better proves that ε was larger. Rates are counted in
trials, so each is taken at the end of its Clopper–Pearson interval that is worse for the attacker.
"""

import math
from typing import NamedTuple

import dp_accounting
import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE = 0.95
MOST_THRESHOLDS = 4000  # tried on the first half of the trials

Scores = NDArray[np.float64]


class Worlds(NamedTuple):
    """An attacker's score in each trial; high where the sample seems to be in the data."""

    without: Scores
    within: Scores


class Judgement(NamedTuple):
    """The result of an attack."""

    auc: float
    """The chance that a score with the sample is above one without: 0.5 for a guess."""
    tpr: float
    """True positives at 1 % false positives."""
    proved: float
    """ε is at least this, whatever the mechanism is (with 95 % confidence)."""
    gaussian: tuple[float, float]
    """95 % interval of ε if the mechanism is Gaussian: sharper, since one point fixes its whole curve."""


def judge(worlds: Worlds, delta: float) -> Judgement:
    """The attack's figures, and the bounds on ε that these scores prove."""
    return Judgement(
        area(worlds), true_positives(worlds), least_epsilon(worlds, delta), gaussian_epsilon(worlds, delta)
    )


def area(worlds: Worlds) -> float:
    """Return the area under the curve of true against false positives; ties count half."""
    below = stats.mannwhitneyu(worlds.within, worlds.without).statistic
    return float(below / (len(worlds.within) * len(worlds.without)))


def true_positives(worlds: Worlds, false_positives: float = 0.01) -> float:
    """Return the share of true positives when at most this share is false."""
    allowed = math.floor(false_positives * len(worlds.without))
    threshold = np.sort(worlds.without)[::-1][allowed]
    return float((worlds.within > threshold).mean())


def least_epsilon(worlds: Worlds, delta: float) -> float:
    """Return the largest ε that the second half of the trials disproves, by the test that was best in the first.

    A test says "with" above a threshold, or "without" below one: the promise is the same for both worlds.
    """
    first, second = (Worlds(*(scores[part::2] for scores in worlds)) for part in (0, 1))
    found = []
    for turn in (lambda each: each, lambda each: Worlds(-each.within, -each.without)):
        thresholds = np.unique(np.concatenate(turn(first)))
        thresholds = thresholds[:: -(-len(thresholds) // MOST_THRESHOLDS)]
        proofs = _proofs(turn(first), thresholds, delta)
        best = thresholds[proofs.argmax()]
        found.append((proofs.max(), float(_proofs(turn(second), np.array([best]), delta)[0])))
    return max(0.0, max(found)[1])


def gaussian_epsilon(worlds: Worlds, delta: float) -> tuple[float, float]:
    """Return the ε of the Gaussian mechanisms that these scores leave possible.

    A Gaussian mechanism tells two worlds apart as well as N(0, 1) from N(μ, 1), so that one threshold gives μ.
    """
    threshold, tail = np.atleast_1d(np.median(np.concatenate(worlds))), (1 - CONFIDENCE) / 4
    (low_false, high_false), (low_true, high_true) = (_rates(scores, threshold, tail) for scores in worlds)
    least = float((stats.norm.ppf(low_true) - stats.norm.ppf(high_false))[0])
    most = float((stats.norm.ppf(high_true) - stats.norm.ppf(low_false))[0])
    return _epsilon(least, delta), _epsilon(most, delta)


def _proofs(worlds: Worlds, thresholds: Scores, delta: float) -> Scores:
    """Return the ε that a test with each of these thresholds disproves."""
    tail = (1 - CONFIDENCE) / 2  # for each of the two rates: both then hold together
    false, true = _rates(worlds.without, thresholds, tail)[1], _rates(worlds.within, thresholds, tail)[0]
    return np.asarray(np.log(np.maximum(true - delta, 1e-300) / false))


def _rates(scores: Scores, thresholds: Scores, tail: float) -> tuple[Scores, Scores]:
    """Return the least and the greatest share of scores above each threshold that trials leave possible."""
    count = len(scores)
    above = count - np.searchsorted(np.sort(scores), thresholds, side="right")
    low = np.where(above == 0, 0.0, stats.beta.ppf(tail, above, count - above + 1))
    high = np.where(above == count, 1.0, stats.beta.ppf(1 - tail, above + 1, count - above))
    return low, high


def _epsilon(mu: float, delta: float) -> float:
    if mu <= 0:
        return 0.0
    return math.inf if math.isinf(mu) else float(dp_accounting.get_epsilon_gaussian(1 / mu, delta))
