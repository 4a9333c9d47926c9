"""The exposure rule: a release has at least SAMPLES_A_NUMBER samples behind each number that leaves in it.

A release has a row of d + 1 numbers for each of C classes. Whoever knows the space and images of the same kind knows
what a candidate adds to each row, and tells members from others by all C · (d + 1) numbers together. For n independent
samples the AUC of the best such attack is about Φ(√(C (d + 1) / 2n)), which is 0.60 where C (d + 1) = n / 8. Attacks
come to that and up to 0.05 more (`repshare reproduce leakage`), after one release as after twenty.
"""

import math
from statistics import NormalDist
from typing import NamedTuple

from repshare.config import Policy
from repshare.errors import ConfigError

SAMPLES_A_NUMBER = 8  # behind each of the C · (d + 1) numbers of a release, at least
PROMISED = 0.60  # the largest AUC of the attacks that the rule leaves
BUDGET = 1.3  # ε of one release, with δ = 10⁻⁵: no attack has an AUC above 0.60 then, whatever it knows
PLAIN = 150  # numbers of a row: where only shorter rows would be allowed without noise, rows with noise are proposed
NOISY = 256  # numbers of a proposed row with noise, and the most without


def most_numbers(samples: int, classes: int) -> int:
    """The most numbers that each row may have in a visible sum over this many samples.

    Args:
        samples: The samples behind the sum, of all who are in it together.
        classes: The rows of the sum, one a class.
    """
    return max(0, samples // (SAMPLES_A_NUMBER * classes) - 1)


def fewest_samples(numbers: int, classes: int) -> int:
    """The fewest samples that a visible sum must be over, for rows of so many numbers.

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
        if self.noisy:
            what = (
                f"sums of {self.numbers} numbers a class, once, with noise (AUC at most {PROMISED:.2f} for any attack)"
            )
        else:
            what = f"rows of {self.numbers} numbers (AUC at most {PROMISED:.2f} for the attacks known)"
        group = f", in masked groups of {self.group_members} or more" if self.group else ""
        options = budget_options(self.group_members) if self.noisy else "no further options"
        return f"chosen: {what}{group}. Clients join with: {options}"

    @property
    def group_members(self) -> int:
        """Clients that must be there for a sum; 0: there is no group. Those who share the noise must all stay."""
        return (2 * self.members // 3 + 1 if self.noisy else 3) if self.group else 0


def budget_options(group_members: int) -> str:
    """The options with which a client joins where class sums have noise, in a masked group of so many; 0: in none."""
    shares = f"--noise-shares {group_members} " if group_members else ""
    return f"{shares}--epsilon {BUDGET:g} --adjacency add-remove"


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
        """The most numbers of a row that the rule allows."""
        return self.numbers if math.isinf(self.samples) else most_numbers(int(self.samples), self.classes)

    @property
    def auc(self) -> float:
        """How often the best attack known tells a sample behind it from another: 0.5 is chance, 1 is always."""
        return NormalDist().cdf(math.sqrt(self.classes * (self.numbers + 1) / (2 * max(self.samples, 1))))

    def __str__(self) -> str:
        return (
            f"{self.classes} rows of {self.numbers:,} numbers for {int(self.samples):,} samples: attacks tell these "
            f"from others with an AUC of about {self.auc:.2f} (0.5 is a guess)"
        )

    def check(self) -> None:
        """Raise ConfigError, with the ways out, if the rule does not allow it."""
        if self.allowed:
            return
        shorter = f"a task with vectors of at most {self.most} numbers" if self.most else "more samples"
        task = "" if self.sums else ", in a task with --loss discriminant"
        raise ConfigError(
            f"this would show who is among your samples: {self}. The rule allows {self.most:,} numbers a row: "
            f"{SAMPLES_A_NUMBER} samples behind each number. Ways out: a budget (--epsilon {BUDGET:g} "
            f"--adjacency add-remove{task}); a masked group (a task with "
            f"--group-members 3); {shorter}; or --accept-exposure (accept_exposure in the policy) if that may be seen"
        )
