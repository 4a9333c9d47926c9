"""Who is whose neighbour; and what clients learn from neighbours alone."""

from dataclasses import replace

import pytest

from repshare.board import Wants
from repshare.config import Policy
from repshare.errors import ConfigError
from repshare_lab.config import Run, Setting
from repshare_lab.simulation import Processes, simulate
from repshare_lab.simulation.rounds import Simulation

SMALL = Setting(dataset="digits", samples=200, clients=6, rounds=4, eval_every=4, model=("lenet5",))


def test_everyone_knows_all_others_or_two_of_them(splits, inline):
    for kind, clients, expected in [("complete", 4, [2, 3, 0]), ("ring", 6, [0, 2]), ("ring", 2, [0]), ("ring", 1, [])]:
        run = Run("RS", 0, replace(SMALL, clients=clients, topology=kind))
        found = Simulation(run, splits, inline, None)._neighbours(min(1, clients - 1))
        assert found == sorted(expected), (kind, clients)


def test_a_topology_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError):
        replace(SMALL, topology="tree")


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

    run = Run("RS", 0, replace(SMALL, topology="ring", policy=Policy(m_down=1)))
    simulation = Simulation(run, splits, inline, None)
    simulation.play((*range(6),))
    wants = simulation._gossip(3, 2)
    hub = wire.decode_release(simulation.server.store.items()[f"release/{wants.peers[0]}"])
    teacher = wire.decode_teacher(simulation._teach({3: wants})[3])
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
