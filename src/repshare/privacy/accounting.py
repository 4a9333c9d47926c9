"""The privacy cost of releases, by Google's dp-accounting: its Rényi (RDP) and privacy-loss (PLD) accountants.

A noise multiplier here is always the noise's standard deviation divided by how far one sample can move the sum under
the adjacency in use: 2 · clip if a sample is replaced, clip if one is added or removed. (The library's accountants
differ in this under REPLACE_ONE: PLD takes the multiplier of a norm bound and doubles by itself, RDP does not. So
Gaussians without sampling are given to PLD as of sensitivity 1, which is what the multiplier here means.)
"""

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import dp_accounting
import numpy as np
from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent
from numpy.typing import NDArray

# Any orders give a true bound. Whole ones are fast for sampling without replacement; these lose nothing that shows.
ORDERS = (*range(2, 21), 24, 28, 32, 40, 48, 64, 96, 128, 512)
TOLERANCE = 1e-4  # of a noise multiplier, relative; always on the side of more noise


class Charge(NamedTuple):
    """The cost of one release for a sample of its smallest class, with every sample's label and all counts public.

    The sample is in the class's sum, and may be in `observations` further sums, each of `drawn` samples out of `size`,
    drawn at random without replacement and kept secret. All have the same noise multiplier.
    """

    noise: float
    observations: int = 0
    drawn: int = 1
    size: int = 1


def epsilon(charges: Mapping[Charge, int], delta: float) -> float:
    """Return ε of these numbers of releases of each kind together: the smaller of two bounds that both hold.

    One is exact but ignores that observations are of random samples (PLD). The other counts that (RDP, Wang, Balle and
    Kasiviswanathan 2019, Theorem 27): it is for samples of a fixed size without replacement and a sample replaced,
    which is what observations are; there is no such theorem in the library for adding or removing one.
    """
    if not charges:
        return 0.0
    return min(_epsilon_plain(charges, delta), _epsilon_sampled(charges, delta))


@lru_cache(256)
def noise_for(epsilon: float, delta: float, releases: int, charge: Charge) -> float:
    """Return the least noise multiplier with which `releases` releases like this one cost at most ε."""
    sums = releases * (1 + charge.observations)
    plain = dp_accounting.get_sigma_gaussian(epsilon, delta) * sums**0.5 * (1 + TOLERANCE)
    drawn_from_all = not charge.observations or charge.drawn >= charge.size
    if drawn_from_all or _epsilon_sampled({charge._replace(noise=plain): releases}, delta) >= epsilon:
        return float(plain)
    sampled = dp_accounting.calibrate_dp_mechanism(
        _sampling_accountant,
        lambda noise: _event(charge._replace(noise=noise), releases),
        epsilon,
        delta,
        dp_accounting.ExplicitBracketInterval(plain * (1 + charge.observations) ** -0.5 / 2, plain),
        tol=plain * TOLERANCE,
    )
    return float(sampled)


def _epsilon_plain(charges: Mapping[Charge, int], delta: float) -> float:
    sums = Counter[float]()
    for charge, releases in charges.items():
        sums[charge.noise] += releases * (1 + charge.observations)
    if len(sums) == 1:  # the library has a formula for this, and PLD comes to the same
        ((noise, count),) = sums.items()
        return float(dp_accounting.get_epsilon_gaussian(noise / count**0.5, delta))
    accountant = dp_accounting.pld.PLDAccountant()
    for noise, count in sums.items():
        accountant.compose(GaussianDpEvent(noise), count)
    return float(accountant.get_epsilon(delta))


def _epsilon_sampled(charges: Mapping[Charge, int], delta: float) -> float:
    total = sum(releases * _renyi(charge) for charge, releases in charges.items())
    return float(dp_accounting.rdp.compute_epsilon(ORDERS, total, delta)[0])


@lru_cache(256)
def _renyi(charge: Charge) -> NDArray[np.float64]:
    """Return the Rényi divergences of one release, by order."""
    return np.asarray(_sampling_accountant().compose(_event(charge, 1)).rdp)


def _sampling_accountant() -> dp_accounting.rdp.RdpAccountant:
    return dp_accounting.rdp.RdpAccountant(ORDERS, NeighboringRelation.REPLACE_ONE)


def _event(charge: Charge, releases: int) -> dp_accounting.DpEvent:
    gaussian = GaussianDpEvent(charge.noise)
    events = [gaussian]
    if charge.observations:
        observation = SampledWithoutReplacementDpEvent(charge.size, min(charge.drawn, charge.size), gaussian)
        events.append(dp_accounting.SelfComposedDpEvent(observation, charge.observations))
    return dp_accounting.SelfComposedDpEvent(dp_accounting.ComposedDpEvent(events), releases)
