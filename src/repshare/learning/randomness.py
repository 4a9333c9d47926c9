"""One random stream for each client and purpose, all derived from one seed.

Independent streams make a run repeatable: a client draws the same numbers whatever the other clients do and whichever
process it is in, and switching a loss off leaves the batches as they were.
"""

import hashlib
import os

import numpy as np
import torch

from repshare.errors import ConfigError


def derive(seed: int, *path: int | str) -> int:
    """Return a seed of 63 bits for this path: derive(seed, "client 3", "batches")."""
    digest = hashlib.sha256(repr((seed, *path)).encode()).digest()
    return int.from_bytes(digest[:8]) >> 1


def torch_stream(seed: int, *path: int | str) -> torch.Generator:
    """Return a generator of PyTorch's on the CPU, so that every device sees the same draws."""
    return torch.Generator().manual_seed(derive(seed, *path))


def numpy_stream(seed: int, *path: int | str) -> np.random.Generator:
    """Return a generator of NumPy's."""
    return np.random.default_rng(derive(seed, *path))


def secret_stream() -> torch.Generator:
    """Return a generator of PyTorch's on the CPU that cannot be predicted.

    Of a seed it would keep 32 bits, few enough to try them all. So its state, a Mersenne Twister's 624 words, is
    filled by the operating system: those words are found by what a seed makes of them, which NumPy knows, too.
    """
    generator = torch.Generator().manual_seed(0)
    seeded = np.random.RandomState(0).get_state(legacy=False)["state"]["key"]
    before, drawn = bytes(generator.get_state().numpy()), np.frombuffer(os.urandom(seeded.nbytes), seeded.dtype)
    words = seeded.astype(np.uint64).tobytes()
    if before.count(words) != 1:
        raise ConfigError(
            f"PyTorch {torch.__version__} keeps its generator's state in a form that repshare does not know"
        )
    state = before.replace(words, drawn.astype(np.uint64).tobytes())
    return generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
