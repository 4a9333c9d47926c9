"""Numbers in fp16 and back, to the same bits as NumPy's own conversions, and many times as fast.

A number below 2⁻¹⁴ has fewer digits in fp16, and NumPy reports each of these to the processor as an underflow: an array
of them takes twenty times as long as others. A part of a common classifier is made of such numbers. PyTorch has the
processor convert them, which is many times as fast again: where a process has loaded it, it does so, to the same bits.
"""

import sys

import numpy as np
from numpy.typing import NDArray

LEAST_NORMAL = np.float32(2.0**-14)
MOST = np.float32(65504.0)
SHORTER = np.uint32(13)  # binary digits
HALF_A_STEP = (1 << 12) - 1  # with the last digit that stays, rounds to the nearest even number
EXPONENTS = (127 - 15) << 23  # the difference between those of fp32 and fp16
ADDED = np.uint32((HALF_A_STEP - EXPONENTS) % (1 << 32))
MAGIC = np.float32(0.5)  # a sum with this is rounded to steps of 2⁻²⁴, as fp16's smallest numbers are
AT_ONCE = 1 << 14  # numbers, so that all steps of a conversion find them in the processor's cache
_numbers = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


def encode_halves(values: NDArray[np.float32]) -> NDArray[np.float16]:
    """These numbers in fp16."""
    flat = values.reshape(-1)
    if not max(flat.max(initial=0), -flat.min(initial=0)) <= MOST:  # infinite, no number, or about to become so
        return values.astype(np.float16)  # with NumPy's warnings
    if (torch := sys.modules.get("torch")) and flat.flags.writeable:  # PyTorch warns of read-only arrays
        return torch.from_numpy(np.ascontiguousarray(values)).half().numpy()  # type: ignore[no-any-return]
    return _encode_by_steps(values)


def _encode_by_steps(values: NDArray[np.float32]) -> NDArray[np.float16]:
    """Convert with NumPy alone."""
    flat = values.reshape(-1)
    bits = np.empty(flat.shape, np.uint16)
    for start in range(0, len(flat), AT_ONCE):
        bits[start : start + AT_ONCE] = _round(flat[start : start + AT_ONCE])
    return bits.view(np.float16).reshape(values.shape)


def _round(values: NDArray[np.float32]) -> NDArray[np.uint32]:
    """The bits of halves."""
    lengths = np.abs(values)
    wide = lengths.view(np.uint32)
    bits = wide >> SHORTER
    bits &= np.uint32(1)
    bits += wide
    bits += ADDED  # wraps around
    bits >>= SHORTER
    is_small = lengths < LEAST_NORMAL
    lengths += MAGIC
    wide -= MAGIC.view(np.uint32)
    bits = np.where(is_small, wide, bits)
    signs = values.view(np.uint32) >> np.uint32(16)
    signs &= np.uint32(1 << 15)
    bits |= signs
    return bits


def widen(values: NDArray[np.floating]) -> NDArray[np.float32]:
    """A copy of these numbers, of fp16 or not, in fp32."""
    return _numbers.take(values.view(np.uint16)) if values.dtype == np.float16 else values.astype(np.float32)
