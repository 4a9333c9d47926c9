"""The exposure rule: the numbers that leave in a release are few for the samples behind them.

A release has a row of d numbers for each of C classes. Whoever knows the space and images of the same kind can guess
how much each sample counts in each row, and then tells members from others by all C · d numbers together. For n
independent samples the AUC of the best such attack is about Φ(√(C d / 2n)), which is 0.60 where C d = n / 8.
"""

import math
from typing import NamedTuple

SAMPLES_A_NUMBER = 8  # behind each of the C · d numbers of a release, at least
PROMISED = 0.60  # the largest AUC of the attacks that the rule leaves


class Measured(NamedTuple):
    """An attack on membership that was carried out: MNIST, ten classes, the first release of the samples."""

    samples: int  # behind the release
    numbers: int  # of each of its rows
    auc: float  # how often a member is told from another image: 0.5 is chance, 1 is always
    classes: int = 10

    @property
    def ratio(self) -> float:
        """The numbers of all rows to a sample."""
        return self.numbers * self.classes / self.samples


MEASURED = tuple(
    Measured(samples, numbers, auc)
    for samples, row in {
        120: {2: 0.58, 4: 0.63, 8: 0.66, 16: 0.71, 32: 0.80, 64: 0.96, 150: 1.00},
        360: {4: 0.58, 8: 0.59, 16: 0.62, 32: 0.67},
        1200: {16: 0.57, 32: 0.60, 64: 0.63, 150: 0.71},
        4000: {32: 0.54, 64: 0.57, 128: 0.59, 256: 0.62},
    }.items()
    for numbers, auc in row.items()
)


def most_numbers(samples: int, classes: int) -> int:
    """Return the largest number of numbers that each row of a visible sum of this many samples may have.

    Args:
        samples: The samples behind the sum, of all who are in it together.
        classes: The rows of the sum, one a class.
    """
    return samples // (SAMPLES_A_NUMBER * classes)


def nearest(numbers: int, samples: int, classes: int) -> Measured:
    """Return the measured attack that is nearest, in numbers to a sample and then in samples.

    Args:
        numbers: The numbers of each row of a sum.
        samples: The samples behind it.
        classes: The rows of the sum, one a class.
    """
    asked = Measured(max(samples, 1), numbers, 0.0, classes)
    return min(
        MEASURED,
        key=lambda row: abs(math.log(row.ratio / asked.ratio)) + abs(math.log(row.samples / asked.samples)) / 4,
    )
