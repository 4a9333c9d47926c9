"""Many clients of a common classifier in one process: what they share changes no bit, whoever is beside them."""

from dataclasses import replace

import numpy as np
import pytest

from repshare.errors import Refused
from repshare.space.agreement import Agreement
from repshare.space.dual import Dual
from repshare.space.solution import Total
from repshare_lab.config import Setting
from repshare_lab.simulation import rounds
from repshare_lab.simulation.plan import make_run
from repshare_lab.simulation.rounds import Simulation
from repshare_lab.simulation.shared_space import SharedAgreement
from support.simulations import bits

CROWD = Setting(
    dataset="digits", samples=90, clients=24, rounds=4, eval_every=2, model=("mlp",), space=("patches", "filters=4"),
    partition="dirichlet", dropout=0.3,
)  # fmt: skip


@pytest.fixture(scope="module")
def expected(splits, inline):
    return bits(make_run("CS", 0, CROWD), splits, inline)


@pytest.mark.parametrize("method", ["CS", "RS"])
@pytest.mark.parametrize("size", [1, 7])
def test_it_does_not_matter_how_many_are_handled_at_once(splits, inline, monkeypatch, method, size):
    """In RS, each client gets an answer of its own."""
    run = make_run(method, 0, replace(CROWD, rounds=3))
    expected = bits(run, splits, inline)
    monkeypatch.setattr(rounds, "PLAYED_AT_ONCE", 3 * size)
    assert bits(run, splits, inline) == expected


def test_a_total_that_others_have_read_gives_the_bits_of_one_that_nobody_has(splits, inline, expected, monkeypatch):
    """Nothing is remembered here: every client reads, solves and is tested for itself."""
    for name in ("embed", "read", "scores"):
        monkeypatch.setattr(SharedAgreement, name, getattr(Agreement, name))
    assert bits(make_run("CS", 0, CROWD), splits, inline) == expected


def test_clients_that_differ_do_not_share_a_solution():
    """One is in the total and one is not, and one fixes its shrinkage."""
    vectors = np.random.default_rng(0).standard_normal((2, 12, 40)).astype(np.float32)
    vectors *= 40**0.5 / np.linalg.norm(vectors, axis=2, keepdims=True)
    labels = np.arange(12) % 3

    def make(shrinkage=None, published=False):
        dual = Dual(vectors[0], labels, 3, shrinkage=shrinkage)
        if published:
            dual.improve()
            dual.acknowledge()
        return dual

    other = Dual(vectors[1], labels, 3)
    other.improve()
    part = other.part()._replace(samples=50)
    shared, kinds = Total(part), [{}, {"published": True}, {"shrinkage": 0.3}]

    def learn(dual, total):
        dual.absorb(total)
        gap = dual.improve()
        return [gap, *dual.linear(), dual.improved.alpha, dual.part().vectors]

    for kind in (*kinds, *kinds):
        together, alone = learn(make(**kind), shared), learn(make(**kind), Total(part))
        assert all(np.array_equal(a, b) for a, b in zip(together, alone, strict=True)), kind


def test_clients_of_one_total_have_one_classifier(splits, inline):
    simulation = Simulation(make_run("CS", 0, replace(CROWD, dropout=0.0)), splits, inline, None)
    simulation.play(tuple(range(24)))
    simulation._test(tuple(range(24)), simulation.play(tuple(range(24))))
    learners = [inline._worker.client(index).learner for index in range(24)]
    assert len({id(learner.classifier()) for learner in learners}) == 1


def test_a_release_that_is_refused_among_many_is_named(splits, inline):
    simulation = Simulation(make_run("CS", 0, replace(CROWD, clients=9)), splits, inline, None)
    simulation.play(tuple(range(9)))
    kept = simulation.server.store.items()
    late = {index: kept[f"release/client {index + 1}"] for index in range(9)}
    simulation.play(tuple(range(5)))
    with pytest.raises(Refused, match="round 3, client 1: client 1 published round 2 already: 1 is older"):
        simulation._accept(late)


def test_what_a_client_published_is_not_kept_with_it(splits, inline):
    simulation = Simulation(make_run("CS", 0, CROWD), splits, inline, None)
    simulation.play(tuple(range(24)))
    assert {inline._worker.client(index).exchange for index in range(24)} == {None}
