"""All attacks over a grid of settings: a line of results for each."""

from collections.abc import Generator
from typing import Any

import numpy as np

from repshare.errors import ConfigError
from repshare_lab.audit.bounds import judge
from repshare_lab.audit.grid import Grid
from repshare_lab.audit.membership import Case, attack, farthest, worst_case
from repshare_lab.audit.subject import Trained, guarded, train, unguarded
from repshare_lab.data import Splits

Line = dict[str, Any]
BROKEN = 0.5  # of the noise


def prepare(splits: Splits, grid: Grid) -> dict[int, Trained]:
    """Train a model for each size of a class."""
    fewest = int(np.bincount(splits.train.labels, minlength=splits.classes).min())
    if fewest < max(grid.class_sizes) + 1:
        raise ConfigError(f"class_sizes must be below {fewest}, the samples of the rarest class")
    return {size: train(splits.train, splits.classes, size + 1, grid.epochs) for size in grid.class_sizes}


def infer_membership(subjects: dict[int, Trained], grid: Grid) -> Generator[Line]:
    """Attack every setting in both cases: the worst there can be, and the worst among real samples."""
    share = BROKEN if grid.broken else 1.0
    for size, subject in subjects.items():
        dimension = subject.vectors.shape[1]
        cases = {"worst": worst_case(size, dimension, dimension**0.5), "real": _worst_real(subject)}
        for epsilon in (None, *grid.epsilons):
            for n_avg in grid.n_avgs:
                policy = grid.policy(epsilon, n_avg)
                released = unguarded(policy, size) if epsilon is None else guarded(policy, size, dimension, share=share)
                trials = grid.trials if released.deviation else 100  # what is certain needs no counting
                for name, case in cases.items():
                    worlds = attack(case, released.release, released.deviation, grid.releases, trials)
                    setting = {"case": name, "size": size, "n_avg": n_avg, "epsilon": epsilon}
                    yield {**setting, "accounted": released.accounted, **judge(worlds, grid.delta)._asdict()}


def _worst_real(subject: Trained) -> Case:
    """Return, of all classes, the one with two samples that are farthest apart."""
    cases = [farthest(subject.vectors[subject.labels == label]) for label in np.unique(subject.labels)]
    return max(cases, key=lambda case: float(np.linalg.norm(case.within - case.out)))
