"""The records of a simulated run, whole or interrupted."""

from dataclasses import replace

from repshare_lab.simulation import Checkpoint, simulate


def bits(run, splits, workers, **options):
    """Everything that a run tells, but for how long it took."""
    return plain(simulate(run, splits, workers, **options))


def plain(rounds):
    """The records of these rounds, but for how long they took."""
    return [[replace(record, seconds=0.0) for record in records] for records in rounds]


def resumed_bits(run, splits, workers, folder, *, after=2):
    """The same of the rounds that follow, where the run was interrupted after some of them."""
    rounds = simulate(run, splits, workers, Checkpoint(folder, run))
    for _ in range(after):
        next(rounds)
    rounds.close()
    return bits(run, splits, workers, checkpoint=Checkpoint(folder, run))
