"""Who is whose neighbour; and what clients learn from neighbours alone."""

import random
from dataclasses import replace
from typing import get_args

import pytest

from repshare.board import Wants
from repshare.config import Policy
from repshare.errors import ConfigError
from repshare_lab.config import Run, Setting, Topology
from repshare_lab.simulation import Processes, simulate
from repshare_lab.simulation.rounds import Simulation
from repshare_lab.simulation.topology import is_connected, make_graph

KINDS = get_args(Topology)
SMALL = Setting(dataset="digits", samples=200, clients=6, rounds=4, eval_every=4, model=("lenet5",))


def graph(kind, clients=12, seed=0, degree=4, chance=0.3):
    return make_graph(kind, clients, random.Random(seed), degree=degree, chance=chance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clients", [1, 2, 3, 12])
def test_neighbours_are_mutual_and_nobody_is_its_own(kind, clients):
    made = graph(kind, clients)
    assert len(made) == clients
    for client, others in enumerate(made):
        assert client not in others
        assert list(others) == sorted(set(others))
        assert all(client in made[other] for other in others)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_graph(kind):
    assert graph(kind, seed=3) == graph(kind, seed=3)


@pytest.mark.parametrize("kind", ["random", "regular", "small_world"])
def test_another_seed_gives_another_graph(kind):
    assert len({tuple(graph(kind, seed=seed)) for seed in range(5)}) > 1


def test_each_kind_is_what_its_name_says():
    assert graph("complete", 4) == [(1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2)]
    assert graph("ring", 4) == [(1, 3), (0, 2), (1, 3), (0, 2)]
    assert graph("star", 4) == [(1, 2, 3), (0,), (0,), (0,)]
    assert graph("random", chance=0.0) == [()] * 12
    assert graph("random", chance=1.0) == graph("complete")
    assert graph("small_world", degree=2, chance=0.0) == graph("ring")


@pytest.mark.parametrize(("clients", "degree"), [(12, 3), (11, 4), (30, 2), (10, 9), (2, 1)])
def test_in_a_regular_graph_everyone_has_as_many_neighbours_and_all_are_connected(clients, degree):
    for seed in range(10):
        made = graph("regular", clients, seed, degree)
        assert {len(others) for others in made} == {degree}
        assert is_connected(made)


def test_a_small_world_has_as_many_links_as_its_ring_but_some_lead_elsewhere():
    made, lattice = graph("small_world", 40, chance=0.3), graph("small_world", 40, chance=0.0)
    assert sum(map(len, made)) == sum(map(len, lattice)) == 40 * 4
    assert sum(set(a) != set(b) for a, b in zip(made, lattice, strict=True)) > 0


def test_a_graph_in_two_pieces_is_not_connected():
    assert is_connected([(1,), (0,)])
    assert not is_connected([(1,), (0,), (3,), (2,)])


def test_what_cannot_be_is_refused_before_anything_starts():
    for wrong in (
        {"topology": "tree"},
        {"topology": "regular", "degree": 6},
        {"topology": "regular", "degree": 3, "clients": 5},
        {"link_chance": 1.5},
        {"degree": 0},
    ):
        with pytest.raises(ConfigError):
            replace(SMALL, **wrong)


def play(splits, workers, method="RS", seed=0, **changes):
    run = Run(method, seed, replace(SMALL, **changes))
    return [[replace(record, seconds=0.0) for record in records] for records in simulate(run, splits, workers)]


def test_with_a_topology_too_any_number_of_workers_gives_the_same_bits(splits, inline):
    with Processes(2) as workers:
        assert play(splits, workers, topology="ring") == play(splits, inline, topology="ring")


def test_methods_without_a_board_do_not_notice(splits, inline):
    for method in ("IL", "FL"):
        assert play(splits, inline, method, topology="ring") == play(splits, inline, method)
    assert play(splits, inline, topology="ring") != play(splits, inline)


def test_each_round_as_many_neighbours_are_drawn_as_observations_are_wanted(splits, inline):
    policy = Policy(m_down=2)
    for method in ("RS", "FD"):  # which has none, and as many neighbours
        simulation = Simulation(Run(method, 0, replace(SMALL, topology="ring", policy=policy)), splits, inline, None)
        assert {simulation._gossip(0, number).peers for number in range(20)} <= {
            ("client 2", "client 6"), ("client 6", "client 2"),
        }  # fmt: skip
    simulation = Simulation(Run("RS", 0, replace(SMALL, topology="complete")), splits, inline, None)
    drawn = {simulation._gossip(0, number).peers for number in range(60)}
    assert drawn == {(f"client {number}",) for number in range(2, 7)}


def test_global_means_are_those_of_the_neighbours_alone(splits, inline):
    from repshare.sharing import wire

    run = Run("RS", 0, replace(SMALL, topology="star", policy=Policy(m_down=5)))
    simulation = Simulation(run, splits, inline, None)
    for attendance in [((*range(6),), {})]:
        simulation.play(attendance)
    hub = wire.decode_release(simulation.server.store.items()["release/client 1"])
    teacher = wire.decode_teacher(simulation._teach({3: simulation._gossip(3, 2)})[3])
    assert teacher.means.labels.tolist() == hub.means.labels.tolist()
    assert abs(teacher.means.vectors - hub.means.vectors).max() < 1e-6
    usual = simulation._wants(3, 2)
    assert simulation._teach({3: usual}) == {3: simulation.server.teach("client 4", usual)}


def test_traffic_is_what_is_downloaded_and_does_not_grow_with_the_number_of_clients(splits, inline):
    few, many = (
        play(splits, inline, topology="complete", clients=clients, samples=clients * 40, policy=Policy(m_down=2))[-1]
        for clients in (4, 12)
    )
    # Every class is held by everyone here, so that all releases have the same length.
    down = {record.bytes_down for record in [*few, *many]}
    up = {record.bytes_up for record in [*few, *many]}
    assert max(down) == 2 * max(up)


def test_a_policy_narrows_the_neighbours_down(splits, inline):
    policy = Policy(peers=("client 2", "client 4"), m_down=3)
    simulation = Simulation(Run("RS", 0, replace(SMALL, topology="ring", policy=policy)), splits, inline, None)
    assert simulation._gossip(0, 1) == Wants(3, simulation._wants(0, 1).seed, ("client 2",))
