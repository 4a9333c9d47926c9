"""Wherever in a run processes take over, the bits and the checkpoints are those of one process."""

from contextlib import closing
from dataclasses import replace
from itertools import count, islice

import pytest

from repshare.config import Run, Setting
from repshare.simulation import Checkpoint, Inline, growing, simulate
from repshare.simulation.growing import Growing
from repshare.simulation.pools import Processes

SMALL = Setting(dataset="digits", samples=120, clients=4, rounds=4, eval_every=2, model=("lenet5",))


def plain(rounds):
    return [[replace(record, seconds=0.0) for record in records] for records in rounds]


def moving(monkeypatch, after):
    """Workers that move when they have looked at the clock this many times."""
    monkeypatch.setattr(growing, "MOVE_SECONDS", after)
    return Growing(2, clock=count(1.0).__next__)


@pytest.fixture
def inline():
    with Inline() as workers:
        yield workers


@pytest.mark.parametrize("method", ["IL", "FL", "RS", "SL", "CS"])
@pytest.mark.parametrize(
    "after", [0, 3, 9, 13]
)  # at the first client, in a round, in a test (or before it), in a later round
def test_the_bits_are_those_of_one_process(method, after, splits, inline, monkeypatch):
    run = Run(method, 0, SMALL)
    with moving(monkeypatch, after) as workers:
        assert plain(simulate(run, splits, workers)) == plain(simulate(run, splits, inline))
        assert workers.count == 2


@pytest.mark.parametrize("after", [2, 6, 14])
def test_a_checkpoint_lists_clients_that_moved_and_keeps_no_other_files(after, splits, inline, monkeypatch, tmp_path):
    run = Run("RS", 0, replace(SMALL, participation=0.5, rounds=8))
    whole = plain(simulate(run, splits, inline))
    for stop in (1, 2, 3, 5):
        folder = tmp_path / str(stop)
        with moving(monkeypatch, after) as workers:
            steps = simulate(run, splits, workers, Checkpoint(folder, run), checkpoint_every=2)
            with closing(steps) as rounds:
                first = plain(islice(rounds, stop))
        listed = Checkpoint(folder, run).manifest.clients
        assert len([*folder.rglob("*.state")]) == len(listed) + 1  # the server's
        assert first + plain(simulate(run, splits, inline, Checkpoint(folder, run))) == whole


def test_processes_do_not_start_for_little_work(splits, monkeypatch):
    monkeypatch.setattr(Processes, "__enter__", lambda self: pytest.fail("started"))
    monkeypatch.setattr(growing, "prepare", lambda: pytest.fail("prepared"))
    with Growing(2, clock=count(0.0, 0.01).__next__) as workers:
        assert len(list(simulate(Run("IL", 0, SMALL), splits, workers))) == SMALL.rounds


def test_the_next_run_begins_in_processes(splits, inline, monkeypatch):
    with moving(monkeypatch, 5) as workers:
        list(simulate(Run("IL", 0, SMALL), splits, workers))
        assert plain(simulate(Run("FL", 0, SMALL), splits, workers)) == plain(
            simulate(Run("FL", 0, SMALL), splits, inline)
        )
