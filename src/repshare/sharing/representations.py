"""The averages of representations that clients share, never samples or weights.

`make_release` makes what leaves a client of RS or FD.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from repshare.config import Policy

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


class Representations(NamedTuple):
    """Row i is the mean of `counts[i]` representations of class `labels[i]`.

    A class mean and an observation (n_avg samples) differ only in their count, so one type serves both.
    """

    vectors: Floats  # (n, d)
    labels: Integers  # (n,)
    counts: Integers  # (n,)  samples averaged into each row

    def of(self, label: int) -> "Representations":
        """The rows of one class."""
        return self.part(self.labels == label)

    def part(self, rows: slice | NDArray[np.bool_]) -> "Representations":
        """Some of the rows."""
        return Representations(self.vectors[rows], self.labels[rows], self.counts[rows])


class Release(NamedTuple):
    """A client's averages after a round."""

    round: int
    means: Representations  # at most one row a class
    observations: Representations  # M↑ rows a class
    noise: str | None = None  # where the noise in it came from, "os" or "seeded"; None: there is none
    space: str | None = None  # the common space's fingerprint; None: each client's own


class Teacher(NamedTuple):
    """The averages that a client learns from. A class that no client shared has no row, and never enters a loss."""

    means: Representations  # at most one row a class
    observations: Representations  # M↓ rows a class, from other clients
    space: str | None = None  # the common space's fingerprint; None: each client's own


class Wants(NamedTuple):
    """A client's request to a board. The seed makes the draw repeatable, wherever the board is."""

    observations: int
    """M↓: number of observations of each class."""
    seed: int
    """The seed of the draw."""
    peers: tuple[str, ...] | None = None
    """Names of the clients to learn from. Default: all."""
    precision: str = "fp32"
    """Number format of the answer."""


def nothing(dimension: int) -> Representations:
    """No rows."""
    return stack([], dimension)


def stack(rows: Sequence[tuple[NDArray[np.floating], int, int]], dimension: int) -> Representations:
    """Make representations from (vector, label, count) rows."""
    return Representations(
        np.array([vector for vector, _, _ in rows], np.float32).reshape(len(rows), dimension),
        np.array([label for _, label, _ in rows], np.int64),
        np.array([count for _, _, count in rows], np.int64),
    )


def class_means(vectors: Floats, labels: Integers, *, minimum: int = 1) -> Representations:
    """The mean of each class that has at least `minimum` samples."""
    rows = []
    for label in np.unique(labels):
        members = vectors[labels == label]  # (count, d)
        if len(members) >= minimum:
            rows.append((members.mean(axis=0, dtype=np.float64), int(label), len(members)))
    return stack(rows, vectors.shape[1])


def observe(
    vectors: Floats, labels: Integers, n_avg: int, repeats: int, rng: np.random.Generator, *, minimum: int = 1
) -> Representations:
    """Make `repeats` observations of each class, each the mean of n_avg of its samples drawn without replacement.

    A class with fewer than n_avg samples is averaged over all it has; its count says so.
    """
    rows = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        size = min(n_avg, len(members))
        for _ in range(repeats if size >= minimum else 0):
            chosen = rng.choice(members, size, replace=False)
            rows.append((vectors[chosen].mean(axis=0, dtype=np.float64), int(label), size))
    return stack(rows, vectors.shape[1])


def may_share(labels: Integers, policy: "Policy") -> NDArray[np.bool_]:
    """Mask of the client's samples that its policy lets take part (n,)."""
    allowed = np.ones(len(labels), bool)
    if policy.share_samples is not None:
        allowed[:] = False
        allowed[np.asarray(policy.share_samples, int)] = True
    if policy.share_classes is not None:
        allowed &= np.isin(labels, policy.share_classes)
    return allowed


def make_release(
    vectors: Floats,  # (n, d)  one representation a sample
    labels: Integers,  # (n,)
    rng: np.random.Generator,
    policy: "Policy",
    round: int,
) -> Release:
    """Average a client's representations, using only the classes and samples that its policy lets take part."""
    allowed = may_share(labels, policy)
    vectors, labels = vectors[allowed], labels[allowed]
    means = class_means(vectors, labels, minimum=policy.fewest)
    observations = observe(vectors, labels, policy.n_avg, policy.m_up, rng, minimum=policy.fewest)
    return Release(round, means, observations)
