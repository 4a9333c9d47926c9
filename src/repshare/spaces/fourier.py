"""`fourier`: random cosines of a vector or table row, whose inner products are a Gaussian kernel (Rahimi, Recht 2007).

Columns are scaled by bounds that the task states, never by any client's data.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from repshare.errors import ConfigError, DataError
from repshare.spaces import numbers
from repshare.spaces.space import lengthen

PIECE = 500  # rows at a time


@dataclass(frozen=True)
class Fourier:
    """A map for vectors (n, k): each column to −1 … 1 by its bounds, then `features` random cosines."""

    name: ClassVar[str] = "fourier"

    low: tuple[float, ...]
    """The least value of each column. Values beyond a bound count as the bound."""
    high: tuple[float, ...]
    """The largest value of each column."""
    seed: int = 0
    """The seed of the frequencies."""
    features: int = 2048
    """d: how many cosines. More are closer to the kernel."""
    width: float = 0.5
    """The distance up to which two rows are alike, where 1 is the distance of two random points in the bounds."""

    def __post_init__(self) -> None:
        if len(self.low) != len(self.high) or not self.low:
            raise ConfigError(
                f"fourier needs two bounds a column, not {len(self.low)} low and {len(self.high)} high ones"
            )
        for column, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            if not -math.inf < low < high < math.inf:
                raise ConfigError(f"column {column} has bounds {low} and {high}: the first must be below the second")
        if self.features < 1 or not 0 < self.width < math.inf:
            raise ConfigError(f"features {self.features} and width {self.width} must be above 0 and finite")

    @property
    def dimension(self) -> int:
        """d, the number of cosines."""
        return self.features

    def __call__(self, inputs: Tensor) -> Tensor:
        """Map rows (n, k), or anything of k numbers a sample, to (n, d), each √d long."""
        if not isinstance(inputs, Tensor) or inputs.shape[1:].numel() != len(self.low):
            shape = tuple(inputs.shape[1:]) if isinstance(inputs, Tensor) else type(inputs).__name__
            raise DataError(f"the space fourier takes vectors of {len(self.low)} numbers, not inputs of shape {shape}")
        return lengthen(torch.cat([self._map(rows) for rows in torch.split(inputs, PIECE)]))

    def at_once(self, inputs: Tensor) -> Tensor:
        """Return the same, without the division into pieces: as one graph of any batch size."""
        return lengthen(self._map(inputs))

    def _map(self, inputs: Tensor) -> Tensor:
        low, high, frequencies, phases = (tensor.to(inputs.device) for tensor in self._constants)
        scaled = (inputs.flatten(1).float().clamp(low, high) - low) / (high - low) * 2 - 1
        return torch.addmm(phases, scaled, frequencies).cos_()

    @cached_property
    def _constants(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Bounds (k,) each, frequencies (k, d) of the kernel exp(−‖x − y‖² / (2 · width²)), and phases (d,)."""
        distance = math.sqrt(2 * len(self.low) / 3)  # of two points drawn from the cube −1 … 1
        frequencies = numbers.normal((len(self.low), self.features), self.seed, "frequencies")
        phases = numbers.uniform((self.features,), self.seed, "phases") * np.float32(2 * math.pi)
        scaled = torch.from_numpy(frequencies / np.float32(self.width * distance))
        return torch.tensor(self.low), torch.tensor(self.high), scaled, torch.from_numpy(phases)


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
