"""The exposure rule: a visible sum of vectors has few numbers for the samples behind it.

A sum with many numbers a sample tells members from others, whatever its weights: by attacks that know the space and
images of the same kind. What protects is the ratio of numbers to samples.
"""

import math
from typing import NamedTuple

SAMPLES_A_NUMBER = 8  # behind a visible sum, at least
PROMISED = 0.60  # the largest AUC of the attacks that the rule leaves


class Measured(NamedTuple):
    """An attack on membership that was carried out: MNIST, five releases of the same samples."""

    samples: int  # behind the sum
    numbers: int  # of its vectors
    auc: float  # how often a member is told from another image: 0.5 is chance, 1 is always


MEASURED = tuple(
    Measured(samples, numbers, auc)
    for numbers, row in {
        2592: (1.00, 0.89, 0.89, 0.74),
        256: (0.92, 0.74, 0.68, 0.63),
        128: (0.71, 0.67, 0.64, 0.60),
        64: (0.66, 0.61, 0.59, 0.56),
        32: (0.58, 0.58, 0.56, 0.54),
    }.items()
    for samples, auc in zip((120, 360, 600, 1200), row, strict=True)
)


def most_numbers(samples: int) -> int:
    """Return the largest number of numbers that a visible sum of this many samples' vectors may have.

    Args:
        samples: The samples behind the sum, of all who are in it together.
    """
    return samples // SAMPLES_A_NUMBER


def nearest(numbers: int, samples: int) -> Measured:
    """Return the measured attack that is nearest, in ratios, to sums of `numbers` numbers over `samples` samples.

    Args:
        numbers: The numbers of a sum.
        samples: The samples behind it.
    """
    return min(
        MEASURED,
        key=lambda row: abs(math.log(row.numbers / numbers)) + abs(math.log(row.samples / max(samples, 1))),
    )
