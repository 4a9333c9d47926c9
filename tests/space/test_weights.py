"""Weights by class and by sample: everywhere what the pooled weighted closed form gives, and what they are for."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine
from sklearn.linear_model import Ridge

from repshare import Client, CommonSpaceClassifier, LocalExchange, Policy
from repshare.board import Board, Wants
from repshare.errors import ConfigError
from repshare.sharing import wire
from repshare.space import Fourier, moments
from repshare.space.agreement import Agreement, read_agreement
from repshare.space.dual import Dual

SHRINKAGE, CLASSES, WEIGHTS = 0.01, 3, (1.0, 0.25, 8.0)
SPACE = Fourier((-4.0,) * 13, (4.0,) * 13, features=64)
AGREED = Agreement(SPACE, shrinkage=SHRINKAGE, class_weights=WEIGHTS)


@pytest.fixture(scope="module")
def wine():
    x, y = load_wine(return_X_y=True)
    return ((x - x.mean(axis=0)) / x.std(axis=0)).astype(np.float32), y


def pooled_scores(vectors, labels, weights):
    """Scores of weighted ridge regression on all samples, by scikit-learn."""
    vectors = vectors.astype(np.float64)
    centre = weights @ vectors / weights.sum()
    spread = weights @ np.square(vectors - centre).sum(axis=1)  # Σ w τ
    return Ridge(alpha=SHRINKAGE * spread).fit(vectors, np.eye(CLASSES)[labels], weights).predict(vectors)


def learn(duals, agreement, rounds):
    """Rounds of all clients over a board; then the total."""
    board = Board(replace(agreement.task(CLASSES), compared=True))
    for number in range(1, rounds + 1):
        for name, dual in enumerate(duals):
            dual.improve()
            board.accept(str(name), wire.encode_release(dual.release(number, agreement.name), "fp32"))
            dual.acknowledge()
        for name, dual in enumerate(duals):
            dual.absorb(agreement.read(board.teach(str(name), Wants(0, 0)), CLASSES))


def split(labels, kind):
    everyone = np.random.default_rng(0).permutation(len(labels))
    if kind == "a class each":
        return [np.flatnonzero(labels == label) for label in range(CLASSES)]
    return np.split(everyone, [30, 100])


@pytest.mark.parametrize("kind", ["unequal", "a class each"])
@pytest.mark.parametrize("few", [4000, 10], ids=["pairs of samples", "d x d"])
def test_any_split_reaches_weighted_ridge_regression_on_all_samples(wine, kind, few, monkeypatch):
    monkeypatch.setattr(moments, "FEW", few)
    vectors, labels = SPACE(wine[0]), wine[1]
    by_class = AGREED.scale_weights(CLASSES)
    duals = [
        Dual(vectors[rows], labels[rows], CLASSES, shrinkage=SHRINKAGE, weights=by_class[labels[rows]])
        for rows in split(labels, kind)
    ]
    learn(duals, AGREED, 200)
    expected = pooled_scores(vectors, labels, np.array(WEIGHTS)[labels])
    for dual in duals:
        assert dual.linear()(vectors.astype(np.float64)) == pytest.approx(expected, abs=1e-6)
        assert dual.improve() < 1e-10


def test_leave_one_out_is_what_a_weighted_classifier_without_the_sample_says(wine):
    vectors, labels = SPACE(wine[0][::3]), wine[1][::3]
    weights = AGREED.scale_weights(CLASSES)[labels]
    dual = Dual(vectors, labels, CLASSES, weights=weights, alone=True)
    ρ, expected = 3.0, []
    shares = weights / weights.sum()
    spread = float(weights.mean() * (vectors.shape[1] - np.square(shares @ vectors).sum()))
    for out in range(len(labels)):
        rest = np.arange(len(labels)) != out
        ridge = Ridge(alpha=ρ * spread).fit(vectors[rest], np.eye(CLASSES)[labels[rest]], weights[rest])
        expected.append(ridge.predict(vectors[out : out + 1]).argmax() == labels[out])
    gram = (vectors @ vectors.T).astype(np.float64)
    assert dual._vote(gram, (ρ,))[:, 0].tolist() == expected
    assert 0 < sum(expected) < len(expected)


def test_weights_of_samples_are_repetitions_and_have_the_closed_form(wine):
    x, y = wine
    weights = np.random.default_rng(1).integers(0, 4, len(y))
    given = {"low": -4.0, "high": 4.0, "features": 64, "shrinkage": SHRINKAGE, "accept_exposure": True}
    weighted = CommonSpaceClassifier(**given).fit(x, y, sample_weight=weights)
    repeated = CommonSpaceClassifier(**given).fit(np.repeat(x, weights, axis=0), np.repeat(y, weights))
    expected = pooled_scores(SPACE(x), y, weights.astype(float))
    assert weighted.decision_function(x) == pytest.approx(expected, abs=2e-6)
    assert weighted.decision_function(x) == pytest.approx(repeated.decision_function(x), abs=2e-6)
    with pytest.raises(ConfigError, match="others do not know these weights"):
        weighted.partial_release()


def test_balanced_is_weights_by_class_of_the_own_labels(wine):
    x, y = wine
    counts = Counter(y.tolist())
    given = {"features": 64, "shrinkage": SHRINKAGE, "accept_exposure": True}
    balanced = CommonSpaceClassifier(class_weight="balanced", **given).fit(x, y)
    stated = CommonSpaceClassifier(class_weight={label: 5 / counts[label] for label in counts}, **given).fit(x, y)
    assert balanced.decision_function(x) == pytest.approx(stated.decision_function(x), abs=1e-6)
    assert stated.partial_release()
    with pytest.raises(ConfigError, match="agree on class_weight"):
        balanced.partial_release()


def learn_of_a_rare_class(wine, seed, weights):
    """Recall, at all three hospitals, of a class of which three patients are at one; and the mean of the others."""
    (x, y), rng = wine, np.random.default_rng(seed)
    rare, *rest = (rng.permutation(np.flatnonzero(y == label)) for label in (2, 0, 1))
    first, second = rest
    rows = [np.concatenate(each) for each in ((rare[:3], first[:20]), (first[20:30], second[:25]), (second[25:45],))]
    common = Agreement(SPACE, class_names=("a", "b", "c"), class_weights=weights)
    board, policy = Board(replace(common.task(CLASSES), compared=True)), Policy(minimum_count=1, accept_exposure=True)
    clients = [
        Client(
            data=(torch.from_numpy(x[own]), y[own]), exchange=LocalExchange(board, str(number)), name=str(number),
            policy=policy, space=common, seed=seed,
        )
        for number, own in enumerate(rows)
    ]  # fmt: skip
    for _ in range(20):
        assert [client.round().trouble for client in clients] == [None] * 3
    test = np.setdiff1d(np.arange(len(y)), np.concatenate(rows))
    right = clients[1].learner.agreement.vectors(x[test])
    right = clients[1].learner.model.linear()(right).argmax(axis=1) == y[test]
    counts = wire.decode_teacher(board.teach("a test", Wants(0, 0))).means
    assert board.task.layout.count_classes(counts, CLASSES, SPACE.dimension) == [30, 45, 3]  # of samples, not weights
    return [float(right[y[test] == label].mean()) for label in (2, 0, 1)]


def test_three_patients_of_a_class_are_found_with_weights(wine):
    plain, weighted = (
        np.mean([learn_of_a_rare_class(wine, seed, weights) for seed in range(4)], axis=0)
        for weights in ((), (1, 1, 12))
    )
    assert weighted[0] >= 0.9 > 0.75 > plain[0]
    assert weighted.mean() > plain.mean()


def test_a_task_states_the_weights_and_others_are_refused():
    task = AGREED.task(CLASSES)
    assert read_agreement(task.description) == AGREED
    assert AGREED.name != AGREED._replace(class_weights=()).name != AGREED._replace(class_weights=(1, 1, 2)).name
    for wrong in ((1.0, 2.0), (1.0, 0.0, 2.0), (1.0, 1.0, float("inf")), (1e-10, 1.0, 1.0)):
        with pytest.raises(ConfigError, match="the weights of classes must be 3 numbers above 0"):
            AGREED._replace(class_weights=wrong).task(CLASSES)
    with pytest.raises(ConfigError, match="for the loss squared"):
        AGREED._replace(loss="discriminant").task(CLASSES)
