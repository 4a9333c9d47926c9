from itertools import islice

import numpy as np
import pytest

from repshare.errors import ConfigError
from repshare_lab.config import Setting
from repshare_lab.simulation.schedule import attend


def rounds(count=20, clients=50, seed=0, **changes):
    return list(islice(attend(Setting(clients=clients, rounds=count, **changes), seed, clients), count))


def test_without_faults_everyone_is_always_there():
    assert all(present == tuple(range(50)) for present in rounds())


def test_the_same_seed_gives_the_same_schedule_and_another_does_not():
    faults = {"participation": 0.5, "dropout": 0.2}
    assert rounds(**faults) == rounds(**faults) != rounds(seed=1, **faults)


def test_participation_draws_its_share_anew_each_round():
    attended = rounds(participation=0.1)
    assert {len(present) for present in attended} == {5}
    assert len(set(attended)) > 15
    assert len({client for present in attended for client in present}) > 40


def test_even_the_smallest_share_is_someone():
    assert all(len(present) == 1 for present in rounds(participation=0.001))


def test_dropout_misses_about_its_share_of_rounds():
    missed = 1 - np.mean([len(present) / 50 for present in rounds(count=200, dropout=0.3)])
    assert missed == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize(
    "change",
    [{"participation": 0}, {"participation": 1.5}, {"dropout": -0.1}, {"dropout": float("nan")}],
)
def test_shares_that_are_none_are_refused(change):
    with pytest.raises(ConfigError, match=next(iter(change))):
        Setting(**change)
