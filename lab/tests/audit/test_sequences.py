"""Attacks on sequences of releases: as strong as theory says, on bytes of the package's own clients."""

import math

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from repshare.config import Policy
from repshare.sharing.sums import scales
from repshare.space import Fourier
from repshare.space.agreement import Agreement
from repshare_lab.audit.capture import capture, capture_sums
from repshare_lab.audit.pool import attack_told
from repshare_lab.audit.sequences import ATTACKS, Points, Public, area, guess_weights, score

CLASSES, COLUMNS = 4, 12
SPACE = Fourier((-4.0,) * COLUMNS, (4.0,) * COLUMNS, features=16)
JOINT = ATTACKS[0]


def draw(count, seed):
    """Points of four classes that overlap."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=count)
    centres = np.random.default_rng(99).normal(size=(CLASSES, COLUMNS))
    return (centres[labels] + rng.normal(size=(count, COLUMNS))).astype(np.float32), labels.astype(np.int64)


def embed(count, seed, space=SPACE):
    inputs, labels = draw(count, seed)
    return Points(np.asarray(space(inputs), np.float64), labels)


@pytest.fixture(scope="module")
def public():
    return Public(embed(6000, 1), CLASSES)


def watch(count, members=1, releases=4, clients=3, seed=2):
    inputs, labels = draw(count // members * clients, seed)
    owners = np.split(np.arange(len(labels)), clients)
    return capture(Agreement(SPACE), inputs, labels, owners, CLASSES, visible=members, releases=releases)


def attack(way, captured, public, known=None):
    strangers = embed(3000, 3)
    members = captured.members if known is None else captured.members.part(slice(known, None))
    others = None if known is None else captured.members.part(slice(known))
    both = Points(*(np.concatenate(pair) for pair in zip(members, strangers, strict=True)))
    found = score(way, captured.seen, public, both, others)
    return area(found[: len(members.labels)], found[len(members.labels) :])


def test_the_weights_of_members_follow_from_what_is_seen(public):
    captured = watch(150)
    (_, weights) = guess_weights(captured.seen, [public.samples, captured.members])
    wrong = np.square(weights - captured.weights).mean(axis=(0, 2)) / np.square(captured.weights).mean(axis=(0, 2))
    assert wrong.shape == (4,)
    assert wrong.max() < 1e-2


@pytest.mark.parametrize("count", [320])
def test_the_joint_attack_comes_near_to_the_best_that_there_is(public, count):
    found = np.mean([attack(JOINT, watch(count, releases=1, seed=seed), public) for seed in (2, 5, 6)])
    numbers = CLASSES * (SPACE.dimension + 1)
    best = stats.norm.cdf(math.sqrt(numbers / (2 * count)))
    assert best - 0.06 < found < best + 0.03


def test_a_total_of_a_group_shows_as_much_as_a_clients_own_sum_of_as_many(public):
    alone, together = (attack(JOINT, watch(300, members, releases=1), public) for members in (1, 3))
    assert together == pytest.approx(alone, abs=0.07)


def test_who_knows_half_of_the_members_tells_the_others_better(public):
    captured = watch(320, releases=1)
    assert attack(JOINT, captured, public, known=160) > attack(JOINT, captured, public) + 0.03


def test_more_rows_than_samples_tell_all_of_them(public):
    captured = watch(10, releases=6)
    assert max(attack(way, captured, public) for way in ATTACKS) > 0.9


@pytest.mark.parametrize("way", ATTACKS)
def test_strangers_are_not_told_from_strangers(public, way):
    captured = watch(120, releases=2)
    found = score(way, captured.seen, public, embed(4000, 7))
    assert area(found[:2000], found[2000:]) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(("members", "shares"), [(1, 1), (4, 3)])
def test_noise_of_a_budget_hides_who_is_in_a_sum(public, members, shares):
    inputs, labels = draw(80, 4)
    owners, areas = np.split(np.arange(len(labels)), members), []
    for epsilon in (1.0, 1000.0):
        policy = Policy(epsilon=epsilon, adjacency="add-remove", noise_shares=shares, seeded_noise=True)
        common = Agreement(SPACE, "discriminant")
        seen = capture_sums(common, inputs, labels, owners, CLASSES, policy, visible=members)
        noise = dp_accounting.get_sigma_gaussian(epsilon, policy.delta)
        assert seen.variance == pytest.approx(noise**2 / scales(16)[0] ** 2 * members / shares, rel=0.01)
        areas.append(attack_told(seen.told, seen.variance, public, embed(3000, 3)))
    assert areas[0] < 0.62
    assert areas[1] > areas[0] + 0.05
