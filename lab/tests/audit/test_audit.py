"""What attackers' scores prove of ε: it is true, and not far from the truth."""

import dp_accounting
import numpy as np
import pytest

from repshare.errors import ConfigError
from repshare_lab.audit.bounds import Worlds, area, gaussian_epsilon, judge, least_epsilon, true_positives
from repshare_lab.audit.grid import Grid

DELTA = 1e-5


def normals(mu, trials=4000, seed=0):
    rng = np.random.default_rng(seed)
    return Worlds(rng.normal(0, 1, trials), rng.normal(mu, 1, trials))


def test_the_area_and_the_rate_are_those_of_a_plain_loop():
    worlds = Worlds(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0]))
    pairs = [(high > low) + 0.5 * (high == low) for high in worlds.within for low in worlds.without]
    assert area(worlds) == pytest.approx(np.mean(pairs))
    assert true_positives(worlds) == 0.5, "above all three of the others"


def test_two_worlds_that_are_the_same_prove_nothing():
    verdict = judge(normals(0.0), DELTA)
    assert verdict.auc == pytest.approx(0.5, abs=0.03)
    assert verdict.proved == 0
    assert verdict.gaussian[0] == 0


@pytest.mark.parametrize("mu", [0.25, 1.0, 2.0, 4.0])
def test_what_is_proved_is_true_of_a_gaussian_mechanism_and_not_far_from_it(mu):
    true = dp_accounting.get_epsilon_gaussian(1 / mu, DELTA)
    worlds = normals(mu)
    low, high = gaussian_epsilon(worlds, DELTA)
    assert low < true < high
    assert low > 0.6 * true
    assert 0 <= least_epsilon(worlds, DELTA) < true


def test_proofs_are_wrong_as_rarely_as_they_say():
    """5 % of 100 may be: 5. More than 12 would happen once in seven hundred times."""
    true = dp_accounting.get_epsilon_gaussian(1.0, DELTA)
    intervals = [gaussian_epsilon(normals(1.0, 300, seed), DELTA) for seed in range(100)]
    assert sum(not low < true < high for low, high in intervals) <= 12
    assert sum(least_epsilon(normals(1.0, 300, seed), DELTA) > true for seed in range(100)) <= 12


def test_worlds_that_never_mix_are_told_apart_for_sure():
    verdict = judge(Worlds(np.zeros(1000), np.ones(1000)), DELTA)
    assert (verdict.auc, verdict.tpr) == (1.0, 1.0)
    assert verdict.proved > 4


def test_a_grid_that_makes_no_sense_is_refused():
    for wrong in ({"trials": 1}, {"epsilons": ()}, {"epsilons": (0.0,)}, {"delta": 1.0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            Grid(**wrong)
