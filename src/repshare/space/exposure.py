"""The exposure rule: the numbers that leave in a release are few for the samples behind them.

A release has a row of d + 1 numbers for each of C classes. Whoever knows the space and images of the same kind knows
what a candidate adds to each row, and tells members from others by all C · (d + 1) numbers together. For n independent
samples the AUC of the best such attack is about Φ(√(C (d + 1) / 2n)), which is 0.60 where C (d + 1) = n / 8. Attacks
come to that (`repshare reproduce leakage`), after one release as after twenty, by a client alone as by a group.
"""

import math
from typing import NamedTuple

from repshare.config import Policy
from repshare.errors import ConfigError

SAMPLES_A_NUMBER = 8  # behind each of the C · (d + 1) numbers of a release, at least
PROMISED = 0.60  # the largest AUC of the attacks that the rule leaves
BUDGET = 1.3  # ε of one release, with δ = 10⁻⁵: no attack has an AUC above 0.60 then, whatever it knows
PLAIN = 150  # numbers, from which rows without noise are proposed
NOISY = 256  # numbers of rows with noise


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
    Measured("digits", 60, 1728, 1.00),
    Measured("digits", 120, 9, 0.70),
    Measured("digits", 120, 32, 0.78),
    Measured("digits", 360, 3, 0.56),
    Measured("digits", 798, 9, 0.58),
    Measured("digits", 840, 9, 0.57),
    Measured("digits", 840, 32, 0.59),
    Measured("mnist", 120, 14, 0.82),
    Measured("mnist", 1200, 14, 0.58),
    Measured("mnist", 1200, 32, 0.62),
    Measured("fashion_mnist", 120, 64, 0.94),
    Measured("fashion_mnist", 1200, 14, 0.58),
    Measured("fashion_mnist", 1200, 64, 0.67),
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


def fewest_samples(numbers: int, classes: int) -> int:
    """Return the least number of samples behind a visible sum for which the rule allows rows of so many numbers.

    Args:
        numbers: The numbers of each row.
        classes: The rows of the sum, one a class.
    """
    return SAMPLES_A_NUMBER * classes * (numbers + 1)


class Proposal(NamedTuple):
    """How clients should learn together so that nobody can tell who is among their samples."""

    numbers: int
    """The numbers of a row."""
    noisy: bool
    """Whether class sums are shared once, with noise."""
    group: bool
    """Whether clients should be in a masked group."""
    members: int
    """The clients."""

    def __str__(self) -> str:
        options = []
        if self.noisy:
            options += [f"--noise-shares {self.group_members}"] if self.group else []
            options += [f"--epsilon {BUDGET:g} --adjacency add-remove"]
            what = (
                f"sums of {self.numbers} numbers a class, once, with noise (AUC at most {PROMISED:.2f} for any attack)"
            )
        else:
            what = f"rows of {self.numbers} numbers (AUC at most {PROMISED:.2f} for the attacks known)"
        group = f", in masked groups of {self.group_members} or more" if self.group else ""
        return f"chosen: {what}{group}. Clients join with: {' '.join(options) or 'no further options'}"

    @property
    def group_members(self) -> int:
        """Clients that must be there for a sum; 0: there is no group. Those who share the noise must all stay."""
        return (2 * self.members // 3 + 1 if self.noisy else 3) if self.group else 0


def propose(samples: int, members: int, classes: int) -> Proposal:
    """Propose an agreement. Rows without noise are proposed where they may be long enough.

    Args:
        samples: The samples of all clients together, of which clients hold some out.
        members: The number of clients.
        classes: The number of classes.
    """
    samples -= math.ceil(Policy.held_out * samples)
    together = samples * (members - 1) // members if members > 2 else 0
    for group, behind in ((False, samples // members), (True, together)):
        if (numbers := most_numbers(behind, classes)) >= PLAIN:
            return Proposal(min(numbers, NOISY), noisy=False, group=group, members=members)
    return Proposal(NOISY, noisy=True, group=members > 2, members=members)


class Exposure(NamedTuple):
    """What a client's next release shows to whoever sees most of it."""

    numbers: int
    """The numbers of a row."""
    classes: int
    """The rows."""
    samples: float
    """The samples behind the least difference that anybody sees; infinite where nobody else sees any."""
    sums: bool
    """Whether the rows are sums of classes, which can have noise."""

    @property
    def allowed(self) -> bool:
        """Whether the rule allows it."""
        return self.numbers <= self.most

    @property
    def most(self) -> int:
        """The largest number of numbers that the rule allows."""
        return self.numbers if math.isinf(self.samples) else most_numbers(int(self.samples), self.classes)

    @property
    def measured(self) -> Measured:
        """The measured attack that is nearest."""
        return nearest(self.numbers, int(self.samples), self.classes)

    def __str__(self) -> str:
        near = self.measured
        return (
            f"{self.classes} rows of {self.numbers:,} numbers for {int(self.samples):,} samples: in the nearest attack "
            f"that was measured ({near.dataset}, {near.samples:,} samples, {near.numbers:,} numbers), members are told "
            f"from others with AUC {near.auc:.2f} (0.5 is a guess)"
        )

    def check(self) -> None:
        """Raise ConfigError, with the ways out, if the rule does not allow it."""
        if self.allowed:
            return
        shorter = f"a task with vectors of at most {self.most} numbers" if self.most else "more samples"
        task = "" if self.sums else ", in a task with --loss discriminant"
        raise ConfigError(
            f"this would show who is among your samples: {self}. The rule allows {self.most:,} numbers, so that each "
            f"number of all rows has {SAMPLES_A_NUMBER} samples behind it. Ways out: a budget (--epsilon {BUDGET:g} "
            f"--adjacency add-remove{task}); a masked group (a task with "
            f"--group-members 3); {shorter}; or --accept-exposure (accept_exposure in the policy) if that may be seen"
        )
