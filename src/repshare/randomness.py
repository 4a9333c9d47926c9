"""One random stream for each client and purpose, all derived from one seed.

Independent streams make a run repeatable: a client draws the same numbers whatever the other clients do and whichever
process it is in, and switching a loss off leaves the batches as they were.
"""

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(seed: int, *path: int | str) -> int:
    """A seed of 63 bits for this path: derive(seed, "client 3", "batches")."""
    digest = hashlib.sha256(repr((seed, *path)).encode()).digest()
    return int.from_bytes(digest[:8]) >> 1


def torch_stream(seed: int, *path: int | str) -> "torch.Generator":
    """Make a generator of PyTorch's on the CPU, so that every device sees the same draws."""
    import torch

    return torch.Generator().manual_seed(derive(seed, *path))


def numpy_stream(seed: int, *path: int | str) -> np.random.Generator:
    """A generator of NumPy's."""
    return np.random.default_rng(derive(seed, *path))
