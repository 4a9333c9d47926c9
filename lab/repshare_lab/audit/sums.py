"""Membership inference on noisy releases of class sums (CS, loss discriminant), as the guard makes them.

The attacker knows everything but one sample, sees the whole sequence, and adds up what releases say in the direction in
which the two worlds differ: against Gaussian noise nothing is better. Others' samples hide nothing, so there are none,
or they are 0. Noise is drawn for each number by itself, so that a release of many classes, each with a candidate of its
own, is as many trials.
"""

import math
from collections.abc import Generator
from typing import Any, Literal, NamedTuple

import dp_accounting
import numpy as np

from repshare.config import Policy
from repshare.privacy.guard import Guard
from repshare.privacy.ledger import Entry
from repshare.sharing.representations import Floats, Integers
from repshare.sharing.sums import Sum, add_up, lift
from repshare_lab.audit.bounds import Worlds, judge
from repshare_lab.audit.grid import Grid

SEED = 0
BLOCK = 1000  # trials in a release
NOTICED = 105.0  # trials, times μ⁻²: then half of the noise is noticed in 199 of 200 audits
MEMBERS = 3  # honest members of a group that share the noise out
BROKEN = 0.5  # of the noise

Sample = tuple[int, float]  # its class, and its vector, which is 1 long: 1 or −1


class Pair(NamedTuple):
    """Two data sets that differ in one sample."""

    adjacency: Literal["replace", "add-remove"]
    without: tuple[Sample, ...]
    within: tuple[Sample, ...]
    classes: int = 1
    shares: int = 1
    """Members of a group whose noise together is enough."""
    members: int = 1
    """Honest members in the total that is seen. The noise of those who collude is known, and not in it."""


PAIRS = {
    "added": Pair("add-remove", (), ((0, 1.0),)),
    "opposite": Pair("replace", ((0, -1.0),), ((0, 1.0),)),
    "other class": Pair("replace", ((1, 1.0),), ((0, 1.0),), classes=2),
    "shared noise": Pair("replace", ((0, -1.0),), ((0, 1.0),), shares=MEMBERS, members=MEMBERS),
}


class AuditedGuard(Guard):
    """The guard that ships, with its ledger; some of its noise can be left out on purpose."""

    share = 1.0  # of the noise

    def _bill(self, round: int) -> tuple[float, Entry]:
        noise, entry = super()._bill(round)
        return noise * self.share, entry


def count_attacks(grid: Grid) -> int:
    """Return the number of attacks."""
    return len(PAIRS) * len(grid.epsilons) * len(_sequences(grid))


def infer_membership(grid: Grid, *, share: float) -> Generator[dict[str, Any]]:
    """Attack one release that takes the whole budget, and a sequence of releases that share it."""
    for epsilon in grid.epsilons:
        trials = math.ceil(max(grid.trials, enough_trials(epsilon, grid.delta)) / BLOCK) * BLOCK
        for releases in _sequences(grid):
            for name, pair in PAIRS.items():
                worlds, accounted = attack(pair, epsilon, releases, trials, delta=grid.delta, share=share)
                setting = {"case": name, "epsilon": epsilon, "releases": releases, "trials": trials}
                yield {**setting, "accounted": accounted, **judge(worlds, grid.delta)._asdict()}


def attack(
    pair: Pair, epsilon: float, releases: int, trials: int, *, delta: float = Policy.delta, share: float = 1.0
) -> tuple[Worlds, float]:
    """Return the scores in both worlds, of so many trials (blocks of them), and ε as the ledger has it."""
    policy = Policy(
        epsilon=epsilon, delta=delta, releases=releases, adjacency=pair.adjacency, noise_shares=pair.shares,
        seeded_noise=True, m_up=0,
    )  # fmt: skip
    rng, blocks = np.random.default_rng(SEED), -(-trials // BLOCK)
    exact = [add_up(*_lay_out(samples, pair.classes, 1), pair.classes) for samples in (pair.without, pair.within)]
    direction = (exact[1] - exact[0]).ravel()
    scores, spent = [], 0.0
    for samples in (pair.without, pair.within):
        found = []
        for _ in range(blocks):
            seen, spent = _watch(samples, pair, policy, rng, share)
            found.append(seen.reshape(BLOCK, -1) @ direction)
        scores.append(np.concatenate(found))
    return Worlds(*scores), spent


def enough_trials(epsilon: float, delta: float) -> int:
    """Return the number of trials with which half of the noise left out is noticed."""
    return math.ceil(NOTICED * float(dp_accounting.get_sigma_gaussian(epsilon, delta)) ** 2)


def _watch(
    samples: tuple[Sample, ...], pair: Pair, policy: Policy, rng: np.random.Generator, share: float
) -> tuple[Sum, float]:
    """Return the sum of all releases of a client, or of a group's totals, and what the ledger says that they cost."""
    seen, spent = np.zeros((BLOCK * pair.classes, 2)), 0.0
    for member in range(pair.members):
        own = samples if member == 0 else ()  # the others' samples are known, and subtracted
        vectors, labels = _lay_out(own, pair.classes, BLOCK)
        guard = AuditedGuard(policy, labels, classes=len(seen), space="discriminant", seeded=rng)
        guard.share = share
        for round in range(policy.releases or 1):
            release = guard.release(vectors, labels, round)
            seen += release.means.vectors[: len(seen), :2]
        spent = guard.spent
    return seen, spent


def _lay_out(samples: tuple[Sample, ...], classes: int, trials: int) -> tuple[Floats, Integers]:
    """Vectors that stand for the samples of as many trials, each in classes of its own, and their labels."""
    values = np.array([value for _, value in samples] * trials, np.float32)
    first = np.repeat(np.arange(trials) * classes, len(samples))
    return lift(values[:, None]), first + np.array([label for label, _ in samples] * trials, np.int64)


def _sequences(grid: Grid) -> list[int]:
    return sorted({1, grid.releases})
