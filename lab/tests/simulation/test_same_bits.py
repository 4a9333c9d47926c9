"""The same bits for every method: in any number of processes, with clients on disk, and after an interruption."""

from contextlib import closing
from dataclasses import replace
from itertools import islice

import pytest

from repshare.methods import METHODS
from repshare_lab.config import Setting
from repshare_lab.simulation import Checkpoint, Inline, Processes, resolve, simulate
from repshare_lab.simulation.plan import make_run
from support.simulations import bits, plain

SETTING = Setting(
    dataset="digits", samples=120, clients=5, rounds=4, eval_every=2, model=("mlp",), partition="dirichlet",
    space=("patches", "sizes=3", "filters=5"),
)  # fmt: skip
CASES = {
    "all there": {},
    "convolutions": {"model": ("lenet5",), "clients": 3, "partition": "uniform"},
    "absences": {"dropout": 0.3, "participation": 0.8},
}


@pytest.fixture(scope="module")
def places():
    """A process that keeps one client in memory, and two and three others."""
    with Inline(resident=1) as few, Processes(2) as two, Processes(3) as three:
        yield few, two, three


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("method", METHODS)
def test_a_run_has_the_same_bits_anywhere_and_after_an_interruption(method, case, splits, inline, places, tmp_path):
    run = make_run(method, 0, resolve(replace(SETTING, **CASES[case]), splits))
    whole = bits(run, splits, inline)
    assert len(whole) == run.setting.rounds
    assert not any(record.trouble for records in whole for record in records)
    few, two, three = places
    assert bits(run, splits, three) == whole
    for stop in range(1, len(whole), 2):  # the number of processes may change in between
        folder = tmp_path / str(stop)
        with closing(simulate(run, splits, two, Checkpoint(folder, run))) as rounds:
            first = plain(islice(rounds, stop))
        assert first + bits(run, splits, few, checkpoint=Checkpoint(folder, run)) == whole
