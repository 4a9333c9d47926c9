"""Discrete Gaussian noise, drawn exactly: whole numbers k with probability proportional to exp(−k² / 2σ²).

The sampler of Canonne, Kamath and Steinke (2020, "The discrete Gaussian for differential privacy") compares whole
numbers only, so that no rounding of floating-point numbers tells anything. Sums of such noise of several parties are
as good as one of the summed variance (Kairouz, Liu and Steinke, 2021): with variances of 10⁶ and more, as here, the
two differ by less than exp(−10⁶).
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

CHUNK = 1 << 16  # random bytes that are asked for at a time


def discrete_gaussian(variance: int, count: int, random_bytes: Callable[[int], bytes]) -> NDArray[np.int64]:
    """`count` numbers of this variance."""
    below = _Uniform(random_bytes).below
    scale = math.isqrt(variance) + 1  # scale of the discrete Laplace distribution of candidates
    drawn = np.empty(count, np.int64)
    for place in range(count):
        while True:
            candidate = _laplace(scale, below)
            if _with_chance_exp((abs(candidate) * scale - variance) ** 2, 2 * variance * scale**2, below):
                break
        drawn[place] = candidate
    return drawn


class _Uniform:
    """Whole numbers from 0 to below a bound, all equally likely."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes, self._kept, self._place = random_bytes, b"", 0

    def below(self, bound: int) -> int:
        bits = (bound - 1).bit_length()
        size = (bits + 7) // 8
        surplus = 8 * size - bits
        while True:
            if self._place + size > len(self._kept):
                self._kept, self._place = self._random_bytes(CHUNK), 0
            number = int.from_bytes(self._kept[self._place : self._place + size]) >> surplus
            self._place += size
            if number < bound:
                return number


def _laplace(scale: int, below: Callable[[int], int]) -> int:
    """A number k with probability proportional to exp(−|k| / scale)."""
    while True:
        part = below(scale)
        if not _with_chance_exp(part, scale, below):
            continue
        whole = 0
        while _with_chance_exp(1, 1, below):
            whole += 1
        size = part + scale * whole
        if below(2):
            return size
        if size:  # 0 has no sign, and is not counted twice
            return -size


def _with_chance_exp(numerator: int, denominator: int, below: Callable[[int], int]) -> bool:
    """True, with probability exp(−numerator / denominator)."""
    while numerator > denominator:
        if not _with_chance_exp(1, 1, below):
            return False
        numerator -= denominator
    tries = 1  # exp(−x) = Σ (−x)ᵏ / k!: the chance that the first k with no hit, each of chance x / k, is odd
    while below(denominator * tries) < numerator:
        tries += 1
    return tries % 2 == 1
