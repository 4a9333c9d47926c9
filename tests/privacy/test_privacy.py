"""What noise is added and what it costs: the mechanism, the accounting, and the ledger."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repshare.config import Policy
from repshare.errors import BudgetExhausted, CheckpointError, ConfigError, Malformed
from repshare.privacy import accounting, mechanism
from repshare.privacy.accounting import Charge
from repshare.privacy.guard import Guard
from repshare.privacy.ledger import Ledger, read_ledger
from repshare.privacy.mechanism import Randomness
from repshare.sharing import wire
from repshare.sharing.representations import make_release
from soak.ledgers import kill_spenders

DELTA = 1e-5
LABELS = np.repeat([0, 1, 2], [40, 60, 80])


def features(seed=0, length=2.0):
    vectors = np.random.default_rng(seed).normal(size=(len(LABELS), 8))
    return (length * vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def make_guard(seed=7, **policy):
    policy = Policy(**{"epsilon": 2.0, "delta": DELTA, "clip": 2.0, "planned_releases": 3} | policy)
    seeded = None if seed is None else np.random.default_rng(seed)
    return Guard(policy, LABELS, dimension=8, seeded=seeded)


def release(guard, vectors=None, round=1, **changes):
    policy = replace(Policy() if guard is None else guard.policy, **changes)
    if guard is not None:
        guard.policy = policy
    vectors = features() if vectors is None else vectors
    return make_release(vectors, LABELS, np.random.default_rng(0), policy, round, guard)


def exhaust(guard, most=100, **options):
    made = []
    with pytest.raises(BudgetExhausted):
        for number in range(most):
            made.append(release(guard, round=number + 1, **options))
    return made


# From the tests of dp-accounting 0.6.0: standard deviation over how far one sample moves the sum; number of sums; ε; δ.
@pytest.mark.parametrize(
    ("noise", "sums", "epsilon", "delta", "where"),
    [
        (1.0, 1, 1.0, 0.12693674, "privacy_loss_mechanism_test: σ 1, sensitivity 1"),
        (1.0, 1, 2.0, 0.020923636, "privacy_loss_mechanism_test: σ 1, sensitivity 1"),
        (1 / 3, 1, 1.0, 0.78760074, "privacy_loss_mechanism_test: σ 1, sensitivity 3"),
        (10 / 6, 25, 1.0, 0.78760074, "accountant_test: sensitivity 6, 25 queries, σ 10"),
        (math.sqrt(3), 3, 1.0, 0.12693674, "pld_privacy_accountant_test: three of σ √3"),
        (1 / 2, 1, 1.0, 0.50986166, "privacy_loss_mechanism_test: REPLACE, norm 1, σ 1: moves by 2"),
        (1 / 2, 1, 2.0, 0.331897999, "privacy_loss_mechanism_test: REPLACE, norm 1, σ 1: moves by 2"),
    ],
)
def test_epsilon_is_the_published_one(noise, sums, epsilon, delta, where):
    assert accounting.epsilon({Charge(noise): sums}, delta) == pytest.approx(epsilon, abs=1e-6), where
    if sums > 1:  # the sums of one release, or of several
        assert accounting.epsilon({Charge(noise, observations=sums - 1): 1}, delta) == pytest.approx(epsilon, abs=1e-6)


def test_pld_agrees_with_the_formula_where_noise_differs():
    # Gaussians of 3 and 4 together are one of (3⁻² + 4⁻²)^-½ = 2.4.
    mixed = accounting.epsilon({Charge(3.0): 1, Charge(4.0): 1}, DELTA)
    assert mixed == pytest.approx(accounting.epsilon({Charge(2.4): 1}, DELTA), abs=1e-4)


def test_sampling_counts_as_its_theorem_says():
    # Wang, Balle and Kasiviswanathan (2019), Theorem 27, at order 2: log(1 + q² min(4(e^ε₂ − 1), 2 e^ε₂)).
    noise, q = 2.0, 0.1
    second = 2 / (2 * noise**2)
    observation = math.log1p(q**2 * min(4 * math.expm1(second), 2 * math.exp(second)))
    sampled = accounting._renyi(Charge(noise, observations=3, drawn=10, size=100))
    assert sampled[accounting.ORDERS.index(2)] == pytest.approx(second + 3 * observation)


def test_sampling_is_claimed_only_where_it_helps_and_never_makes_it_worse():
    few, many = Charge(4.0, 1, drawn=10, size=10), Charge(4.0, 1, drawn=10, size=1000)
    assert accounting.epsilon({few: 5}, DELTA) == accounting.epsilon({Charge(4.0): 10}, DELTA)
    assert accounting.epsilon({Charge(4.0): 5}, DELTA) < accounting.epsilon({many: 5}, DELTA)
    assert accounting.epsilon({many: 5}, DELTA) < 0.8 * accounting.epsilon({few: 5}, DELTA)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("size", [10, 300])
def test_noise_lasts_for_the_planned_releases_and_no_longer(epsilon, size):
    noise = accounting.noise_for(epsilon, DELTA, 7, Charge(0.0, 1, 10, size))
    charge = Charge(noise, 1, 10, size)
    assert 0.999 * epsilon < accounting.epsilon({charge: 7}, DELTA) <= epsilon < accounting.epsilon({charge: 8}, DELTA)


@pytest.mark.parametrize("seeded", [None, np.random.default_rng(3)], ids=["os", "seeded"])
def test_noise_on_nothing_has_the_deviation_that_was_asked_for(seeded):
    # A sum of n squares of N(0, σ²) over σ² is χ² with n degrees: ±6 of its deviations is once in 10⁹.
    count, deviation = 200_000, 3.5
    noise = mechanism.noisy_sum(np.zeros((5, count), np.int64), 2.0, deviation, Randomness(seeded))
    assert abs((noise**2).mean() / deviation**2 - 1) < 6 * math.sqrt(2 / count)
    assert abs(noise.mean()) < 6 * deviation / math.sqrt(count)
    assert abs((np.abs(noise) > 2 * deviation).mean() - 0.0455) < 6 * math.sqrt(0.0455 / count)
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 6 / math.sqrt(count)


def test_a_released_sum_of_nothing_has_the_noise_that_the_ledger_was_charged_for():
    guard = make_guard(clip=1000.0, planned_releases=1000, epsilon=1e4)
    sums = []
    for number in range(300):
        made = release(guard, np.zeros((len(LABELS), 8), np.float32), round=number)
        sums += [vector * count for vector, _, count in zip(*made.means, strict=True)]
    measured = np.square(sums).mean() ** 0.5 / (2 * 1000.0)
    assert measured == pytest.approx(guard.ledger.entries[0]["charge"].noise, rel=6 / math.sqrt(2 * np.size(sums)))


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_no_clipped_vector_is_longer_than_the_bound_and_short_ones_stay(seed, bound, length):
    rng = np.random.default_rng(seed)
    vectors = (length * rng.normal(size=(4, 5))).astype(np.float32)
    clipped = mechanism.clip(vectors, bound)
    for row, vector in zip(clipped.tolist(), vectors.astype(np.float64), strict=True):
        assert sum(x * x for x in row) <= mechanism.STEPS**2  # in whole numbers, so exactly
        if np.linalg.norm(vector) < bound:
            assert np.array(row) * bound / mechanism.STEPS == pytest.approx(vector, abs=2e-6 * bound)


def test_what_is_not_a_number_counts_as_nothing():
    assert mechanism.clip(np.array([[np.nan, 1.0], [np.inf, -np.inf]], np.float32), 2.0)[:, 0].tolist() == [0, 0]


def test_the_systems_randomness_is_used_unless_asked_otherwise_and_releases_say_which():
    draws = [release(make_guard(seed=seed)) for seed in (None, None, 1, 1)]
    assert [made.noise for made in draws] == ["os", "os", "seeded", "seeded"]
    assert (draws[0].means.vectors != draws[1].means.vectors).all()
    assert (draws[2].means.vectors == draws[3].means.vectors).all()
    for made in draws[1:3]:
        assert wire.decode_release(wire.encode_release(made)).noise == made.noise


def test_a_release_without_noise_has_the_bytes_it_always_had_and_made_up_noise_is_refused():
    plain = release(None)
    body = wire.encode_release(plain)
    assert b"noise" not in body
    assert wire.decode_release(body).noise is None
    with pytest.raises(Malformed, match="noise"):
        wire.decode_release(wire.encode_release(plain._replace(noise="magic")))


def test_samples_are_drawn_evenly():
    source, drawn = Randomness(np.random.default_rng(0)), Counter()
    for _ in range(4000):
        drawn.update(source.choose(np.arange(5), 2).tolist())
    assert all(abs(drawn[i] - 1600) < 6 * math.sqrt(4000 * 0.24) for i in range(5))


def test_with_a_large_budget_a_release_is_near_the_true_averages():
    made = release(make_guard(epsilon=1e6), n_avg=1000)
    true = release(None, n_avg=1000)
    for rows, truth in ((made.means, true.means), (made.observations, true.observations)):
        assert rows.labels.tolist() == truth.labels.tolist()
        assert rows.counts.tolist() == truth.counts.tolist()
        assert rows.vectors == pytest.approx(truth.vectors, abs=0.03)


def test_releasing_ends_with_the_planned_releases():
    guard = make_guard(planned_releases=3)
    assert len(exhaust(guard)) == 3
    assert 0.99 * 2 < guard.spent <= 2.0


def test_a_noisy_mean_is_no_longer_than_true_ones_can_be():
    made = release(make_guard(epsilon=0.01))
    lengths = np.linalg.norm(made.means.vectors, axis=1)
    assert lengths == pytest.approx([2.0] * 3, rel=1e-5)


def test_samples_that_come_or_go_are_for_sums_in_a_space():
    with pytest.raises(ConfigError, match=r"add-remove needs a common space.*15ddcbb is the last commit"):
        make_guard(adjacency="add-remove")


@pytest.mark.parametrize("bad", [{"epsilon": 0.0}, {"epsilon": math.inf}, {"delta": 0.0}, {"delta": 1.0}, {"clip": -1},
                                 {"adjacency": "both"}, {"planned_releases": 0}, {"release_every": 0}])  # fmt: skip
def test_bad_policies_are_refused(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Policy(**bad)


def test_a_ledger_goes_on_where_it_was(tmp_path):
    def opened():
        guard = make_guard(seed=None, planned_releases=5, epsilon=100.0)
        guard.keep_in(tmp_path / "privacy.jsonl")
        return guard

    first = opened()
    for number in (1, 2):
        release(first, round=number)
    second = opened()
    assert second.spent == first.spent > 0
    assert len(exhaust(second)) == 3


@pytest.mark.parametrize("written", [True, False], ids=["written", "an earlier version's"])
def test_what_was_spent_is_told_for_the_delta_it_is_told_with(written):
    first, second = (make_guard(delta=delta) for delta in (1e-5, 1e-7))
    for number in (1, 2):
        release(first, round=number)
    second.ledger.entries = [{k: v for k, v in e.items() if written or k != "delta"} for e in first.ledger.entries]
    assert {entry["delta"] for entry in first.ledger.entries} == {1e-5}
    charged = Counter(entry["charge"] for entry in first.ledger.entries)
    assert second.spent == accounting.epsilon(charged, 1e-7) > first.spent


def test_a_ledger_of_what_is_gone_is_refused_with_the_last_version_that_reads_it(tmp_path):
    Ledger(tmp_path / "own.jsonl", {"adjacency": "add-remove"}).add({"round": 1, "costs": ""})
    with pytest.raises(ConfigError, match="budgets of their own: 15ddcbb is the last commit that continues it"):
        Ledger(tmp_path / "own.jsonl", {"adjacency": "add-remove"})
    Ledger(tmp_path / "privacy.jsonl", {"adjacency": "replace", "mode": "end to end"})
    with pytest.raises(ConfigError, match="trained with DP-SGD: c528c6c is the last commit that continues it"):
        Ledger(tmp_path / "privacy.jsonl", {"adjacency": "replace"})


def test_a_ledger_of_other_samples_is_refused_and_so_is_a_second_user(tmp_path):
    path = tmp_path / "privacy.jsonl"
    ledger = Ledger(path, {"samples": 3})
    Ledger(path, {"samples": 3}).add({"round": 1})
    with pytest.raises(CheckpointError, match="another process"):
        ledger.add({"round": 1})
    with pytest.raises(ConfigError, match="samples 3 there, 4 here"):
        Ledger(path, {"samples": 4})


def test_a_line_that_was_cut_off_goes_and_a_damaged_one_stops_everything(tmp_path):
    path = tmp_path / "privacy.jsonl"
    ledger = Ledger(path)
    ledger.add({"round": 1})
    with path.open("a") as file:
        file.write('{"round": 2, "char')
    ledger = Ledger(path)
    assert ledger.entries == [{"round": 1}]
    ledger.add({"round": 3})
    assert [entry["round"] for entry in read_ledger(path)[1]] == [1, 3]
    path.write_text(path.read_text().replace('"round"', "round", 1))
    with pytest.raises(CheckpointError, match="line 2"):
        Ledger(path)


def test_killed_at_any_moment_nothing_is_overspent(tmp_path):
    """Processes that charge and release, each killed by SIGKILL somewhere, until the budget is spent."""
    told = kill_spenders(tmp_path, kills=20)
    assert told["kills"] >= 20
    assert told["left"] > 0
