"""What a release is made of: features of a client's own network, parts of a classifier in a space, or sums of samples.

A format says how many rows and columns a task's releases have, which numbers may stand in them, and what they tell. Its
name is stored with the task and sent with it. `parts` and `sums` say what stands in each row of theirs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from repshare.sharing import parts, sums
from repshare.sharing.representations import Release, Representations

FormatName = Literal["features", "parts", "sums"]
USUAL_LENGTHS = 4.0  # times √d', the bound of tanh features: the norm bound of a task whose creator chooses none


@dataclass(frozen=True)
class Format:
    """A kind of release. Its functions are given class means, and the task's classes and dimension."""

    find_fault: Callable[[Representations, int, int], str | None] = lambda *_: None
    """What keeps these means from being of this format, beyond what every row must fulfil; or None."""
    count_classes: Callable[[Representations, int, int], list[int]] = lambda means, classes, _: _count(means, classes)
    """The number of samples of each class behind these means, as far as noise lets it be known."""
    own_error: Callable[[Representations, int, int], float | None] = lambda *_: None
    """A client's leave-one-out error on its own samples, relative to guessing; None if these means do not tell it."""
    variance: Callable[[Release], float] = lambda _: 0.0
    """The variance of the noise that a release declares."""
    norm_bound: Callable[[int], float] = lambda dimension: USUAL_LENGTHS * math.sqrt(dimension)
    """A bound on a row's length with room for honest clients, and little for others."""
    counts_samples: bool = True
    """Whether a row's count is of samples; else it is of clients."""
    rows_beside: int = 0
    """Rows of a release in addition to one for each class."""
    columns_beside: int = 0
    """Numbers of a row in addition to its vector."""


def _count(means: Representations, classes: int) -> list[int]:
    counts = dict(zip(means.labels.tolist(), means.counts.tolist(), strict=True))
    return [counts.get(label, 0) for label in range(classes)]


FORMATS = {
    "features": Format(),  # tanh features are at most √d' long
    "parts": Format(
        parts.find_fault,
        parts.count_classes,
        parts.own_error,
        norm_bound=parts.longest_row,
        rows_beside=1,
        columns_beside=parts.BESIDE,
    ),
    "sums": Format(
        sums.find_fault,
        sums.count_classes,
        variance=sums.read_variance,
        norm_bound=lambda _: sums.MOST_SAMPLES,
        counts_samples=False,
        rows_beside=1,
        columns_beside=parts.BESIDE,
    ),
}
