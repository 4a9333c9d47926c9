"""Random rotations, and their cosines and sines: a Gaussian kernel for long vectors."""

import math

import numpy as np
import torch
from torch import Tensor

from repshare.space import numbers

PIECE = 500  # rows at a time


class Rotations:
    """Cosines and sines of random rotations, a Gaussian kernel for long vectors (Yu et al., 2016).

    A rotation is three times random signs and a Hadamard matrix, which takes no more than two small products.
    """

    def __init__(self, inputs: int, features: int, seed: int) -> None:
        self.inputs, self.half = inputs, features // 2
        bits = max(2, (inputs - 1).bit_length())
        self.rows, self.columns = 1 << bits // 2, 1 << bits - bits // 2
        size = self.rows * self.columns
        drawn = numbers.uniform((-(-self.half // size), 3, size), seed, "signs")
        self._signs = torch.from_numpy(np.where(drawn < 0.5, np.float32(-1), np.float32(1)))
        self._left, self._right = _hadamard(self.rows), _hadamard(self.columns)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Map vectors (n, inputs) to (n, features), for the kernel exp(−‖x − y‖² / 2)."""
        return torch.cat([self.at_once(rows) for rows in torch.split(vectors, PIECE)])

    def at_once(self, vectors: Tensor) -> Tensor:
        """Return the same, without the division into pieces."""
        size = self.rows * self.columns
        left, right, signs = (tensor.to(vectors.device) for tensor in (self._left, self._right, self._signs))
        padded = torch.nn.functional.pad(vectors, (0, size - self.inputs))
        turned = []
        for three in signs:
            rows = padded
            for each in three:
                rows = (left @ (rows * each).view(-1, self.rows, self.columns) @ right).reshape(-1, size)
            turned.append(rows)
        angles = torch.cat(turned, dim=1)[:, : self.half] * math.sqrt(size)
        return torch.cat([angles.cos(), angles.sin()], dim=1)


def _hadamard(size: int) -> Tensor:
    """Return the orthogonal matrix of ±1/√size (Sylvester's)."""
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / math.sqrt(size)
