"""The classifier in scikit-learn's manner: scikit-learn's own checks, the pooled closed form, and no PyTorch."""

from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import Ridge
from sklearn.utils.estimator_checks import estimator_checks_generator

from repshare import Agreement, Board, Client, CommonSpaceClassifier, LocalExchange, Policy, RelayExchange
from repshare.board import Wants
from repshare.errors import ConfigError, Malformed, Refused
from repshare.methods import CA
from repshare.sharing import wire
from repshare.space import Fourier, Patches
from support.relays import create_task, invite, start_relay

ROOT = Path(__file__).parents[2]
AGREED = {"classes": (0, 1), "low": -4.0, "high": 4.0, "features": 64, "precision": "fp32"}

# All but two. One needs arrays of another kind switched on before SciPy is imported. For the other, a weight must be as
# good as repetitions to 1e-7: the vote on shrinkage leaves a sample out with all its weight, and numbers are fp32.
# test_weights has it with shrinkage fixed, to 2e-6.
EXCEPT = ("array_api", "check_sample_weight_equivalence_on_dense_data")
CHECKS = {
    f"{number} {getattr(check, 'func', check).__name__}": (estimator, check)
    for number, (estimator, check) in enumerate(
        estimator_checks_generator(CommonSpaceClassifier(accept_exposure=True, features=64))
    )
    if not any(name in repr(check) for name in EXCEPT)
}


@pytest.mark.filterwarnings("ignore:columns reach")  # as those of the checks do
@pytest.mark.parametrize("name", CHECKS)
def test_scikit_learns_own_checks(name):
    estimator, check = CHECKS[name]
    check(estimator)


@pytest.fixture(scope="module")
def table():
    x, y = load_breast_cancer(return_X_y=True)
    return ((x - x.mean(axis=0)) / x.std(axis=0))[:300], y[:300]


def make_model():
    return torch.nn.Sequential(torch.nn.Linear(30, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


def exchange_rounds(board, parties, rounds):
    """Everyone releases, then everyone absorbs."""
    for _ in range(rounds):
        for name, party in parties.items():
            board.accept(name, party.partial_release())
        for name, party in parties.items():
            party.absorb(board.teach(name, Wants(0, 0)))


def test_alone_it_is_cas_classifier(table):
    x, y = table
    alone = CommonSpaceClassifier(accept_exposure=True, **{**AGREED, "classes": None}).fit(x[:100], y[:100])
    space = Fourier((-4.0,) * 30, (4.0,) * 30, features=64)
    data = torch.from_numpy(x[:100]).float(), torch.from_numpy(y[:100])
    client = Client(None, data, method=CA, space=Agreement(space))
    client.round()
    expected = client.probabilities(torch.from_numpy(x[100:]).float()).numpy()
    assert alone.predict_proba(x[100:]) == pytest.approx(expected, abs=2e-4)
    assert alone.score(x[100:], y[100:]) > 0.9


@pytest.mark.parametrize("sizes", [(150, 150), (3, 97, 200)])
def test_together_they_reach_the_pooled_closed_form(table, sizes):
    x, y = table
    shrinkage, starts = 0.05, np.cumsum((0, *sizes))
    parties = {
        str(start): CommonSpaceClassifier(accept_exposure=True, **AGREED, shrinkage=shrinkage).fit(
            x[start:stop], y[start:stop]
        )
        for start, stop in pairwise(starts)
    }
    vectors = Fourier((-4.0,) * 30, (4.0,) * 30, features=64)(x).astype(np.float64)
    centre = vectors.mean(axis=0)
    spread = np.square(vectors - centre).sum(axis=1).mean()  # τ
    ridge = Ridge(alpha=shrinkage * len(x) * spread).fit(vectors, np.eye(2)[y])
    expected = ridge.predict(vectors) @ (-1, 1)
    alone = max(np.abs(party.decision_function(x) - expected).max() for party in parties.values())
    exchange_rounds(Board(parties["0"].task_), parties, 40)
    together = [np.abs(party.decision_function(x) - expected).max() for party in parties.values()]
    assert max(together) < 2e-3 < 0.05 < alone


def test_it_shares_a_board_with_clients_that_have_pytorch(table):
    x, y = table
    mine = CommonSpaceClassifier(accept_exposure=True, **{**AGREED, "classes": None}).fit(x[:100], y[:100])
    common = Agreement(Fourier((-4.0,) * 30, (4.0,) * 30, features=64))
    assert mine.task_ == common.task(2)
    board, policy = Board(mine.task_), Policy(precision="fp32", held_out=0.0)
    data = torch.from_numpy(x[100:300]).float(), torch.from_numpy(y[100:300])
    other = Client(None, data, LocalExchange(board, "b"), space=common, classes=2, policy=policy, name="b")
    for _ in range(12):
        board.accept("a", mine.partial_release())
        other.round()
        mine.absorb(board.teach("a", Wants(0, 0)))
    other.learner.absorb(board.teach("b", Wants(0, 0)))
    expected = other.probabilities(torch.from_numpy(x).float()).numpy()
    assert mine.predict_proba(x) == pytest.approx(expected, abs=1e-3)
    assert other.learner.model.total.samples == 300


def test_two_of_them_learn_through_a_real_relay(table, tmp_path):
    x, y = table
    words = ("--class-names", "ill", "well", "--space", "fourier", "features=64")
    create_task(tmp_path, "cells", "--input-shape", 30, *words)
    tokens = [invite(tmp_path, name, "--task", "cells") for name in ("north", "south")]
    with start_relay(tmp_path) as relay, ExitStack() as stack:
        parties = {}
        for place, token in enumerate(tokens):
            exchange = stack.enter_context(RelayExchange(relay.url, token=token))
            mine = np.flatnonzero(y == place)[:60]  # one has those who are ill, the other those who are well
            parties[exchange] = CommonSpaceClassifier(accept_exposure=True, task=exchange.describe().agreed).fit(
                x[mine], y[mine]
            )
        alone = [party.score(x, y) for party in parties.values()]
        for _ in range(8):
            for exchange, party in parties.items():
                exchange.publish(party.partial_release())
                party.absorb(exchange.collect(Wants(0, 0)))
        for exchange, party in parties.items():
            party.absorb(exchange.collect(Wants(0, 0)))
    first, second = parties.values()
    assert np.array_equal(first.decision_function(x), second.decision_function(x))
    assert max(alone) < 0.6 < 0.85 < first.score(x, y)


def test_a_party_knows_a_class_of_which_it_has_no_sample(table):
    x, y = table
    parties = {
        str(label): CommonSpaceClassifier(accept_exposure=True, **AGREED).fit(x[y == label], y[y == label])
        for label in (0, 1)
    }
    assert [set(party.predict(x)) for party in parties.values()] == [{0}, {1}]
    exchange_rounds(Board(parties["0"].task_), parties, 20)
    assert min(party.score(x, y) for party in parties.values()) > 0.9


def test_a_task_says_all_that_is_agreed_on(table):
    x, y = table
    words = np.array(["healthy", "ill"])[y]
    first = CommonSpaceClassifier(accept_exposure=True, **{**AGREED, "classes": ("healthy", "ill")}).fit(x, words)
    second = CommonSpaceClassifier(accept_exposure=True, task=first.task_, precision="fp32").fit(x, words)
    assert clone(second).fit(x, words).partial_release() == second.partial_release() == first.partial_release()
    numbered = CommonSpaceClassifier(accept_exposure=True, task=first.task_).fit(x, y)
    assert numbered.predict(x).tolist() == [["healthy", "ill"].index(word) for word in second.predict(x)]


def test_the_same_step_is_released_until_a_total_comes(table):
    x, y = table
    party = CommonSpaceClassifier(accept_exposure=True, **AGREED).fit(x, y)
    first, again = (wire.decode_release(party.partial_release()) for _ in range(2))
    assert (first.round, again.round) == (1, 2)
    assert np.array_equal(first.means.vectors, again.means.vectors)
    board = Board(party.task_)
    board.accept("a", wire.encode_release(again))
    party.absorb(board.teach("a", Wants(0, 0)))
    assert not np.array_equal(wire.decode_release(party.partial_release()).means.vectors, again.means.vectors)


def test_what_does_not_fit_is_refused(table):
    x, y = table
    party = CommonSpaceClassifier(accept_exposure=True, **AGREED).fit(x, y)
    other = CommonSpaceClassifier(accept_exposure=True, **{**AGREED, "seed": 1}).fit(x, y)
    board = Board(other.task_)
    with pytest.raises(Refused, match="the task's vectors are in fourier"):
        board.accept("a", party.partial_release())
    board.accept("b", other.partial_release())
    with pytest.raises(Malformed, match="the teacher is of the space"):
        party.absorb(board.teach("a", Wants(0, 0)))
    with pytest.raises(ConfigError, match="the label 1 is none of the classes 0, 2"):
        CommonSpaceClassifier(accept_exposure=True, classes=(0, 2)).fit(x, y)
    with pytest.raises(ConfigError, match="there are 3 classes here, and 2 in the task"):
        CommonSpaceClassifier(accept_exposure=True, classes=(0, 1, 2), task=party.task_).fit(x, y)
    with pytest.raises(ConfigError, match="the space patches with the loss squared needs PyTorch"):
        CommonSpaceClassifier(accept_exposure=True, task=Agreement(Patches((1, 8, 8), sizes=(3,))).task(2)).fit(x, y)
    with pytest.raises(ConfigError, match="discriminant needs PyTorch"):
        task = Agreement(Fourier((-4.0,) * x.shape[1], (4.0,) * x.shape[1]), "discriminant").task(2)
        CommonSpaceClassifier(accept_exposure=True, task=task, accept_space=True).fit(x, y)


def test_columns_that_nobody_standardised_are_told(table):
    x, y = table
    CommonSpaceClassifier(features=64).fit(x, y)  # some values are beyond 4, as of any standardised columns
    with pytest.warns(UserWarning, match=r"columns reach 50, but values count from -4\.0 to 4\.0"):
        CommonSpaceClassifier(features=64).fit(np.where(np.arange(30) == 3, 50.0, x), y)
