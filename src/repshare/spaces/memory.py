"""Vectors of inputs that come again: a simulation's runs share their samples, and a map is fixed."""

import hashlib
import time

import torch
from torch import Tensor

from repshare.spaces.space import Space, fingerprint

MOST_BYTES = 3 << 30


class Memory:
    """What one space made of the inputs seen so far in this process; another space begins anew."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self.spared = 0.0  # seconds that the last call would have taken longer without
        self._space, self._rows, self._seconds = "", dict[bytes, Tensor](), 0.0

    def embed(self, space: Space, inputs: Tensor) -> Tensor:
        """What the space makes of these inputs (n, …): (n, d)."""
        if (name := fingerprint(space)) != self._space:
            self._space, self._rows, self._seconds = name, {}, 0.0
        keys = [hashlib.blake2b(row.numpy().tobytes(), digest_size=16).digest() for row in inputs.cpu().contiguous()]
        new = [place for place, key in enumerate(keys) if key not in self._rows]
        found: dict[bytes, Tensor] = {}
        if new:
            started = time.perf_counter()
            made = space(inputs[new])
            self._seconds = (time.perf_counter() - started) / len(new)
            found = {keys[place]: row for place, row in zip(new, made, strict=True)}
        self.spared = self._seconds * (len(keys) - len(new))
        vectors = torch.stack([found[key] if key in found else self._rows[key] for key in keys])
        if (len(self._rows) + len(new)) * 4 * space.dimension <= self.most_bytes:
            self._rows |= found
        return vectors
