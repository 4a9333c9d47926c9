"""From an attacker's scores in two worlds to what they prove.

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
CANDIDATES = 400  # thresholds that are tried on the first half of the trials

Scores = NDArray[np.float64]


class Worlds(NamedTuple):
    """An attacker's score in each trial; high where the sample seems to be in the data."""

    without: Scores
    within: Scores


class Verdict(NamedTuple):
    """What an attack came to."""

    auc: float
    """The chance that a score with the sample is above one without: 0.5 for a guess."""
    tpr: float
    """True positives at 1 % false positives."""
    epsilon: float
    """ε is at least this, whatever the mechanism is (with 95 % confidence)."""
    gaussian: tuple[float, float]
    """95 % interval of ε if the mechanism is Gaussian: sharper, since one point fixes its whole curve."""


def judge(worlds: Worlds, delta: float) -> Verdict:
    """What these scores prove."""
    return Verdict(area(worlds), true_positives(worlds), least_epsilon(worlds, delta), gaussian_epsilon(worlds, delta))


def area(worlds: Worlds) -> float:
    """The area under the curve of true against false positives; ties count half."""
    below = stats.mannwhitneyu(worlds.within, worlds.without).statistic
    return float(below / (len(worlds.within) * len(worlds.without)))


def true_positives(worlds: Worlds, false_positives: float = 0.01) -> float:
    """The share of true positives when at most this share is false."""
    allowed = math.floor(false_positives * len(worlds.without))
    threshold = np.sort(worlds.without)[::-1][allowed]
    return float((worlds.within > threshold).mean())


def least_epsilon(worlds: Worlds, delta: float) -> float:
    """The largest ε that the second half of the trials disproves, by the threshold that was best in the first."""
    first, second = (Worlds(*(scores[part::2] for scores in worlds)) for part in (0, 1))
    tests = [(sign, threshold) for sign in (1, -1) for threshold in _thresholds(first, sign)]
    best = max(tests, key=lambda test: _proves(first, *test, delta))
    return max(0.0, _proves(second, *best, delta))


def gaussian_epsilon(worlds: Worlds, delta: float) -> tuple[float, float]:
    """ε of the Gaussian mechanisms that these scores leave possible.

    A Gaussian mechanism tells two worlds apart as well as N(0, 1) from N(μ, 1), so that one threshold gives μ.
    """
    threshold = float(np.median(np.concatenate(worlds)))
    (low_false, high_false), (low_true, high_true) = (_rate(scores, threshold) for scores in worlds)
    least = float(stats.norm.ppf(low_true) - stats.norm.ppf(high_false))
    most = float(stats.norm.ppf(high_true) - stats.norm.ppf(low_false))
    return _epsilon(least, delta), _epsilon(most, delta)


def _thresholds(worlds: Worlds, sign: int) -> Scores:
    return np.unique(np.quantile(sign * np.concatenate(worlds), np.linspace(0, 1, CANDIDATES)))


def _proves(worlds: Worlds, sign: int, threshold: float, delta: float) -> float:
    """ε that this test disproves: whoever says "with" above the threshold, or of the other world below it."""
    wrong, right = worlds if sign > 0 else (-worlds.within, -worlds.without)
    true, false = _rate(right, threshold)[0], _rate(wrong, threshold)[1]
    return math.log((true - delta) / false) if true > delta else -math.inf


def _rate(scores: Scores, threshold: float) -> tuple[float, float]:
    """The share of scores above the threshold: both rates of a test hold together with 95 % confidence."""
    each = (1 - CONFIDENCE) / 2
    above = int((scores > threshold).sum())
    interval = stats.binomtest(above, len(scores)).proportion_ci(1 - each, method="exact")
    return float(interval.low), float(interval.high)


def _epsilon(mu: float, delta: float) -> float:
    if mu <= 0:
        return 0.0
    return math.inf if math.isinf(mu) else float(dp_accounting.get_epsilon_gaussian(1 / mu, delta))
