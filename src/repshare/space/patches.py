"""`patches`: random filters over every patch of an image, rectified, pooled and rooted (after Coates and Ng, 2011).

Nothing is learnt: the filters follow from a seed. Their answers are averaged over the cells of a grid, and the square
roots of these averages are the numbers of ψ. A second layer (`deep`) looks at the answers of a first one in the same
way. Random cosines (`fourier`) of all these, a Gaussian kernel, separate finer.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from repshare.errors import ConfigError, DataError
from repshare.fields import check_least, check_one_of, check_positive
from repshare.space.handwriting import MOST_DIRECTIONS
from repshare.space.space import LATER, Space

if TYPE_CHECKING:
    from repshare.space.patch_map import PatchMap

PHOTOGRAPHS = 300
FIRST_EDGE, SECOND_EDGE = 5, 3  # of the filters of the two layers of `deep`
MOST_COMPONENTS = 4 * PHOTOGRAPHS  # principal directions that this many photographs show
MOST_REDUCED = 4096  # numbers that principal directions are found of: more would take minutes


@dataclass(frozen=True)
class Patches(Space):
    """A map for images (n, channels, height, width) of any size, whose pixels vary by about 1."""

    name: ClassVar[str] = "patches"

    shape: tuple[int, int, int]
    """Channels, height and width of an image."""
    seed: int = 0
    """The seed of the filters."""
    sizes: tuple[int, ...] = (5, 7, 9)
    """Edges of the filters, in pixels."""
    filters: int = 48
    """Filters of each size."""
    threshold: float = 1.0
    """The likeness to a filter from which a patch counts, in standard deviations of a random one."""
    epsilon: float = 0.1
    """Added to a patch's variance before it is divided by, so that flat patches stay quiet."""
    grid: int = 3
    """Cells along an edge of the grid that answers are averaged over."""
    whiten: bool = False
    """Filters for patches whose pixels are made independent, by the statistics of synthetic photographs."""
    deep: int = 0
    """Filters of a second layer, over the answers of a first one. 0: none."""
    deep_grid: int = 2
    """deep: cells along an edge of its grid."""
    mirror: bool = False
    """An image and its mirror image count as one sample: their vectors are averaged."""
    fourier: int = 0
    """Random cosines and sines of the vectors, a Gaussian kernel. 0: the vectors themselves."""
    width: float = 1.0
    """fourier: how far two vectors may differ and still be alike, for vectors of length 1."""
    components: int = field(default=0, metadata=LATER)
    """Numbers that a vector is reduced to: fewer show less of single samples, and need less noise (--epsilon).
    0: the vectors themselves."""
    components_of: Literal["photographs", "glyphs"] = field(default="photographs", metadata=LATER)
    """components: the principal directions of synthetic photographs, all about equally strong; or those that best tell
    synthetic glyphs apart, whoever writes them, for images of bright strokes."""

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise ConfigError(f"patches needs channels, height and width of an image, not {self.shape}")
        edge = min(self.shape[1:])
        if not self.sizes or min(self.sizes) < 2 or max(self.sizes) + self.grid > edge + 1:
            told = f"filters of {', '.join(map(str, self.sizes))} pixels and a grid of {self.grid}"
            raise ConfigError(f"{told} do not fit images of {self.shape[1]} × {self.shape[2]}")
        if self.deep and _deep_places(edge) < self.deep_grid:
            raise ConfigError(f"deep_grid {self.deep_grid} does not fit images of {self.shape[1]} × {self.shape[2]}")
        check_least(self, filters=1, grid=1, deep=0, deep_grid=1, fourier=0)
        if self.fourier % 2:
            raise ConfigError(f"fourier must be even, as cosines and sines come in pairs, not {self.fourier}")
        check_positive(self, "threshold", "epsilon", "width")
        check_one_of(self, "components_of")
        most = min(self.pooled, MOST_DIRECTIONS if self.components_of == "glyphs" else MOST_COMPONENTS)
        if not 0 <= self.components <= most:
            raise ConfigError(f"components must be from 0 to {most}, not {self.components}")
        if self.components and (self.fourier or self.pooled > MOST_REDUCED):
            raise ConfigError(
                f"components are of at most {MOST_REDUCED:,} numbers and not of cosines: use fewer filters"
            )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Channels, height and width of an image."""
        return self.shape

    @property
    def pooled(self) -> int:
        """Numbers before the cosines, if any."""
        return 2 * (len(self.sizes) * self.filters * self.grid**2 + self.deep * self.deep_grid**2)

    @property
    def dimension(self) -> int:
        """d, the length of a vector in numbers."""
        return self.fourier or self.components or self.pooled

    def extent(self) -> dict[str, int]:
        """Numbers of a vector, before and after its cosines, and of an image, and the work of its filters."""
        pixels = math.prod(self.shape)
        return {
            "dimensions": max(self.dimension, self.pooled),
            "sizes of filters": len(self.sizes),
            "numbers an image": pixels,
            "multiplications an image": pixels * self.filters * sum(edge * edge for edge in self.sizes),
        }

    def __call__(self, inputs: Any) -> Any:
        """Map images to (n, d), each √d long."""
        shape = type(inputs).__name__ if isinstance(inputs, Mapping | list) else tuple(inputs.shape[1:])
        if shape != self.shape:
            raise DataError(f"the space patches takes images of shape {self.shape}, not inputs of shape {shape}")
        return self.map(inputs)

    def graph(self) -> Callable[[Any], Any]:
        """The same map, without the division into small batches."""
        return self.map.at_once

    @cached_property
    def map(self) -> "PatchMap":
        """What computes the vectors, with PyTorch. A task's description needs none of it."""
        from repshare.space.patch_map import PatchMap

        return PatchMap(self)


def _deep_places(edge: int) -> int:
    """The places along an edge that the second layer looks at."""
    return (edge - FIRST_EDGE + 1 - 3) // 2 + 1 - SECOND_EDGE + 1
