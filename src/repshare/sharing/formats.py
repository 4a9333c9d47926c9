"""What a release is made of: features of a client's own network, parts of a classifier in a space, or sums of samples.

A format says how many rows and columns a task's releases have, which numbers may stand in them, and how they are read.
Its name is stored with the task and sent with it.
"""

import math
from typing import Any, Literal

from repshare.sharing import parts, sums
from repshare.sharing.representations import Release, Representations, Teacher

FormatName = Literal["features", "parts", "sums"]
USUAL_LENGTHS = 4.0  # times √d': the norm bound of a task whose creator does not choose one


class FeatureFormat:
    """Class means and observations of features: a row for each class. Tanh features are at most √d' long."""

    name: FormatName = "features"
    counts_samples = True  # a row's count; else clients

    def rows(self, classes: int) -> int:
        """Return how many rows the means of all classes take."""
        return classes

    def columns(self, dimension: int) -> int:
        """Return how many numbers a row has."""
        return dimension

    def norm_bound(self, dimension: int) -> float:
        """Return a bound on a row's length with room for honest clients, and little for others."""
        return USUAL_LENGTHS * math.sqrt(dimension)

    def find_fault(self, means: Representations, classes: int, dimension: int) -> str | None:
        """Return what keeps these means from being of this format, beyond what every row must fulfil; or None."""
        return None

    def count_classes(self, means: Representations, classes: int, dimension: int) -> list[int]:
        """Return the number of samples of each class behind these means."""
        counts = dict(zip(means.labels.tolist(), means.counts.tolist(), strict=True))
        return [counts.get(label, 0) for label in range(classes)]

    def own_error(self, means: Representations, classes: int, dimension: int) -> float | None:
        """Return how often a client is wrong about its own samples, relative to guessing; None if it does not tell."""
        return None

    def variance(self, release: Release) -> float:
        """Return the variance of the noise that a release declares; 0 if it declares none."""
        return 0.0

    def read(self, teacher: Teacher, classes: int, dimension: int, space: str) -> Any:
        """Return what a client learns from. Raises Malformed."""
        return teacher


class PartFormat(FeatureFormat):
    """Each client's part of a common classifier: a row for each class, one for the centre, and columns for votes."""

    name: FormatName = "parts"

    def rows(self, classes: int) -> int:
        """Return the classes and the centre."""
        return classes + 1

    def columns(self, dimension: int) -> int:
        """Return the vector and what stands beside it."""
        return dimension + parts.BESIDE

    def norm_bound(self, dimension: int) -> float:
        """Return the length of the longest honest row."""
        return parts.longest_row(dimension)

    def find_fault(self, means: Representations, classes: int, dimension: int) -> str | None:
        """Return what keeps these rows from being a part or a total of parts, or None."""
        return parts.find_fault(means, classes, dimension)

    def count_classes(self, means: Representations, classes: int, dimension: int) -> list[int]:
        """Return the number of samples of each class, by their shares."""
        return parts.count_classes(means, classes, dimension)

    def own_error(self, means: Representations, classes: int, dimension: int) -> float | None:
        """Return the leave-one-out error, relative to guessing, by the votes in a part."""
        return parts.own_error(means, classes, dimension)

    def read(self, teacher: Teacher, classes: int, dimension: int, space: str) -> Any:
        """Return the total of all clients' parts; None if there is none."""
        return parts.read_total(teacher, classes, dimension, space)


class SumFormat(PartFormat):
    """Sums of samples by class, perhaps with noise, in rows like those of parts. A row counts clients, not samples."""

    name: FormatName = "sums"
    counts_samples = False

    def norm_bound(self, dimension: int) -> float:
        """Return the length of the longest sum."""
        return sums.MOST_SAMPLES

    def find_fault(self, means: Representations, classes: int, dimension: int) -> str | None:
        """Return what keeps these rows from being sums, or a mean of several clients' sums, or None."""
        return sums.find_fault(means, classes, dimension)

    def count_classes(self, means: Representations, classes: int, dimension: int) -> list[int]:
        """Return the number of samples of each class, as far as noise lets it be known."""
        return sums.count_classes(means, classes, dimension)

    def own_error(self, means: Representations, classes: int, dimension: int) -> float | None:
        """Return None: sums have no votes."""
        return None

    def variance(self, release: Release) -> float:
        """Return the variance of the noise on each number."""
        return sums.read_variance(release)

    def read(self, teacher: Teacher, classes: int, dimension: int, space: str) -> Any:
        """Return the sums of all clients; None if there are none."""
        return sums.read_sums(teacher, classes, dimension, space)


FORMATS: dict[str, FeatureFormat] = {each.name: each for each in (FeatureFormat(), PartFormat(), SumFormat())}
