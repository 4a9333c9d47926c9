"""What noise is added and what it costs: the mechanism, the accounting, and the ledger."""

import math
from collections import Counter

import numpy as np
import pytest

from repshare.config import Policy
from repshare.errors import BudgetExhausted, CheckpointError, ConfigError, Malformed
from repshare.privacy import accounting
from repshare.privacy.guard import Guard
from repshare.privacy.ledger import Ledger, read_ledger
from repshare.sharing import wire
from repshare.sharing.representations import make_release
from repshare.sharing.sums import add_up, lift
from soak.ledgers import kill_spenders

DELTA = 1e-5
LABELS = np.repeat([0, 1, 2], [40, 60, 80])


def vectors(seed=0):
    drawn = np.random.default_rng(seed).normal(size=(len(LABELS), 8))
    return lift((math.sqrt(8) * drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32))


def make_guard(seed=7, **policy):
    policy = Policy(**{"epsilon": 2.0, "delta": DELTA, "releases": 3} | policy)
    seeded = None if seed is None else np.random.default_rng(seed)
    return Guard(policy, LABELS, classes=3, space="fourier-0123456789abcdef-discriminant", seeded=seeded)


def release(guard, round=1):
    return guard.release(vectors(), LABELS, round)


def exhaust(guard, most=100):
    made = []
    with pytest.raises(BudgetExhausted):
        for number in range(most):
            made.append(release(guard, round=number + 1))
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
    assert accounting.epsilon({noise: sums}, delta) == pytest.approx(epsilon, abs=1e-6), where


def test_pld_agrees_with_the_formula_where_noise_differs():
    # Gaussians of 3 and 4 together are one of (3⁻² + 4⁻²)^-½ = 2.4.
    mixed = accounting.epsilon({3.0: 1, 4.0: 1}, DELTA)
    assert mixed == pytest.approx(accounting.epsilon({2.4: 1}, DELTA), abs=1e-4)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_noise_lasts_for_the_planned_releases_and_no_longer(epsilon):
    noise = accounting.noise_for(epsilon, DELTA, 7)
    assert 0.999 * epsilon < accounting.epsilon({noise: 7}, DELTA) <= epsilon < accounting.epsilon({noise: 8}, DELTA)


def test_the_systems_randomness_is_used_unless_asked_otherwise_and_releases_say_which():
    draws = [release(make_guard(seed=seed)) for seed in (None, None, 1, 1)]
    assert [made.noise for made in draws] == ["os", "os", "seeded", "seeded"]
    assert (draws[0].means.vectors != draws[1].means.vectors)[:3, :9].mean() > 0.8
    assert (draws[2].means.vectors == draws[3].means.vectors).all()
    for made in draws[1:3]:
        assert wire.decode_release(wire.encode_release(made)).noise == made.noise


def test_a_release_without_noise_has_the_bytes_it_always_had_and_made_up_noise_is_refused():
    plain = make_release(vectors(), LABELS, np.random.default_rng(0), Policy(), 1)
    body = wire.encode_release(plain)
    assert b"noise" not in body
    assert wire.decode_release(body).noise is None
    with pytest.raises(Malformed, match="noise"):
        wire.decode_release(wire.encode_release(plain._replace(noise="magic")))


def test_with_a_large_budget_a_release_is_near_the_true_sums():
    made = release(make_guard(epsilon=1e6))
    assert made.means.vectors[:3, :9] == pytest.approx(add_up(vectors(), LABELS, 3), abs=0.05)


def test_releasing_ends_with_the_planned_releases():
    guard = make_guard(releases=3)
    assert len(exhaust(guard)) == 3
    assert 0.99 * 2 < guard.spent <= 2.0


@pytest.mark.parametrize("bad", [{"epsilon": 0.0}, {"epsilon": math.inf}, {"delta": 0.0}, {"delta": 1.0},
                                 {"adjacency": "both"}, {"releases": 0}, {"release_every": 0}])  # fmt: skip
def test_bad_policies_are_refused(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Policy(**bad)


def test_a_ledger_goes_on_where_it_was(tmp_path):
    def opened():
        guard = make_guard(seed=None, releases=5, epsilon=100.0)
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
    charged = Counter(entry["charge"][0] for entry in first.ledger.entries)
    assert second.spent == accounting.epsilon(charged, 1e-7) > first.spent


def test_a_ledger_of_what_is_gone_is_refused_with_the_last_version_that_reads_it(tmp_path):
    Ledger(tmp_path / "privacy.jsonl", {"adjacency": "replace", "samples": len(LABELS)})
    guard = make_guard()
    with pytest.raises(ConfigError, match=r"space None there.*38a6b14d is the last commit"):
        guard.keep_in(tmp_path / "privacy.jsonl")


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
