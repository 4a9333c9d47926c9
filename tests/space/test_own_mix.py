"""Own class shares in the scores: better on a client's own mix, nothing more sent, and probabilities that add up."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from repshare import Board, Client, LocalExchange, Policy, load_classifier
from repshare.errors import ConfigError
from repshare.samples import Samples
from repshare.space import Patches
from repshare.space.agreement import Agreement

COMMON = Agreement(Patches((1, 8, 8), sizes=(3,), filters=4))
POLICY = Policy(minimum_count=1, accept_exposure=True)


def parties(digits, **policy):
    """Two clients: one with mostly 0 to 2 of the digits 0 to 5, the other with mostly 3 to 5."""
    (images, labels), (test, tested) = digits
    board, found = Board(COMMON.task(10)), []
    for name, often in (("one", labels < 3), ("other", (labels >= 3) & (labels < 6))):
        rare = torch.where(~often & (labels < 6))[0][:12]
        rows = torch.cat([torch.where(often)[0][:60], rare])
        given = {"test": (test, tested), "classes": 10, "space": COMMON, "name": name}
        data = images[rows], labels[rows]
        exchange = LocalExchange(board, name)
        found.append(Client(None, data, exchange, policy=replace(POLICY, **policy), **given))
    for _ in range(4):
        for client in found:
            assert client.round().trouble is None
    return found, board


def own_accuracy(client, digits):
    """Its accuracy on test samples as often of each class as its own data."""
    counts = np.bincount(client.samples.labels.numpy(), minlength=10)
    return client.learner.evaluate(client.test).weighted(counts)


def test_it_gains_on_the_clients_own_mix_and_shares_nothing_more(digits):
    (plain, _), _ = parties(digits)
    (adjusted, _), _ = parties(digits, own_mix=True)
    assert own_accuracy(adjusted, digits) > own_accuracy(plain, digits) + 0.02
    assert adjusted.learner.release(5) == plain.learner.release(5)


def test_its_file_is_the_classifier_for_the_own_mix_with_probabilities(digits, tmp_path):
    (client, _), _ = parties(digits, own_mix=True)
    (tmp_path / "own.safetensors").write_bytes(client.learner.files(4)["classifier.safetensors"])
    classify = load_classifier(tmp_path / "own.safetensors")
    assert classify.in_use == "own mix"
    images = digits[1][0]
    expected = client.learner.probabilities(client.learner.scores(Samples((images, digits[1][1]))))
    found = classify.probabilities(images).numpy()
    assert np.allclose(found, expected, atol=1e-5)
    assert np.allclose(found.sum(axis=1), 1, atol=1e-5)
    right = (found.argmax(axis=1) == digits[1][1].numpy())[digits[1][1].numpy() < 3]
    confidence = found.max(axis=1)[digits[1][1].numpy() < 3]
    assert confidence.mean() == pytest.approx(right.mean(), abs=0.15), "the factor makes them probabilities"


def test_it_is_for_the_squared_loss(digits):
    with pytest.raises(ConfigError, match="own_mix is for the loss squared"):
        Client(None, digits[0], space=COMMON._replace(loss="discriminant"), policy=Policy(own_mix=True))
