"""Differential privacy of releases: what noise, at what cost, and who has spent how much."""

from pathlib import Path
from typing import TYPE_CHECKING

from repshare.errors import ConfigError
from repshare.learner import Learner
from repshare.randomness import numpy_stream

if TYPE_CHECKING:
    from repshare.privacy.guard import Guard


def make_guard(learner: Learner, name: str, seed: int, ledger: Path | None) -> "Guard | None":
    """Make what adds noise to a client's releases; None: its policy has no budget."""
    policy = learner.policy
    if policy.epsilon is None:
        if ledger is not None:
            raise ConfigError("a ledger needs a policy with epsilon: without one, exact averages would leave")
        if policy.noise_shares > 1 and not policy.seeded_noise:
            raise ConfigError("a share of the noise needs a budget: noise_shares goes with epsilon")
        return None
    if (space := learner.task().space) is None:
        raise ConfigError(
            "epsilon is for sums of samples in a space that nobody trains (CS, --loss discriminant): 38a6b14d is the "
            "last commit with noise on averages of a network's features"
        )
    from repshare.privacy.guard import Guard

    seeded = numpy_stream(seed, name, "privacy") if policy.seeded_noise else None
    guard = Guard(policy, learner.samples.labels.numpy(), classes=learner.classes, space=space, seeded=seeded)
    if ledger is not None:
        guard.keep_in(ledger)
    return guard
