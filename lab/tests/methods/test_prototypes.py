"""FedProto against its formulas in plain loops, and in the simulator."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from repshare import Client, LeNet5, LocalExchange, Task
from repshare.board import Wants
from repshare.errors import ConfigError, Malformed
from repshare.methods import METHODS
from repshare.network.learner import Batch
from repshare.samples import Samples
from repshare.sharing import wire
from repshare_lab.config import Run, Setting
from repshare_lab.methods import find_method
from support.simulations import bits

FEDPROTO = METHODS["FEDPROTO"]
SMALL = Setting(
    dataset="digits", samples=150, clients=3, rounds=3, model=("lenet5", "mlp"), partition="shards",
    classes_per_client=4, dropout=0.2,
)  # fmt: skip


def test_without_its_weight_and_prototypes_it_is_independent_learning(splits, inline):
    words = ("FEDPROTO.weight=0", "FEDPROTO.decide=head")
    alone, proto = (bits(Run(name, 0, replace(SMALL, method_options=words[:n])), splits, inline)
                    for name, n in (("IL", 0), ("FEDPROTO", 2)))  # fmt: skip
    for one, other in zip(sum(map(tuple, alone), ()), sum(map(tuple, proto), ()), strict=True):
        assert (one.ce, one.test_own) == (other.ce, other.test_own)
        assert other.bytes_up > 0


def parties(digits):
    """Two clients with classes 0 to 4 and 3 to 7: they share two, and nobody has 8 and 9."""
    (images, labels), _ = digits
    server, found = FEDPROTO.serve(Task(10, 84)), []
    for name, own in (("a", range(5)), ("b", range(3, 8))):
        rows = [row for row, label in enumerate(labels[:200].tolist()) if label in own]
        torch.manual_seed(len(name))
        found.append(
            Client(LeNet5(), (images[rows], labels[rows]), LocalExchange(server, name), name=name, method=FEDPROTO)
        )
    return server, found


def test_prototypes_are_means_over_all_samples_of_a_class_whoever_has_them(digits):
    server, both = parties(digits)
    for client in both:
        client.round()
    expected = np.zeros((10, 84))
    vectors, labels = (
        np.concatenate(each) for each in zip(*(client.learner.represent() for client in both), strict=True)
    )
    for label in range(8):
        expected[label] = vectors[labels == label].mean(axis=0)
    both[0].learner.absorb(server.teach("a", Wants(0, 0)))
    kept = both[0].learner.remembered
    assert kept["prototypes"].numpy() == pytest.approx(expected, abs=1e-5)
    assert kept["known"].tolist() == [True] * 8 + [False] * 2


def test_the_loss_and_the_decision_are_their_formulas(digits):
    server, (client, other) = parties(digits)
    for each in (client, other):
        each.round()
    learner = client.learner
    learner.absorb(server.teach("a", Wants(0, 0)))
    prototypes = learner.remembered["prototypes"].numpy()
    (images, labels), (tested, truth) = digits
    features, logits = learner.network(images[:30])
    here = features.detach().numpy()
    expected = 0.0
    for label in set(labels[:30].tolist()) - {8, 9}:
        mean = here[labels[:30].numpy() == label].mean(axis=0)
        expected += ((mean - prototypes[label]) ** 2).sum() / 84
    assert expected > 0.001
    assert learner.own_loss(Batch(None, labels[:30], features, logits)).item() == pytest.approx(expected, rel=1e-4)
    features = client.features(tested).numpy()
    nearest = [np.linalg.norm(prototypes[:8] - row, axis=1).argmin() for row in features]
    assert client.predict(tested).tolist() == nearest
    assert learner.scores(Samples((tested, truth)))[:, 8:].max() == -np.inf  # nobody has these
    assert learner.evaluate(Samples((tested, truth))).accuracy > 0.15


def test_totals_that_do_not_fit_and_wrong_options_are_refused(digits):
    _, (client, _) = parties(digits)
    empty = {"sums": np.zeros((10, 84), np.float32), "counts": np.zeros(10, np.float32)}
    with pytest.raises(Malformed, match="no prototype of any class"):
        client.learner.absorb(wire.encode_weights(empty, round=1, samples=1))
    with pytest.raises(Malformed, match="another architecture"):
        client.learner.absorb(wire.encode_weights({"sums": empty["sums"]}, round=1, samples=1))
    for word, why in (("weight=-1", "weight must be at least 0"), ("decide=both", "decide cannot be 'both'")):
        with pytest.raises(ConfigError, match=why):
            find_method("FEDPROTO", Setting(method_options=(f"FEDPROTO.{word}",)))
