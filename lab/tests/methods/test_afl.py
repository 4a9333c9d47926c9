"""AFL against its equations in plain NumPy, and in the simulator."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from repshare import Client, LocalExchange
from repshare.board import Wants
from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.methods import METHODS
from repshare.sharing import wire
from repshare.space import Patches
from repshare.space.agreement import Agreement
from repshare_lab.config import Setting
from repshare_lab.methods import find_method
from repshare_lab.methods.afl import unpack
from repshare_lab.simulation.plan import make_run, resolve
from support.simulations import bits

COMMON = Agreement(Patches((1, 8, 8), sizes=(3,), filters=5))  # d = 90
D = COMMON.space.dimension
WORDS = ("patches", "sizes=3", "filters=5")
SMALL = Setting(
    dataset="digits", samples=150, clients=3, rounds=3, model=("lenet5", "mlp"), partition="dirichlet", alpha=0.3,
    dropout=0.2, space=WORDS,
)  # fmt: skip


def parties(digits, sizes=(60, 1, 40), **options):
    """Clients of so many samples, of classes 0 to 7: nobody has 8 and 9."""
    (images, labels), test = digits
    rows = np.flatnonzero(labels.numpy() < 8)
    method = METHODS["AFL"]
    method = method._replace(options=replace(method.options, **options))
    server, found, start = method.serve(COMMON.task(10), None, method.options), [], 0
    for place, size in enumerate(sizes):
        own, start = rows[start : start + size], start + size
        given = {
            "name": f"c{place}",
            "method": method,
            "space": COMMON,
            "classes": 10,
            "test": test,
            "policy": Policy(minimum_count=1),
        }
        found.append(Client(None, (images[own], labels[own]), LocalExchange(server, f"c{place}"), **given))
    return server, found


def together(digits, **given):
    """Everybody's vectors (n, d) and one-hot labels (n, C) in fp64, and the weights that the server made (C, d)."""
    server, clients = parties(digits, **given)
    records = [client.round(test=False) for client in clients]
    body = server.teach("", Wants(0, 0))
    assert all(record.bytes_up > 0 and not record.trouble for record in records)
    duals = [client.learner.model for client in clients]
    vectors = np.concatenate([dual.vectors for dual in duals]).astype(np.float64)
    targets = np.concatenate([dual.targets for dual in duals])
    return vectors, targets, wire.decode_weights(body)[0]["weights"], clients


def test_afl_is_the_ridge_regression_of_the_pooled_samples_exactly(digits):
    x, y, weights, _ = together(digits, ridge=3.0)
    expected = np.linalg.solve(x.T @ x + 3.0 * np.eye(D), x.T @ y)
    assert weights == pytest.approx(expected.T, abs=1e-7)
    _, _, other, _ = together(digits, ridge=3.0, intermediary=50.0)  # whatever the intermediary is
    assert other == pytest.approx(expected.T, abs=1e-7)


def test_afl_is_its_absolute_aggregation_law_two_by_two(digits):
    gamma = 2.0
    _, _, weights, clients = together(digits, ridge=0.5, intermediary=gamma)
    solved = []
    for client in clients:
        x, y = client.learner.model.vectors.astype(np.float64), client.learner.model.targets
        c = x.T @ x + gamma * np.eye(D)
        solved.append((np.linalg.inv(c) @ x.T @ y, c))
    (w, c), *others = solved
    for w_v, c_v in others:
        first = np.eye(D) - np.linalg.inv(c) @ c_v @ (np.eye(D) - np.linalg.inv(c + c_v) @ c_v)
        second = np.eye(D) - np.linalg.inv(c_v) @ c @ (np.eye(D) - np.linalg.inv(c + c_v) @ c)
        w, c = first @ w + second @ w_v, c + c_v
    final = np.linalg.inv(c - len(solved) * gamma * np.eye(D) + 0.5 * np.eye(D)) @ c @ w
    assert weights == pytest.approx(final.T, abs=1e-6)


def test_one_client_and_one_sample_are_enough(digits):
    for sizes in ((1,), (30,)):
        _, _, weights, _ = together(digits, sizes=sizes)
        assert np.isfinite(weights).all()
        assert weights.any()


def test_each_client_shares_once_and_only_from_enough_samples(digits):
    server, clients = parties(digits)
    first = [client.round(test=False).bytes_up for client in clients]
    taught = server.teach("", Wants(0, 0))
    assert [client.round(test=False).bytes_up for client in clients] == [0, 0, 0]
    assert server.teach("", Wants(0, 0)) == taught
    assert set(first) == {first[0]}
    assert 0 < first[0] - 8 * (D * (D + 1) // 2 + D * 10) < 300  # the upper triangle and C vectors, whoever shares them
    client = clients[0]
    client.learner.policy = replace(client.policy, minimum_count=61)
    arrays, _, samples = wire.decode_weights(client.learner.release(1))
    assert (arrays, samples) == ({}, 0)
    server.accept("other", wire.encode_weights({}, round=1, samples=0))
    assert server.teach("", Wants(0, 0)) == taught


def test_a_run_is_one_round_to_share_and_one_to_collect(splits, inline):
    setting = resolve(replace(SMALL, rounds=30, dropout=0.0), splits)
    assert [make_run(name, 0, setting).setting.rounds for name in ("AFL", "CS", "FL")] == [2, 10, 30]
    first, second = bits(make_run("AFL", 0, setting), splits, inline)
    assert [(one.bytes_up > 10_000, two.bytes_up) for one, two in zip(first, second, strict=True)] == [(True, 0)] * 3
    assert [0 < record.bytes_down - 4 * D * 10 < 200 for record in second] == [True] * 3
    assert [record.test_accuracy for record in first] == [record.test_accuracy for record in second]


def test_second_moments_of_fewer_samples_than_dimensions_show_whose_they_are(digits):
    """lab/notebook/privacy.md says so: a sample lies in their span, and no other image does."""
    _, (client, *_) = parties(digits, sizes=(40,))
    moments = wire.decode_weights(client.learner.release(1))[0]["moments"]
    gamma = client.learner.options.intermediary  # which everybody knows
    values, directions = torch.linalg.eigh(unpack(moments, D) - gamma * torch.eye(D))
    outside = directions[:, values < values.max() * 1e-6]
    others = COMMON.space(digits[0][0][200:240])
    own = torch.from_numpy(client.learner.model.vectors)
    members, strangers = ((x.double() @ outside).norm(dim=1) for x in (own, others))
    assert 40 < outside.shape[1] <= D
    assert members.max() < strangers.min() / 5


def test_what_cannot_work_is_refused(digits, splits):
    for word, why in (
        ("AFL.ridge=-1", "ridge must be"),
        ("AFL.intermediary=0", "intermediary must be above"),
    ):
        with pytest.raises(ConfigError, match=why):
            find_method("AFL", Setting(method_options=(word,)))
    with pytest.raises(ConfigError, match="leave peers out"):
        METHODS["AFL"].adapt(Policy(peers=("c1",)))
    with pytest.raises(ConfigError, match="epsilon"):
        METHODS["AFL"].adapt(Policy(epsilon=1.0))
    server, clients = parties(digits, ridge=0.0)  # 101 samples of 90 dimensions, but by far not independent
    clients[1].round(test=False)
    with pytest.raises(ConfigError, match="do not fill the 90 dimensions of the space: give a larger ridge"):
        server.teach("", Wants(0, 0))
