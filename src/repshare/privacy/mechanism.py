"""The Gaussian mechanism on class sums: clip every sample, add, add noise.

All of it is done in whole numbers: a sample's features are whole multiples of clip / 2²⁰, their sum is exact, and the
noise is a Gaussian rounded to such multiples. Adding rounded noise to a whole number is the same as rounding the noisy
number, so what comes out is the textbook mechanism's result after rounding, and the last bits of floating-point
numbers, by which noise has been taken off again elsewhere (Mironov 2012), tell nothing.
"""

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from repshare.sharing.representations import Floats

STEPS = 2**20  # of a clipped vector's greatest length
_BELOW = 1 - 2.0**-40  # so that rounding on the way cannot make a vector longer than the bound

Wholes = NDArray[np.int64]


class Randomness:
    """A source of randomness. The operating system's cannot be foreseen; a seeded one is for simulations."""

    def __init__(self, seeded: np.random.Generator | None = None) -> None:
        self.name = "os" if seeded is None else "seeded"
        self.bytes: Callable[[int], bytes] = os.urandom if seeded is None else seeded.bytes

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Return numbers above 0 and up to 1: whole multiples of 2⁻⁵³."""
        bits = np.frombuffer(self.bytes(8 * count), np.uint64) >> np.uint64(11)
        return (bits.astype(np.float64) + 1) * 2.0**-53

    def normal(self, count: int) -> NDArray[np.float64]:
        """Return Gaussian numbers, by Box and Muller. None is beyond ±8.6, where a true one is once in 10¹⁶."""
        pairs = (count + 1) // 2
        radius, angle = np.sqrt(-2 * np.log(self.uniform(pairs))), 2 * np.pi * self.uniform(pairs)
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]

    def choose(self, members: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        """Choose this many without replacement, every choice as likely as any other."""
        order = np.argsort(self.uniform(len(members)), kind="stable")
        return members[order[:size]]


def clip(vectors: Floats, bound: float) -> Wholes:
    """Return each vector, shortened to `bound` if it is longer, in whole multiples of bound / STEPS (n, d)."""
    exact = np.nan_to_num(vectors.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    scale = np.minimum(1.0, bound / np.maximum(lengths, 1e-300)) * _BELOW
    wholes: Wholes = np.trunc(exact * scale * (STEPS / bound)).astype(np.int64)
    return wholes


def noisy_sum(clipped: Wholes, bound: float, deviation: float, source: Randomness) -> NDArray[np.float64]:
    """Return the sum of clipped vectors with Gaussian noise of this standard deviation on each number (d,)."""
    step = bound / STEPS
    noise = np.rint(source.normal(clipped.shape[1]) * (deviation / step))
    return (clipped.sum(axis=0) + noise) * step  # type: ignore[no-any-return]


def shorten(vector: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
    """Shorten a noisy mean to where true means are. It looks at nothing private, so it costs nothing."""
    return vector * min(1.0, bound / max(float(np.linalg.norm(vector)), 1e-300))
