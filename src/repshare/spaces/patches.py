"""`patches`: random filters over every patch of an image, rectified, pooled and rooted (after Coates and Ng, 2011).

Nothing is learnt: the filters follow from a seed. Each patch is brought to mean 0 and variance 1, compared with every
filter, and counts where it is like the filter or its negative by more than a threshold. Averages over the cells of a
grid, and their square roots, are the numbers of ψ. A Gaussian kernel of them (`fourier`) separates finer.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from repshare.errors import ConfigError, DataError
from repshare.spaces import numbers
from repshare.spaces.fourier import cosines, draw
from repshare.spaces.space import lengthen

BATCH = 50  # images: what a filter bank makes of them stays in the processor's cache
CORRELATION = 0.95  # of two neighbouring pixels, and of two colours of one, in natural images: what whitening assumes
NOISE = 0.05  # of a pixel's variance, which whitening must not amplify


@dataclass(frozen=True)
class Patches:
    """A map for images (n, channels, height, width) of any size, whose pixels vary by about 1."""

    name: ClassVar[str] = "patches"

    shape: tuple[int, int, int]
    """Channels, height and width of an image."""
    seed: int = 0
    """What the filters are drawn from."""
    sizes: tuple[int, ...] = (5, 7, 9)
    """Edges of the filters, in pixels."""
    filters: int = 48
    """Filters of each size."""
    threshold: float = 1.0
    """How like a filter a patch must be to count, in standard deviations of a random one."""
    epsilon: float = 1.0
    """Added to a patch's variance before it is divided by, so that flat patches stay quiet."""
    grids: tuple[int, ...] = (3,)
    """Cells along an edge of each pooling grid. Several are a pyramid."""
    whiten: bool = False
    """Filters for pixels that are alike in the way of photographs: of neighbours, and of colours."""
    mirror: bool = False
    """An image and its mirror image count as one sample: their vectors are averaged."""
    fourier: int = 0
    """With a number: so many random cosines of the vectors, a Gaussian kernel."""
    width: float = 1.0
    """fourier: how far two vectors may differ and still be alike, of vectors of length 1."""

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise ConfigError(f"patches needs channels, height and width of an image, not {self.shape}")
        if not self.sizes or min(self.sizes) < 2 or max(self.sizes) > min(self.shape[1:]):
            edges = " × ".join(map(str, self.shape[1:]))
            raise ConfigError(f"filters of {', '.join(map(str, self.sizes))} pixels do not fit images of {edges}")
        fields = min(self.shape[1:]) - max(self.sizes) + 1
        if not self.grids or not 1 <= min(self.grids) <= max(self.grids) <= fields:
            raise ConfigError(f"grids of {self.grids} cells do not fit: filters leave {fields} × {fields} places")
        if self.filters < 1 or self.fourier < 0:
            raise ConfigError(f"filters must be at least 1 and fourier at least 0, not {self.filters}, {self.fourier}")
        for name in ("threshold", "epsilon", "width"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} must be above 0 and finite, not {getattr(self, name)}")

    @property
    def pooled(self) -> int:
        """Numbers before the cosines, if any."""
        return 2 * self.filters * len(self.sizes) * sum(grid * grid for grid in self.grids)

    @property
    def dimension(self) -> int:
        """d, the length of a vector in numbers."""
        return self.fourier or self.pooled

    def __call__(self, inputs: Tensor) -> Tensor:
        """Images to (n, d), each √d long."""
        if not isinstance(inputs, Tensor) or tuple(inputs.shape[1:]) != self.shape:
            shape = tuple(inputs.shape[1:]) if isinstance(inputs, Tensor) else type(inputs).__name__
            raise DataError(f"the space patches takes images of shape {self.shape}, not inputs of shape {shape}")
        return torch.cat([self._map(images.float()) for images in torch.split(inputs, BATCH)])

    def _map(self, images: Tensor) -> Tensor:
        vectors = self._embed(images)
        if self.mirror:
            vectors = vectors + self._embed(images.flip(3))
        return lengthen(vectors)

    def _embed(self, images: Tensor) -> Tensor:
        images = images.contiguous(memory_format=torch.channels_last)
        pooled = torch.cat([part for bank in self._banks for part in self._respond(images, bank)], dim=1).sqrt_()
        if not self.fourier:
            return lengthen(pooled)
        frequencies, phases = (tensor.to(images.device) for tensor in self._frequencies)
        return cosines(pooled / pooled.norm(dim=1, keepdim=True).clamp_min(1e-12), frequencies, phases)

    def _respond(self, images: Tensor, bank: Tensor) -> Iterator[Tensor]:
        """Where patches are like the filters, and where like their negatives, by cell: (n, filters · cells) each."""
        bank, edge = bank.to(images.device), bank.shape[-1]
        means = F.avg_pool2d(images.mean(dim=1, keepdim=True), edge, 1)
        squares = F.avg_pool2d(images.square().mean(dim=1, keepdim=True), edge, 1)
        deviation = (squares - means.square()).clamp_min_(0).add_(self.epsilon).sqrt_()
        likeness = F.conv2d(images, bank).div_(deviation)  # a filter's mean is 0, so that a patch's drops out
        for sign in (1, -1):
            above = likeness.mul(sign).sub_(self.threshold).clamp_min_(0)
            yield from (F.adaptive_avg_pool2d(above, grid).flatten(1) for grid in self.grids)

    @cached_property
    def _banks(self) -> list[Tensor]:
        """Filters (filters, channels, edge, edge) of each size, each of mean 0 and length 1."""
        channels, banks = self.shape[0], []
        for edge in self.sizes:
            drawn = numbers.normal((self.filters, channels * edge * edge), self.seed, "filters", edge).astype(
                np.float64
            )
            if self.whiten:
                drawn = drawn @ _whitening(channels, edge)
            drawn -= drawn.mean(axis=1, keepdims=True)
            drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
            bank = torch.from_numpy(drawn.astype(np.float32)).view(self.filters, channels, edge, edge)
            banks.append(bank.contiguous(memory_format=torch.channels_last))
        return banks

    @cached_property
    def _frequencies(self) -> tuple[Tensor, Tensor]:
        return draw(self.pooled, self.fourier, self.width, self.seed)


def _whitening(channels: int, edge: int) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    """The inverse root of the covariance that pixels of a patch have in photographs: it falls with their distance."""
    place = np.indices((channels, edge, edge)).reshape(3, -1).T  # (pixels, 3)
    apart = np.hypot(*(np.subtract.outer(place[:, axis], place[:, axis]) for axis in (1, 2)))
    colours = np.subtract.outer(place[:, 0], place[:, 0]) != 0
    covariance = CORRELATION ** (apart + colours) + NOISE * np.eye(len(place))
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T)
