"""The audit: what attacks prove stays below what the accounting says, and rises above it when the noise is broken."""

import json
import math

import dp_accounting
import numpy as np
import pytest

from repshare.cli.main import main
from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.sharing.representations import nothing, stack
from repshare_lab.audit.bounds import Worlds, area, gaussian_epsilon, judge, least_epsilon, true_positives
from repshare_lab.audit.grid import Grid
from repshare_lab.audit.membership import Scoring, attack, farthest, worst_case
from repshare_lab.audit.subject import guarded

DELTA = 1e-5
BOUND = 2.0


def normals(mu, trials=4000, seed=0):
    rng = np.random.default_rng(seed)
    return Worlds(rng.normal(0, 1, trials), rng.normal(mu, 1, trials))


def gaussian(deviation, seed, n_avg=0):
    """The textbook mechanism: sums with noise on them, of all samples and of some."""
    rng = np.random.default_rng(seed)

    def release(vectors):
        size, dimension = vectors.shape

        def noisy(rows):
            return (rows.sum(axis=0) + rng.normal(0, deviation, dimension)) / len(rows), 0, len(rows)

        observed = [noisy(vectors[rng.choice(size, n_avg, replace=False)])] if n_avg else []
        return stack([noisy(vectors)], dimension), stack(observed, dimension)

    return release


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


def test_the_likelihood_ratio_is_that_of_the_densities():
    case, deviation = worst_case(10, 3, BOUND), 1.5
    scoring = Scoring(case, deviation)
    mean = stack([(np.array([0.1, 5.0, 5.0]), 0, 10)], 3)  # a sum of 1 in the direction that counts

    def density(value, at):
        return math.exp(-0.5 * ((value - at) / deviation) ** 2)

    assert scoring.score(mean, nothing(3)) == pytest.approx(math.log(density(1, BOUND) / density(1, -BOUND)))
    seen = stack([(np.array([0.5, 5.0, 5.0]), 0, 2)], 3)  # likewise, of 2 samples out of 10
    with_it, without = (0.8 * density(1, 0) + 0.2 * density(1, at) for at in (BOUND, -BOUND))
    assert scoring.score(nothing(3), seen) == pytest.approx(math.log(with_it / without))


@pytest.mark.parametrize(("epsilon", "n_avg"), [(1.0, 0), (8.0, 10)])
def test_the_proof_stays_below_the_accounting_and_rises_above_it_when_the_noise_is_halved(epsilon, n_avg):
    rounds, size = 2, 10
    sums = rounds * (2 if n_avg else 1)
    deviation = dp_accounting.get_sigma_gaussian(epsilon, DELTA) * 2 * BOUND * math.sqrt(sums)
    case = worst_case(size, 4, BOUND)
    right = judge(attack(case, gaussian(deviation, 1, n_avg), deviation, rounds, 2000), DELTA)
    assert right.gaussian[0] < epsilon
    assert right.proved < epsilon
    broken = judge(attack(case, gaussian(deviation / 2, 1, n_avg), deviation, rounds, 2000), DELTA)
    assert broken.gaussian[0] > epsilon
    assert broken.auc > right.auc


def test_the_proof_that_assumes_nothing_catches_it_too_given_enough_trials():
    epsilon, trials = 3.0, 40_000
    mu = 1 / dp_accounting.get_sigma_gaussian(epsilon, DELTA)
    assert least_epsilon(normals(mu, trials), DELTA) < epsilon
    assert least_epsilon(normals(2 * mu, trials), DELTA) > epsilon


def test_without_noise_a_class_mean_gives_its_samples_away_to_who_knows_the_others():
    rng = np.random.default_rng(0)
    case = farthest(rng.normal(size=(30, 5)).astype(np.float32))
    verdict = judge(attack(case, gaussian(0.0, 0), 0.0, 1, 200), DELTA)
    assert verdict.auc == 1.0


def test_whoever_is_drawn_into_an_observation_of_one_is_known_for_sure():
    rng = np.random.default_rng(0)
    case, rounds = farthest(rng.normal(size=(41, 5)).astype(np.float32)), 20
    release = gaussian(0.0, 1, n_avg=1)
    worlds = attack(case, lambda vectors: (nothing(5), release(vectors)[1]), 0.0, rounds, 100)
    drawn = 1 - (1 - 1 / 40) ** rounds  # 0.40; three standard deviations are 0.15
    assert true_positives(worlds) == pytest.approx(drawn, abs=0.15)


def test_the_farthest_two_are_the_candidates_and_the_others_are_all_the_rest():
    vectors = np.array([[0, 0], [1, 0], [9, 0], [2, 0]], np.float32)
    case = farthest(vectors)
    assert {tuple(case.out), tuple(case.within)} == {(0, 0), (9, 0)}
    assert sorted(map(tuple, case.others)) == [(1, 0), (2, 0)]
    assert len(case.world(case.out)) == 3


def shipped(epsilon, n_avg, share=1.0, size=10, dimension=4, trials=500):
    """The guard that ships against the worst case: what was proved, and what was accounted."""
    policy = Policy(epsilon=epsilon, n_avg=n_avg, planned_releases=2, clip=BOUND, seeded_noise=True)
    released = guarded(policy, size, dimension, share=share)
    case = worst_case(size, dimension, BOUND)
    worlds = attack(case, released.release, released.deviation, policy.planned_releases, trials)
    return judge(worlds, policy.delta), released.accounted


@pytest.mark.parametrize(("epsilon", "n_avg"), [(1.0, 5), (8.0, 1), (8.0, 10)])
def test_the_guard_that_ships_keeps_its_promise(epsilon, n_avg):
    verdict, accounted = shipped(epsilon, n_avg)
    assert accounted == pytest.approx(epsilon, rel=1e-2)
    assert verdict.proved < accounted
    assert verdict.gaussian[0] < accounted


def test_the_guard_that_ships_is_caught_when_half_of_its_noise_is_left_out():
    right, accounted = shipped(4.0, 10, trials=1000)
    broken, _ = shipped(4.0, 10, share=0.5, trials=1000)
    assert right.gaussian[0] < accounted < broken.gaussian[0]


def test_the_command_writes_its_figures_and_says_what_it_found(tmp_path, capsys):
    small = ["--class-sizes", "6", "--n-avgs", "2", "--epsilons", "8", "--trials", "100"]
    main(
        [
            "privacy",
            "audit",
            "--dataset",
            "digits",
            *small,
            "--output",
            str(tmp_path / "a"),
            "--json",
        ]
    )
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((tmp_path / "a/audit.json").read_text())
    lines = document["membership"]
    assert [(line["case"], line["epsilon"]) for line in lines] == [
        ("worst", None), ("real", None), ("worst", 8.0), ("real", 8.0)
    ]  # fmt: skip
    assert [line["auc"] for line in lines[:2]] == [1.0, 1.0], "without noise, who knows the others knows all"
    assert all(line["proved"] < line["accounted"] for line in lines[2:])
    assert (tmp_path / "a/audit.png").read_bytes().startswith(b"\x89PNG")


def test_a_grid_that_makes_no_sense_is_refused():
    for wrong in ({"trials": 1}, {"epsilons": ()}, {"epsilons": (0.0,)}, {"class_sizes": (2,)}, {"delta": 1.0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            Grid(**wrong)
