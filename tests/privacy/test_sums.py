"""Private releases in a common space: exact noise, bounded samples, budgets, and noise shared out in a group."""

import math
import os
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from repshare import Agreement, Client, Policy
from repshare.board import Board, Wants
from repshare.errors import BudgetExhausted, ConfigError, ExchangeError, Refused, Unreachable
from repshare.exchange import Exchange
from repshare.exchange.local import LocalExchange
from repshare.methods import CA, CS
from repshare.party.state import make_report
from repshare.privacy import accounting
from repshare.privacy.discrete import discrete_gaussian
from repshare.privacy.guard import STEPS, Guard, check_shares, reach
from repshare.privacy.ledger import read_ledger
from repshare.sharing import sums, wire
from repshare.space import Fourier
from repshare.space.discriminant import Discriminant
from support.groups import LocalGroup, side_by_side

SPACE = "fourier-0123456789abcdef-discriminant"
LABELS = np.arange(30) % 3
KEYS = ("alice", "bob", "carol")
SMALL = Fourier((-3.0,) * 4, (3.0,) * 4, features=16)
COMMON = Agreement(SMALL, "discriminant")


def vectors(seed=0, count=30, dimension=6):
    drawn = np.random.default_rng(seed).normal(size=(count, dimension))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True) * math.sqrt(dimension)).astype(np.float32)


def guard(seed=7, **policy):
    policy = Policy(**{"epsilon": 1.0, "releases": 1, "adjacency": "add-remove"} | policy)
    seeded = None if seed is None else np.random.default_rng(seed)
    return Guard(policy, LABELS, classes=3, space=SPACE, seeded=seeded)


def release(made, round=1, given=None):
    return made.release(sums.lift(vectors() if given is None else given), LABELS, round)


def rows(released):
    return released.means.vectors[:3, :7].astype(np.float64)


@pytest.mark.parametrize("variance", [1, 7, 1000])
def test_discrete_gaussian_noise_has_its_distribution(variance):
    source = np.random.default_rng(variance).bytes
    drawn = discrete_gaussian(variance, 4000, source)
    edge = 6 * math.isqrt(variance) + 6
    numbers = np.arange(-edge, edge + 1)
    chances = np.exp(-(numbers**2) / (2 * variance))
    cumulated = np.cumsum(chances / chances.sum())
    bounds = np.unique(np.searchsorted(cumulated, np.linspace(0.1, 0.9, 9)))
    groups = np.searchsorted(numbers[bounds], drawn)
    expected = np.diff(np.concatenate([[0], cumulated[bounds], [1]])) * len(drawn)
    assert stats.chisquare(np.bincount(groups, minlength=len(expected)), expected).pvalue > 1e-4


def test_discrete_gaussian_noise_from_the_system_is_as_wide_as_it_should_be():
    drawn = discrete_gaussian(10**12, 3000, os.urandom)
    assert abs(drawn.std() / 1e6 - 1) < 0.08
    assert len(np.unique(drawn % 1000)) > 900  # the last digits are random, too


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 300), st.integers(0, 1000))
def test_a_sample_is_at_most_1_long_after_rounding(dimension, seed):
    drawn = np.random.default_rng(seed).normal(size=(5, dimension)) ** 3
    scaled = drawn / np.linalg.norm(drawn, axis=1, keepdims=True) * math.sqrt(dimension) * 1.001
    wholes = np.rint(sums.lift(scaled.astype(np.float32)).astype(np.float64) * STEPS)
    assert np.linalg.norm(wholes, axis=1).max() <= STEPS


def moved(change, **policy):
    """How far a release moves if the first sample is changed: exactly, since both have the same noise."""
    before = rows(release(guard(**policy)))
    made, labels = guard(**policy), LABELS.copy()
    given = vectors()
    keep = np.ones(30, bool)
    change(given, labels, keep)
    after = made.release(sums.lift(given)[keep], labels[keep], 1)
    return np.linalg.norm(rows(after) - before)


def test_no_change_of_a_sample_moves_a_release_further_than_is_accounted():
    def remove(given, labels, keep):
        keep[0] = False

    def oppose(given, labels, keep):
        given[0] = -given[0]

    def relabel(given, labels, keep):
        labels[0] = 1

    added = Policy(adjacency="add-remove"), 6
    replaced = Policy(adjacency="replace"), 6
    assert 0.9 < moved(remove) <= reach(*added) == 1
    assert 1.8 < moved(oppose, adjacency="replace") <= reach(*replaced)
    assert 1.3 < moved(relabel, adjacency="replace") <= math.sqrt(2) < reach(*replaced) < 2


def test_a_release_costs_what_the_accountant_says_and_the_budget_ends():
    made = guard(releases=3, epsilon=2.0)
    for number in range(3):
        release(made, number + 1)
    noise = made.ledger.entries[0]["charge"][0]
    assert made.spent == pytest.approx(accounting.epsilon(Counter({noise: 3}), 1e-5))
    assert 1.99 < made.spent <= 2.0
    with pytest.raises(BudgetExhausted, match="3 releases cost ε = 2"):
        release(made, 4)


@pytest.mark.parametrize("shares", [1, 9])
def test_noise_is_as_wide_as_the_budget_asks_for(shares):
    exact = np.zeros((3, 7))
    np.add.at(exact, LABELS, np.rint(sums.lift(vectors()) * STEPS) / STEPS)
    noise = np.concatenate([(rows(release(guard(seed=s, noise_shares=shares))) - exact).ravel() for s in range(60)])
    wanted = accounting.noise_for(1.0, 1e-5, 1) / math.sqrt(shares)
    assert abs(noise.std() / wanted - 1) < 0.08
    told = release(guard(noise_shares=shares)).means.vectors[3, 6]
    assert told == pytest.approx(wanted**2, rel=1e-3)


def test_a_ledger_is_kept_and_resumed(tmp_path):
    made = guard()
    made.keep_in(tmp_path / "privacy.jsonl")
    sent = release(made)
    about, entries = read_ledger(tmp_path / "privacy.jsonl")
    assert about["space"] == SPACE
    assert len(entries) == 1
    again = guard()
    again.keep_in(tmp_path / "privacy.jsonl")
    assert again.pending.body == wire.encode_release(sent)  # not acknowledged: the same bytes, for nothing
    with pytest.raises(BudgetExhausted):
        release(again)


def test_a_share_of_the_noise_is_never_sent_twice(tmp_path):
    made = guard(noise_shares=3)
    made.keep_in(tmp_path / "privacy.jsonl")
    release(made)
    again = guard(noise_shares=3)
    again.keep_in(tmp_path / "privacy.jsonl")
    assert again.pending.body is None
    again.pending.resume(0)
    assert again.pending.body is None


HOSTILE = {  # what is refused: row, column and value; the 17th number of a row counts samples, or tells the variance
    "not finite": (0, 0, np.nan),
    "a sum of length": (0, 0, 2e6),
    "noise of variance -1": (3, 16, -1.0),
    "noise of variance 1e": (3, 16, 1e13),
    "numbers where there must be zeros": (1, 17, 0.5),
    "where there must be": (3, 2, 0.5),
}


@pytest.mark.parametrize(("message", "wrong"), HOSTILE.items())
def test_a_board_refuses_what_are_no_sums(message, wrong):
    task = Agreement(SMALL, "discriminant").task(3)
    made = sums.as_release(np.tile(np.eye(17)[-1], (3, 1)), 1, task.space)
    Board(task).accept("alice", wire.encode_release(made))
    row, column, value = wrong
    made.means.vectors[row, column] = value
    with pytest.raises(Refused, match=message):
        Board(task).accept("alice", wire.encode_release(made))


def table(seed, count=90):
    """Three classes of four numbers each."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    means = np.random.default_rng(99).normal(size=(3, 4))
    return (means[labels] + 0.7 * rng.normal(size=(count, 4))).clip(-3, 3).astype(np.float32), labels


def client(name, exchange, seed=0, method=CS, space=None, data=None, **policy):
    return Client(
        None, data or table(seed), exchange, name=name, policy=Policy(**policy), method=method,
        space=space or COMMON, classes=3, test=table(1234, 500), seed=seed,
    )  # fmt: skip


def through_a_board(**policy):
    """Two rounds of three clients: in the first they publish, in the second they read the total."""
    board = Board(COMMON.task(3))
    clients = [client(name, LocalExchange(board, name), seed, **policy) for seed, name in enumerate(KEYS)]
    for _ in range(2):
        for each in clients:
            each.round(test=False)
    return clients


def accuracy(clients):
    return np.mean([each.evaluate() for each in clients])


def test_class_sums_teach_and_noise_costs_accuracy():
    one_sided = [tuple(part[table(seed)[1] != seed] for part in table(seed)) for seed in range(3)]
    board = Board(COMMON.task(3))
    clients = [client(n, LocalExchange(board, n), data=one_sided[i]) for i, n in enumerate(KEYS)]
    alone = accuracy(clients)
    for _ in range(2):
        for each in clients:
            each.round(test=False)
    assert accuracy(clients) > alone + 0.1  # each lacks a class
    noisy = through_a_board(epsilon=0.01, seeded_noise=True, adjacency="add-remove", sums_only=True)
    good = through_a_board(epsilon=50.0, seeded_noise=True, adjacency="add-remove", sums_only=True)
    assert accuracy(good) > accuracy(noisy) + 0.2
    saved = through_a_board(epsilon=0.01, seeded_noise=True, adjacency="add-remove")
    assert accuracy(saved) > accuracy(good) - 0.05  # own samples are used as far as they are better


def test_what_leaves_is_one_release_that_does_not_depend_on_held_out_samples():
    bodies, held = [], np.zeros(300, bool)
    for held_out in (0.05, 0.0):
        board, data = Board(COMMON.task(3)), tuple(each[~held] for each in table(0, 300))
        made = client(
            "alice", LocalExchange(board, "alice"), data=data, epsilon=1.0, seeded_noise=True, held_out=held_out
        )
        held[made.learner.held_rows] = True
        assert 5 < held.sum() < 30
        sent = [made.round(test=False).bytes_up for _ in range(3)]
        assert sent[0] > 0 == sent[1] == sent[2]
        assert made.trouble is None
        bodies.append(board.teach("bob", Wants(0, 0)))
    assert bodies[0] == bodies[1]


def test_a_state_is_continued_to_the_same_bits():
    made = through_a_board(epsilon=2.0, seeded_noise=True)[0]
    again = client("alice", made.exchange, epsilon=2.0, seeded_noise=True)
    again.load(made.save())
    assert all(map(np.array_equal, again.learner.classifier(), made.learner.classifier()))
    assert again.guard.spent == made.guard.spent > 0


@pytest.mark.parametrize(
    ("policy", "common", "message"),
    [
        (
            {"epsilon": 1.0},
            Agreement(SMALL),
            "needs a common space with the loss discriminant, in a new task of the operator",
        ),
        ({"noise_shares": 3}, Agreement(SMALL), "noise_shares needs epsilon"),
        ({"noise_shares": 0}, None, "noise_shares must be"),
    ],
)
def test_what_cannot_be_private_is_refused(policy, common, message):
    with pytest.raises(ConfigError, match=message):
        client("alice", LocalExchange(Board(COMMON.task(3)), "alice"), space=common, **policy)


def test_a_report_tells_nothing_about_the_samples():
    made = through_a_board(epsilon=1.0, seeded_noise=True)[0]
    told = make_report(made, made.round())
    assert set(told) == {"round", "privacy", "model"}
    assert told["privacy"]["mode"] == "all that leaves, replace"


def test_a_client_alone_needs_no_noise():
    assert client("alice", None, method=CA, epsilon=1.0).guard is None


def test_a_share_of_the_noise_is_refused_without_a_group():
    made = client("alice", LocalExchange(Board(COMMON.task(3)), "alice"), epsilon=1.0, noise_shares=3)
    with pytest.raises(ConfigError, match="needs a masked group"):
        made.round()


def in_a_group(folder, shares=(3, 3, 3)):
    exchanges = LocalGroup(folder, replace(COMMON.task(3), group_members=3), KEYS).everyone(patience=3.0)
    given = {"epsilon": 1.0, "adjacency": "add-remove"}
    return {
        name: client(name, exchanges[name], seed, noise_shares=shares[seed], **given) for seed, name in enumerate(KEYS)
    }


def at_once(clients):
    records = {}
    assert side_by_side(lambda name: records.update({name: clients[name].round(test=False)}), clients) == {}
    return records


def test_a_group_shares_the_noise_and_all_read_the_same_total(tmp_path):
    clients = in_a_group(tmp_path)
    assert {each.trouble for each in at_once(clients).values()} == {None}
    for each in clients.values():
        each.collect()
    totals = [each.learner.model.total for each in clients.values()]
    assert all(np.array_equal(total.vectors, totals[0].vectors) for total in totals)
    noise = accounting.noise_for(1.0, 1e-5, 1)
    assert totals[0].variance == pytest.approx(noise**2, rel=1e-3)  # once, not three times
    exact = sum(each.learner.model.sums() for each in clients.values())
    error = (totals[0].vectors - exact[:, :16]).std()
    assert 0.6 * noise < error < 1.5 * noise
    assert all(each.guard.spent == pytest.approx(1.0, rel=1e-3) for each in clients.values())


def test_members_that_add_other_shares_of_noise_have_no_sum(tmp_path):
    records = at_once(in_a_group(tmp_path, shares=(3, 2, 3)))
    assert all(each.trouble for each in records.values())


def test_a_release_that_has_not_left_is_kept_and_one_that_has_is_spent():
    class Fails(Exchange):
        hides_single_releases, left = True, False

        def may_have_left(self):
            return self.left

        def collect(self, wants):
            raise Unreachable("nobody is there")

        def publish(self, body):
            raise Unreachable("nobody is there")

    exchange = Fails()
    made = client("alice", exchange, epsilon=1.0, noise_shares=3)
    made.round(test=False)
    body = made.guard.pending.body
    assert body is not None
    made.round(test=False)
    assert made.guard.pending.body == body
    assert len(made.guard.ledger.entries) == 1
    exchange.left = True
    made.round(test=False)
    assert made.guard.pending.body is None


def test_how_many_may_collude_is_told():
    policy = Policy(epsilon=1.0, noise_shares=5)
    assert "at most 5 of 10 members collude" in check_shares(policy, 10)
    with pytest.raises(ConfigError, match="may have 4 members"):
        check_shares(policy, 4)


def test_a_total_that_makes_no_classifier_is_refused():
    inputs, labels = table(0)
    made = Discriminant(SMALL(torch.from_numpy(inputs)), torch.from_numpy(labels), 3, personal=True)
    total = sums.Sums(np.full((3, 16), 1e300), np.ones(3), 1.0, 2)
    with pytest.raises(ExchangeError, match="not finite"):
        made.absorb(total)
    assert made.total is None
