"""The methods in 200 lines of NumPy are those of the package."""

import sys
from pathlib import Path

import numpy as np
import torch

from repshare import Agreement, Board, Client, LocalExchange, Policy
from repshare.network import objective
from repshare.space import Fourier

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))
import mini  # noqa: E402

RNG = np.random.default_rng(0)


def test_it_is_short_and_imports_nothing_of_the_package() -> None:
    text = (ROOT / "examples/mini.py").read_text()
    assert len(text.splitlines()) <= 200
    assert "import repshare" not in text
    assert "from repshare" not in text


def test_losses_and_gradients_of_rs_are_the_packages() -> None:
    network = mini.Network(6, 4, seed=0)
    inputs, labels = RNG.standard_normal((30, 6)), RNG.integers(0, mini.CLASSES, 30)
    lesson = mini.Targets(RNG.uniform(-1, 1, (mini.CLASSES, 4)), RNG.uniform(-1, 1, (mini.CLASSES, 4)))
    hidden, shift, head, offset = (torch.from_numpy(each).requires_grad_() for each in network.weights)

    features = torch.tanh(torch.from_numpy(inputs) @ hidden + shift)
    means, observed = map(torch.from_numpy, lesson)
    there = torch.ones(mini.CLASSES, dtype=torch.bool)
    taught = objective.Targets(means, there, observed[None], there)
    truth = torch.from_numpy(labels)
    ce = objective.cross_entropy(features @ head + offset, truth)
    kd = objective.distillation(features, truth, taught)
    pairs = objective.contrast(features @ head + offset, (observed @ head + offset)[None], truth, there)
    disc = objective.discrimination(pairs)
    assert kd is not None
    assert disc is not None
    np.testing.assert_allclose(
        network.losses(inputs, labels, lesson), [each.item() for each in (ce, kd, disc)], rtol=1e-9
    )

    gradients = torch.autograd.grad(ce + 10 * kd + disc, (hidden, shift, head, offset))
    for own, theirs in zip(network.gradients(inputs, labels, lesson), gradients, strict=True):
        np.testing.assert_allclose(own, theirs.numpy(), rtol=1e-9, atol=1e-12)


def test_the_classifier_of_cs_is_the_packages(monkeypatch) -> None:
    monkeypatch.setattr(mini, "SHRINKAGE", 0.1)  # few rounds are enough
    space = Fourier(low=(-3.0,) * 6, high=(3.0,) * 6, features=24)
    centres = RNG.standard_normal((mini.CLASSES, 6))
    common = Agreement(space, shrinkage=mini.SHRINKAGE)
    board, clients, parties = Board(common.task(mini.CLASSES)), [], []
    for name in "abc":
        labels = np.arange(200) % mini.CLASSES
        inputs = (centres[labels] + RNG.standard_normal((200, 6)) / 2).astype(np.float32)
        given = {"name": name, "space": common, "policy": Policy(precision="fp32", held_out=0.0)}
        clients.append(Client(None, (inputs, labels), LocalExchange(board, name), **given))
        parties.append((space(inputs).astype(np.float64), labels))
    for _ in range(100):
        for client in clients:
            client.round(test=False)
    vectors = np.concatenate([each for each, _ in parties])
    pooled = mini.play_cs([(vectors, np.concatenate([each for _, each in parties]))], 1)(vectors)
    theirs = clients[0].learner.classifier()(vectors.astype(np.float32))
    np.testing.assert_allclose(mini.play_cs(parties, 100)(vectors), pooled, atol=1e-6)
    np.testing.assert_allclose(theirs, pooled, atol=1e-6)
