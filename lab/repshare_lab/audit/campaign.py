"""All attacks over a grid of settings: a line of results for each."""

from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from repshare.errors import ConfigError
from repshare.sharing.representations import Floats, Integers
from repshare_lab.audit.bounds import judge
from repshare_lab.audit.grid import Grid
from repshare_lab.audit.inversion import Prior, compare, invert, look_at, miss
from repshare_lab.audit.membership import Case, attack, farthest, worst_case
from repshare_lab.audit.subject import Trained, guarded, train, unguarded
from repshare_lab.data import Splits

Line = dict[str, Any]
KNOWN = 2000  # other samples that the attacker has, to know what inputs look like
STRANGERS = 200  # samples of a class that were not trained on, for reconstructions to be mistaken for
BROKEN = 0.5  # of the noise


def prepare(splits: Splits, grid: Grid, model: str) -> dict[int, Trained]:
    """Train a model for each size of a class."""
    fewest = int(np.bincount(splits.train.labels, minlength=splits.classes).min())
    if fewest < max(grid.class_sizes) + 1:
        raise ConfigError(f"class_sizes must be below {fewest}, the samples of the rarest class")
    return {size: train(splits.train, splits.classes, size + 1, grid.epochs, model) for size in grid.class_sizes}


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


class Gallery(NamedTuple):
    """Reconstructions of one kind of release, one a class."""

    title: str
    images: Tensor  # (C, channels, h, w)
    line: Line


def reconstruct(splits: Splits, subject: Trained, size: int, grid: Grid) -> Generator[Gallery]:
    """Reconstruct inputs from a release of each class: observations of ever more samples, the mean, noisy means."""
    known = np.setdiff1d(np.arange(len(splits.train.labels)), subject.rows)[-KNOWN:]
    prior = look_at(splits.train.images[known].astype(np.float32))
    members = [np.flatnonzero(subject.labels == label) for label in range(splits.classes)]
    first = torch.from_numpy(np.stack([splits.train.images[subject.rows[own[0]]] for own in members]))
    yield Gallery("a sample", first, {})
    for count in sorted({*(n for n in grid.n_avgs if n < size), size}):
        chosen = [own[:count] for own in members]
        targets = np.stack([subject.vectors[own].mean(axis=0) for own in chosen])
        yield _invert(splits, subject, prior, targets, chosen, None)
    for epsilon in sorted(grid.epsilons, reverse=True):
        released = guarded(grid.policy(epsilon, size), size, subject.vectors.shape[1])
        chosen = [own[:size] for own in members]
        targets = np.concatenate([released.release(subject.vectors[own])[0].vectors for own in chosen])
        yield _invert(splits, subject, prior, targets, chosen, epsilon)


def _invert(
    splits: Splits, subject: Trained, prior: Prior, targets: Floats, chosen: list[Integers], epsilon: float | None
) -> Gallery:
    """Reconstruct an input for each class, and compare it with all samples trained on, and some that were not."""
    images, likeness, count = invert(subject.network, targets, prior), [], len(chosen[0])
    missed = miss(subject.network, images, targets)
    for label, own in enumerate(chosen):
        trained = subject.rows[subject.labels == label]
        strangers = np.setdiff1d(np.flatnonzero(splits.train.labels == label), trained)[:STRANGERS]
        rows = np.concatenate([trained, strangers])
        among = splits.train.images[rows].astype(np.float32)
        likeness.append(compare(images[label], among, np.isin(rows, subject.rows[own]), missed[label]))
    means = dict(zip(likeness[0]._fields, np.mean(likeness, axis=0).tolist(), strict=True))
    title = "1 sample" if count == 1 else f"mean of {count}"
    title = title if epsilon is None else f"{title}, ε = {epsilon:g}"
    return Gallery(title, images, {"averaged": count, "epsilon": epsilon, **means})
