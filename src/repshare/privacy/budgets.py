"""Each sample's own budget, and the filter that keeps it (Feldman and Zrnic, 2021, "Individual privacy accounting").

A Gaussian sum with noise of standard deviation σ costs a sample that contributes a vector of length l exactly
ρ = l² / 2σ² (zCDP), and such costs add up, also where what is asked depends on earlier answers. The filter lets a
sample take part only while its own sum stays within its own budget. What a sample has spent depends on its own
features, so it must stay secret: nothing that leaves may tell who still takes part, counts included.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from repshare.config import Level
from repshare.errors import ConfigError
from repshare.privacy import accounting

Costs = NDArray[np.float64]


class Filter:
    """The budget and the spending of every sample, in ρ. No sample is ever charged beyond its budget."""

    def __init__(self, budgets: Costs) -> None:
        self.budgets = budgets  # (n,)  infinite: public; 0: never
        self.spent = np.zeros_like(budgets)

    def admits(self, costs: Costs) -> NDArray[np.bool_]:
        """The samples that can still pay this, as a mask (n,)."""
        return (self.budgets > 0) & (self.spent + costs <= self.budgets)

    def charge(self, costs: Costs) -> None:
        """Spend this."""
        if (self.spent + costs > self.budgets)[costs > 0].any():
            raise ValueError("a sample would spend more than its budget")
        self.spent = self.spent + costs


def budgets(levels: Sequence[Level] | None, count: int, epsilon: float, delta: float) -> Costs:
    """Return budgets in ρ for `count` samples; ε for all, if they have no levels of their own."""
    if levels is None:
        return np.full(count, accounting.rho_for(epsilon, delta))
    if len(levels) != count:
        raise ConfigError(f"there are {count} samples but {len(levels)} levels")
    found = {level: _budget(level, delta) for level in set(levels)}
    return np.array([found[level] for level in levels])


def _budget(level: Level, delta: float) -> float:
    if level == "public":
        return math.inf
    if level == "never":
        return 0.0
    if not isinstance(level, int | float) or not 0 < level < math.inf:
        raise ConfigError(f"a sample's level must be public, never, or ε above 0 and finite, not {level!r}")
    return accounting.rho_for(float(level), delta)
