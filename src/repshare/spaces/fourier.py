"""`fourier`: random cosines of a vector or table row, whose inner products are a Gaussian kernel (Rahimi, Recht 2007).

Columns are scaled by bounds that the task states, never by anybody's data.
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

PIECE = 1024  # rows at a time


def cosines(vectors: Tensor, frequencies: Tensor, phases: Tensor) -> Tensor:
    """√2 cos(Ωx + b), row by row: (n, k) to (n, D). Its numbers are about 1, and none is above √2."""
    return torch.cat(
        [torch.addmm(phases, rows, frequencies).cos_() for rows in torch.split(vectors, PIECE)]
    ) * math.sqrt(2)


def draw(inputs: int, dimension: int, width: float, seed: int) -> tuple[Tensor, Tensor]:
    """Frequencies (k, D) of a Gaussian kernel exp(−‖x − y‖² / (2 · width²)), and phases (D,)."""
    frequencies = numbers.normal((inputs, dimension), seed, "frequencies") / np.float32(width)
    return torch.from_numpy(frequencies), torch.from_numpy(
        numbers.uniform((dimension,), seed, "phases") * np.float32(2 * math.pi)
    )


@dataclass(frozen=True)
class Fourier:
    """A map for vectors (n, k): each column to −1 … 1 by its bounds, then `features` random cosines."""

    name: ClassVar[str] = "fourier"

    low: tuple[float, ...]
    """The least value of each column. Values beyond a bound count as the bound."""
    high: tuple[float, ...]
    """The largest value of each column."""
    seed: int = 0
    """What the frequencies are drawn from."""
    features: int = 2048
    """d: how many cosines. More are closer to the kernel."""
    width: float = 1.0
    """How far two rows may differ and still be alike, where 1 is the distance of two random points in the bounds."""

    def __post_init__(self) -> None:
        if len(self.low) != len(self.high) or not self.low:
            raise ConfigError(
                f"fourier needs a low and a high bound for each column: {len(self.low)}, {len(self.high)}"
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
        """Rows (n, k) to (n, d)."""
        if not isinstance(inputs, Tensor) or inputs.ndim != 2 or inputs.shape[1] != len(self.low):
            shape = tuple(inputs.shape) if isinstance(inputs, Tensor) else type(inputs).__name__
            raise DataError(f"the space fourier takes vectors of {len(self.low)} numbers, not inputs of shape {shape}")
        low, high, frequencies, phases = (tensor.to(inputs.device) for tensor in self._constants)
        scaled = (inputs.float().clamp(low, high) - low) / (high - low) * 2 - 1
        return lengthen(cosines(scaled, frequencies, phases))  # they were nearly that long before

    @cached_property
    def _constants(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        distance = math.sqrt(2 * len(self.low) / 3)  # of two points drawn from the cube −1 … 1
        bounds = torch.tensor(self.low), torch.tensor(self.high)
        return (*bounds, *draw(len(self.low), self.features, self.width * distance, self.seed))
