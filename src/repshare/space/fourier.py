"""`fourier`: random cosines of a vector or table row, whose inner products are a Gaussian kernel (Rahimi, Recht 2007).

Columns are scaled by bounds that the task states, never by any client's data.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from repshare.errors import ConfigError, DataError
from repshare.sharing.representations import Floats
from repshare.space import seeded
from repshare.space.space import Space, as_array

PIECE = 500  # rows at a time
MOST_BEYOND = 1 / 16  # of a column beyond four of its standard deviations, by Chebyshev: with more, it has others


@dataclass(frozen=True)
class Fourier(Space):
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

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The number of columns."""
        return (len(self.low),)

    def extent(self) -> dict[str, int]:
        """Numbers of a vector, and of the table of frequencies."""
        return {"dimensions": self.features, "frequencies (columns × cosines)": len(self.low) * self.features}

    def __call__(self, inputs: Any) -> Floats:
        """Map rows (n, k), or anything of k numbers a sample, to (n, d), each √d long."""
        shape = type(inputs).__name__ if isinstance(inputs, Mapping | list) else tuple(inputs.shape[1:])
        if isinstance(shape, str) or math.prod(shape) != len(self.low):
            raise DataError(f"the space fourier takes vectors of {len(self.low)} numbers, not inputs of shape {shape}")
        rows = as_array(inputs).reshape(len(inputs), len(self.low)).astype(np.float64)
        pieces = [self._map(rows[start : start + PIECE]) for start in range(0, max(len(rows), 1), PIECE)]
        return np.concatenate(pieces)

    def _map(self, rows: NDArray[np.float64]) -> Floats:
        """Map rows (n, k) in fp64, so that a row's vector does not depend on the rows beside it."""
        low, high, frequencies, phases = self._constants
        scaled = (rows.clip(low, high) - low) / (high - low) * 2 - 1
        cosines = np.cos(phases + scaled @ frequencies).astype(np.float32)
        lengths = np.linalg.norm(cosines, axis=1, keepdims=True)
        return np.asarray(cosines * (math.sqrt(self.features) / lengths.clip(1e-12, None)))

    def graph(self) -> Callable[[Any], Any]:
        """The same map of tensors, in fp32."""
        import torch

        from repshare.space.filters import lengthen

        low, high, frequencies, phases = map(torch.from_numpy, self._constants)

        def embed(inputs: torch.Tensor) -> torch.Tensor:
            scaled = (inputs.flatten(1).float().clip(low, high) - low) / (high - low) * 2 - 1
            return lengthen(torch.addmm(phases, scaled, frequencies).cos_())

        return embed

    @cached_property
    def _constants(self) -> tuple[NDArray[np.float32], ...]:
        """Bounds (k,) each, frequencies (k, d) of the kernel exp(−‖x − y‖² / (2 · width²)), and phases (d,)."""
        distance = math.sqrt(2 * len(self.low) / 3)  # of two points drawn from the cube −1 … 1
        frequencies = seeded.normal((len(self.low), self.features), self.seed, "frequencies")
        phases = seeded.uniform((self.features,), self.seed, "phases") * np.float32(2 * math.pi)
        low, high = (np.array(each, np.float32) for each in (self.low, self.high))
        return low, high, frequencies / np.float32(self.width * distance), phases


def find_reach(rows: Any, low: Any = -4.0, high: Any = 4.0) -> float | None:
    """The value farthest from 0 in columns (n, k) of which much is out of bounds; None if there are none."""
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.dtype.kind != "f":
        return None
    often = ((rows < low) | (rows > high)).mean(axis=0) > MOST_BEYOND
    return float(np.abs(rows[:, often]).max()) if often.any() else None
