"""The guard of a client that shares sums of its samples in a common space (loss discriminant).

A sample is one vector of at most length 1 in one class's sum: nothing is clipped by looking at the data, and no other
sample's part depends on it. Noise is a discrete Gaussian. In a secure sum each member may add a share of it, so that
the total carries it once: see lab/notebook/privacy.md.
"""

import math
from typing import Any

import numpy as np

from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.privacy import accounting
from repshare.privacy.accounting import Charge
from repshare.privacy.discrete import discrete_gaussian
from repshare.privacy.guard import Guard
from repshare.privacy.ledger import OWN_COINS
from repshare.sharing import sums
from repshare.sharing.representations import Floats, Integers, Release

STEPS = round(1 / sums.STEP)  # of the length of what stands for a sample, at most


class SumsGuard(Guard):
    """Makes releases of class sums with noise, each kept and charged to a ledger before it leaves."""

    adjacencies = ("replace", "add-remove")

    def __init__(
        self,
        policy: Policy,
        labels: Integers,
        *,
        classes: int,
        space: str,
        seeded: np.random.Generator | None = None,
    ) -> None:
        super().__init__(policy, labels, dimension=1, seeded=seeded)
        self.classes, self.space = classes, space

    def release(self, vectors: Floats, labels: Integers, round: int) -> Release:
        """Release sums of these samples, charged for good, or raise BudgetExhausted."""
        wholes = np.rint(vectors.astype(np.float64) * STEPS).astype(np.int64)
        if (np.square(wholes).sum(axis=1) > STEPS**2).any():
            raise AssertionError("what stands for a sample is longer than 1")
        least = accounting.noise_for(self.epsilon, self.delta, self.policy.planned_releases, Charge(0.0))
        noise, entry = self._bill(Charge(least), round)
        noisy = np.zeros((self.classes, wholes.shape[1]), np.int64)
        np.add.at(noisy, labels, wholes)
        variance = math.ceil((noise * reach(self.policy, wholes.shape[1] - 1) * STEPS) ** 2 / self.policy.noise_shares)
        noisy += discrete_gaussian(variance, noisy.size, self.source.bytes).reshape(noisy.shape)
        if np.abs(noisy).max() * sums.STEP > sums.LARGEST:
            raise ConfigError("a private release can add up some 100,000 samples of a class, and there are more")
        told = variance * sums.STEP**2
        release = sums.as_release(
            noisy.astype(np.float64) * sums.STEP, round, self.space, variance=told, noise=self.source.name
        )
        return self._charge({**entry, **OWN_COINS}, release)

    @property
    def mode(self) -> str:
        """The kind of guarantee: the space is not trained on anyone's samples, so that ε covers all that leaves."""
        return "all that leaves"

    def _about(self) -> dict[str, Any]:
        return {**super()._about(), "space": self.space, "mode": self.mode}


def reach(policy: Policy, dimension: int) -> float:
    """The largest distance by which one sample can move the sums.

    One that is replaced by a sample of another class moves them by √2 at most; by one of its own class, by twice the
    length of its vector, since the number that counts it stays.
    """
    if policy.adjacency == "add-remove":
        return 1.0
    counts = round(sums.scales(dimension)[1] * STEPS) / STEPS
    return max(math.sqrt(2), 2 * math.sqrt(1 - counts**2))


def check_shares(policy: Policy, members: int) -> str:
    """The conditions under which ε holds if members of a group share the noise. Raises ConfigError if it cannot."""
    if policy.noise_shares > members:
        raise ConfigError(
            f"noise_shares is {policy.noise_shares}, but a sum of the group may have {members} members, whose noise "
            "would not be enough"
        )
    return f"ε holds if at most {members - policy.noise_shares} of {members} members collude"
