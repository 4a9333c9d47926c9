"""Numbers that follow from a seed: the same bits on every platform and with every version of NumPy and PyTorch.

NumPy keeps the raw output of its bit generators, not what its distributions make of it. So a normal number here is
the sum of twelve whole numbers out of that output, which needs no rounding, no logarithm and no cosine.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

TERMS = 12  # uniform numbers in a normal one: their variances add up to 1


def _raw(count: int, *path: int | str) -> NDArray[np.uint64]:
    """64-bit words for this path."""
    key = int.from_bytes(hashlib.sha256(repr(path).encode()).digest()[:16])
    return np.random.Philox(key=key).random_raw(count)


def normal(shape: tuple[int, ...], *path: int | str) -> NDArray[np.float32]:
    """Numbers of mean 0 and variance 1, close to normal (Irwin and Hall's), for this path."""
    count = int(np.prod(shape))
    parts = _raw(count * TERMS // 4, *path).astype("<u8").view("<u2").reshape(count, TERMS)
    total = parts.sum(axis=1, dtype=np.int64)  # 0 … 12 · 65,535
    return np.asarray((2 * total - TERMS * 65535) / 2**17, np.float32).reshape(shape)


def uniform(shape: tuple[int, ...], *path: int | str) -> NDArray[np.float32]:
    """Numbers from 0 to 1, multiples of 2⁻²⁴, for this path."""
    words = _raw(int(np.prod(shape)), *path) >> np.uint64(40)
    return (words.astype(np.float64) / 2**24).astype(np.float32).reshape(shape)
