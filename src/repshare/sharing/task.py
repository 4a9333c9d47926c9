"""A task: what the clients of one collaboration agree on, and the check that every release passes at the door."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

import numpy as np

from repshare.config import Aggregation
from repshare.errors import ConfigError, Refused
from repshare.sharing import fixed_point
from repshare.sharing.parts import BESIDE, find_fault, longest_row
from repshare.sharing.representations import Release, Representations

MOST_ROUNDS = 2**31 - 1
USUAL_LENGTHS = 4.0  # times √d': the norm bound of a task whose creator does not choose one
MOST_OBSERVATIONS = 1000  # of a class in one release: each is a row in the store, and others wait while it is written

MOST_ROWS = 100_000  # of one release: each takes half a kilobyte of memory besides its numbers


@dataclass(frozen=True)
class Task:
    """One collaboration."""

    classes: int
    """C, the number of classes."""
    dimension: int
    """d', the length of a representation."""
    norm_bound: float = 1000.0
    """Vectors longer than this are refused. Tanh features are never longer than √d'."""
    minimum_count: int = 1
    """Averages over fewer samples than this are refused."""
    weighted: bool = True
    """Whether a client's class mean counts by its number of samples, or each client's the same."""
    aggregation: Aggregation = "mean"
    """How clients' class means become one: mean; or, so that a few clients cannot spoil it, the coordinate-wise
    median, the mean without the largest and smallest fifth (trimmed), or the geometric median."""
    max_age: float | None = None
    """Seconds after which a client's release is forgotten if no newer one came. Default: never."""
    space: str | None = None
    """The common space that vectors are in, by its fingerprint. Default: each client's own."""
    named_peers: int = 0
    """Whether a client may ask for what clients that it names have shared. 0: never. Otherwise how many of those that
    it names must share a class: one that fewer of them share is not answered."""

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ConfigError(f"a task needs at least 2 classes, not {self.classes}")
        if self.dimension < 1:
            raise ConfigError(f"representations need at least 1 dimension, not {self.dimension}")
        if not 0 < self.norm_bound < math.inf:
            raise ConfigError(f"norm_bound must be above 0 and finite, not {self.norm_bound}")
        if self.minimum_count < 1:
            raise ConfigError(f"minimum_count must be at least 1, not {self.minimum_count}")
        if self.aggregation not in (known := get_args(Aggregation)):
            raise ConfigError(f"aggregation must be one of {', '.join(known)}, not {self.aggregation!r}")
        if self.max_age is not None and not 0 < self.max_age < math.inf:
            raise ConfigError(f"max_age must be above 0 seconds and finite, not {self.max_age}")
        if self.named_peers < 0:
            raise ConfigError(f"named_peers must be at least 0, not {self.named_peers}")

    @property
    def counts_samples(self) -> bool:
        """Return whether a client's number of samples matters. A robust aggregate does not believe it."""
        return self.weighted and self.aggregation == "mean"

    def check(self, release: Release) -> None:
        """Raise Refused if this release does not belong to the task.

        Args:
            release: What a client wants to share.
        """
        if release.round > MOST_ROUNDS:
            raise Refused(f"round {release.round} is beyond {MOST_ROUNDS}, the last that a client can reach")
        if release.space != self.space:
            there, here = (name or "each client's own space" for name in (self.space, release.space))
            raise Refused(f"the task's vectors are in {there}, this release's in {here}")
        if self.space and (fault := find_fault(release.means, self.classes - 1, self.dimension - BESIDE)):
            raise Refused(f"the release has {fault}")
        if (rows := len(release.means.labels) + len(release.observations.labels)) > MOST_ROWS:
            raise Refused(f"{rows:,} means and observations; at most {MOST_ROWS:,} are taken at once")
        for each in (release.means, release.observations):
            self._check(each)
        if len(set(release.means.labels.tolist())) < len(release.means.labels):
            raise Refused("two means of one class")
        observed = release.observations.labels.tolist()
        if len(observed) > MOST_OBSERVATIONS and (most := max(Counter(observed).values())) > MOST_OBSERVATIONS:
            raise Refused(f"{most:,} observations of one class; at most {MOST_OBSERVATIONS:,} are taken")

    def check_peers(self, client: str, peers: Iterable[str]) -> None:
        """Raise Refused if this client may not ask for what these clients have shared.

        Args:
            client: The client that asks.
            peers: The clients that it names.
        """
        if not self.named_peers and set(peers) - {client}:
            raise Refused(
                "the task hands out nothing by name: leave peers out, or create it with --named-peers where all of "
                "its clients agree to that"
            )

    def _check(self, rows: Representations) -> None:
        if rows.vectors.shape[1] != self.dimension:
            raise Refused(f"representations of {rows.vectors.shape[1]} numbers; the task's have {self.dimension}")
        if not len(rows.labels):
            return
        labels, counts = rows.labels.tolist(), rows.counts.tolist()
        for label in (min(labels), max(labels)):
            if not 0 <= label < self.classes:
                raise Refused(f"class {label} is unknown; the task's are 0 to {self.classes - 1}")
        if (fewest := min(counts)) < self.minimum_count:
            raise Refused(f"an average of {fewest} samples; the task wants {self.minimum_count}")
        longest = float(np.abs(rows.vectors).max()) * math.sqrt(self.dimension)  # no vector is longer
        if not math.isfinite(longest):
            raise Refused("a vector is not finite")
        if longest > self.norm_bound or not fixed_point.fits(longest, max(counts)):  # look closer
            longest = float(np.linalg.norm(rows.vectors.astype(np.float64), axis=1).max())
        if longest > self.norm_bound:
            raise Refused(f"a vector of length {longest:.4g}; the task's norm_bound is {self.norm_bound:.4g}")
        if not fixed_point.fits(longest, max(counts)):
            raise Refused(f"an average of {max(counts)} samples is more than can be summed up")


def usual_norm_bound(dimension: int, space: str | None = None) -> float:
    """Return a norm bound with room for honest features, and little for liars: tanh ones are never longer than √d'."""
    return USUAL_LENGTHS * math.sqrt(dimension) if space is None else longest_row(max(dimension - BESIDE, 1))


def make_common_task(classes: int, dimension: int, space: str) -> Task:
    """Return the task of a common classifier with this many classes, in a space of this dimension."""
    return Task(classes + 1, dimension + BESIDE, norm_bound=longest_row(dimension), space=space)
