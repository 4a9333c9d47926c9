"""Weighted sums that come out the same to the last bit, whatever the order of their terms.

Floating-point addition depends on order, so totals kept by adding and taking away would drift, and two relays (or
two numbers of workers) would disagree. Here a number is a whole multiple of 2⁻³² in an int64, and whole numbers add
exactly in any order.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

STEP = 2.0**-32
LIMIT = 2.0**62  # in steps: half of what an int64 holds, so that one more addition cannot wrap


def fits(largest: float, weight: int) -> bool:
    """Return whether `weight` numbers as large as `largest` can be summed."""
    return math.isfinite(largest) and abs(largest) / STEP * weight < LIMIT


def overflows(total: NDArray[np.int64]) -> bool:
    """Return whether a sum is so large that adding to it is no longer safe."""
    return total.size > 0 and max(-int(total.min()), int(total.max())) > LIMIT


def weigh(values: NDArray[Any], weight: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return values × weight, in steps. Ask `fits` first."""
    steps = np.array(values, np.float64)
    steps *= 1 / STEP  # in place: a product of arrays without dimensions would be none
    whole = np.rint(steps, out=steps).astype(np.int64)
    whole *= weight
    return whole


def mean(total: NDArray[np.int64], weight: int | NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean behind a sum of weighed values whose weights add up to `weight`."""
    return total * STEP / weight
