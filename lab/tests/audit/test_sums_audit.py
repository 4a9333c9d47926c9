"""The audit of class sums: what attacks on releases of the guard prove, below what its ledger says, and above it."""

import json

import numpy as np
import pytest

from repshare.cli.main import main
from repshare.config import Policy
from repshare_lab.audit.bounds import judge
from repshare_lab.audit.clients import CASES as CLIENTS
from repshare_lab.audit.sums import BLOCK, PAIRS, attack, enough_trials

EPSILON = 3.0


def prove(name, share=1.0, releases=1, trials=2 * BLOCK):
    worlds, accounted = attack(PAIRS[name], EPSILON, releases, trials, share=share)
    assert all(len(scores) == trials for scores in worlds)
    assert accounted == pytest.approx(EPSILON, rel=1e-3), "the whole budget, by the guard's own ledger"
    return judge(worlds, Policy.delta)


@pytest.mark.parametrize(
    ("name", "releases"),
    [("added", 1), ("added", 5), ("opposite", 1), ("shared noise", 2)],
)
def test_the_guard_keeps_its_promise_and_is_caught_when_half_of_its_noise_is_left_out(name, releases):
    right, broken = prove(name, releases=releases), prove(name, 0.5, releases)
    assert max(right.gaussian[0], right.proved) < EPSILON < broken.gaussian[0]
    assert right.gaussian[1] > EPSILON, "what is accounted is not more than there is"


def test_a_sample_of_another_class_moves_sums_less_than_its_opposite():
    other, opposite = prove("other class"), prove("opposite")
    assert 0.6 < other.auc < opposite.auc - 0.02


def test_one_members_share_of_the_noise_is_not_enough():
    """What a secure sum is needed for: who sees a single member's release sees too little noise."""
    worlds, _ = attack(PAIRS["shared noise"]._replace(members=1), EPSILON, 1, 2 * BLOCK)
    assert judge(worlds, Policy.delta).gaussian[0] > EPSILON


def test_the_least_budget_needs_the_most_trials():
    counts = [enough_trials(epsilon, Policy.delta) for epsilon in (0.1, 0.5, 1.0)]
    assert counts == sorted(counts, reverse=True)
    assert 90_000 < counts[0] < 110_000


def test_the_command_writes_its_figures_and_says_what_it_found(tmp_path, capsys):
    main(["privacy", "audit", "--epsilons", "8", "--releases", "2", "--trials", "100",
          "--output", str(tmp_path), "--json"])  # fmt: skip
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((tmp_path / "audit.json").read_text())
    lines = document["membership"]
    of_the_guard = [(name, count) for count in (1, 2) for name in PAIRS]
    told = [(line["case"], line["releases"]) for line in lines]
    assert told == [*of_the_guard, *((name, 1) for name in CLIENTS)]
    assert all(line["proved"] < line["accounted"] < 8.001 for line in lines)
    assert np.ptp([line["trials"] for line in lines[: len(of_the_guard)]]) == 0
