"""The privacy cost of releases with Gaussian noise, by Google's dp-accounting (its privacy-loss accountant, PLD).

A noise multiplier here is always the noise's standard deviation divided by how far one sample can move the sums under
the adjacency in use: see `guard.reach`. So Gaussians are given to the library as of sensitivity 1.
"""

from collections.abc import Mapping
from functools import lru_cache

import dp_accounting
from dp_accounting import GaussianDpEvent

TOLERANCE = 1e-4  # of a noise multiplier, relative; always on the side of more noise


def epsilon(charges: Mapping[float, int], delta: float) -> float:
    """ε of these numbers of releases with each noise multiplier together."""
    if not charges:
        return 0.0
    if len(charges) == 1:  # the library has a formula for this, and PLD comes to the same
        ((noise, count),) = charges.items()
        return float(dp_accounting.get_epsilon_gaussian(noise / count**0.5, delta))
    accountant = dp_accounting.pld.PLDAccountant()
    for noise, count in charges.items():
        accountant.compose(GaussianDpEvent(noise), count)
    return float(accountant.get_epsilon(delta))


@lru_cache(256)
def noise_for(epsilon: float, delta: float, releases: int) -> float:
    """The least noise multiplier with which so many releases cost at most ε."""
    return float(dp_accounting.get_sigma_gaussian(epsilon, delta) * releases**0.5 * (1 + TOLERANCE))
