"""The exposure rule: the numbers that leave in a release are few for the samples behind them.

A release has a row of d + 1 numbers for each of C classes. Whoever knows the space and images of the same kind knows
what a candidate adds to each row, and tells members from others by all C · (d + 1) numbers together. For n independent
samples the AUC of the best such attack is about Φ(√(C (d + 1) / 2n)), which is 0.60 where C (d + 1) = n / 8. Attacks
come to that (`repshare reproduce leakage`), after one release as after twenty, by a client alone as by a group.
"""

import math
from typing import NamedTuple

SAMPLES_A_NUMBER = 8  # behind each of the C · (d + 1) numbers of a release, at least
PROMISED = 0.60  # the largest AUC of the attacks that the rule leaves


class Measured(NamedTuple):
    """An attack on membership that was carried out, with its best result after 1, 5 or 20 releases."""

    dataset: str
    samples: int  # behind the release
    numbers: int  # of each of its rows
    auc: float  # how often a member is told from another sample: 0.5 is chance, 1 is always
    classes: int = 10

    @property
    def ratio(self) -> float:
        """The numbers of all rows to a sample."""
        return self.numbers * self.classes / self.samples


MEASURED = (
    Measured("breast_cancer", 12, 2, 0.70, 2),
    Measured("breast_cancer", 12, 6, 0.71, 2),
    Measured("breast_cancer", 12, 32, 0.99, 2),
    Measured("breast_cancer", 12, 2048, 1.00, 2),
    Measured("breast_cancer", 60, 2, 0.57, 2),
    Measured("breast_cancer", 60, 6, 0.64, 2),
    Measured("breast_cancer", 60, 32, 0.72, 2),
    Measured("breast_cancer", 60, 2048, 0.89, 2),
    Measured("breast_cancer", 120, 2, 0.54, 2),
    Measured("breast_cancer", 120, 6, 0.59, 2),
    Measured("breast_cancer", 120, 32, 0.62, 2),
    Measured("digits", 12, 32, 1.00),
    Measured("digits", 120, 9, 0.70),
    Measured("digits", 120, 32, 0.78),
    Measured("digits", 360, 3, 0.56),
    Measured("digits", 798, 9, 0.58),
    Measured("digits", 840, 9, 0.57),
    Measured("digits", 840, 32, 0.59),
    Measured("mnist", 120, 14, 0.82),
    Measured("mnist", 1200, 14, 0.58),
    Measured("mnist", 1200, 32, 0.62),
)


def most_numbers(samples: int, classes: int) -> int:
    """Return the largest number of numbers that each row of a visible sum of this many samples may have.

    Args:
        samples: The samples behind the sum, of all who are in it together.
        classes: The rows of the sum, one a class.
    """
    return max(0, samples // (SAMPLES_A_NUMBER * classes) - 1)


def nearest(numbers: int, samples: int, classes: int) -> Measured:
    """Return the measured attack that is nearest, in numbers to a sample and then in samples.

    Args:
        numbers: The numbers of each row of a sum.
        samples: The samples behind it.
        classes: The rows of the sum, one a class.
    """
    asked = Measured("", max(samples, 1), numbers, 0.0, classes)
    return min(
        MEASURED,
        key=lambda row: abs(math.log(row.ratio / asked.ratio)) + abs(math.log(row.samples / asked.samples)) / 4,
    )
