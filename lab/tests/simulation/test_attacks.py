from dataclasses import replace

import numpy as np
import pytest

from repshare.errors import ConfigError
from repshare.sharing import wire
from repshare.sharing.representations import Release, stack
from repshare_lab.config import Run, Setting
from repshare_lab.simulation import Inline, simulate
from repshare_lab.simulation.attacks import choose_attackers, poison, spoil
from repshare_lab.simulation.plan import make_plan, resolve
from repshare_lab.simulation.rounds import Simulation
from repshare_lab.simulation.schedule import attend

SMALL = Setting(dataset="digits", samples=200, clients=5, rounds=3, eval_every=3, model=("lenet5",))


def test_attackers_are_a_share_of_the_clients_and_the_seeds_choice():
    chosen = [choose_attackers(replace(SMALL, attackers=0.4), seed, 10) for seed in (0, 0, 1)]
    assert [len(liars) for liars in chosen] == [4, 4, 4]
    assert chosen[0] == chosen[1] != chosen[2]
    assert choose_attackers(SMALL, 0, 10) == frozenset()


@pytest.mark.parametrize(("attack", "factor"), [("flip", -1), ("scale", 100)])
def test_every_vector_is_spoilt_and_nothing_else(attack, factor):
    rows = stack([(np.array([1.0, 2.0]), 0, 3)], 2)
    spoilt = wire.decode_release(poison(wire.encode_release(Release(7, rows, rows)), attack))
    assert spoilt.round == 7
    for part in (spoilt.means, spoilt.observations):
        assert part.vectors.tolist() == [[factor, 2 * factor]]
        assert (part.labels.tolist(), part.counts.tolist()) == ([0], [3])


def test_liars_beyond_the_bound_are_refused_and_everyone_else_goes_on(splits):
    run = Run("RS", 0, replace(SMALL, attackers=0.4, attack="scale", norm_bound=84**0.5))
    with Inline() as workers:
        simulation = Simulation(run, splits, workers, None)
        simulation.play(next(attend(run.setting, run.seed, 5)))
        names = {member.name for member in simulation.server.status().shown}
    assert names == {f"client {client + 1}" for client in range(5) if client not in simulation.attackers}
    assert len(names) == 3


def test_lies_change_what_the_others_learn(splits):
    with Inline() as workers:
        honest, lied_to = (
            [record.ce for *_, last in [simulate(Run("RS", 0, setting), splits, workers)] for record in last]
            for setting in (SMALL, replace(SMALL, attackers=0.4))
        )
    assert honest != lied_to


def test_weights_cannot_be_lied_about_here(splits):
    with Inline() as workers, pytest.raises(ConfigError, match="attackers change representations: FL"):
        next(simulate(Run("FL", 0, replace(SMALL, attackers=0.4)), splits, workers))


def test_noise_replaces_the_images_of_those_who_lie_and_of_nobody_else(splits):
    setting = resolve(replace(SMALL, attackers=0.4, attack="noise"), 1200)
    honest, lied = (make_plan(Run("FL", 0, each), splits) for each in (replace(setting, attackers=0.0), setting))
    liars = choose_attackers(setting, 0, 5)
    for client in range(5):
        rows = honest.part(client)
        assert np.array_equal(honest.train_inputs[rows], lied.train_inputs[rows]) == (client not in liars)
    rows = np.concatenate([lied.part(client) for client in liars])
    assert abs(float(lied.train_inputs[rows].mean())) < 0.05
    assert 0.95 < float(lied.train_inputs[rows].std()) < 1.05
    assert np.array_equal(honest.train_labels, lied.train_labels)


def test_permuted_labels_are_all_wrong_and_still_tell_classes_apart():
    labels = np.arange(10).repeat(3)
    images, renamed = spoil(np.zeros((30, 1)), labels, np.arange(15), "permuted", 0, 10)
    assert (renamed[:15] != labels[:15]).all()
    assert np.array_equal(renamed[15:], labels[15:])
    assert len(set(zip(labels[:15].tolist(), renamed[:15].tolist(), strict=True))) == 5
    assert not images.any()


def test_clients_whose_data_lie_may_take_part_in_fedavg(splits):
    with Inline() as workers:
        setting = replace(SMALL, attackers=0.4, attack="noise")
        honest, lied = (list(simulate(Run("FL", 0, each), splits, workers)) for each in (SMALL, setting))
    assert [record.ce for record in honest[-1]] != [record.ce for record in lied[-1]]
