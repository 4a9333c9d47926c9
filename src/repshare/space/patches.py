"""`patches`: random filters over every patch of an image, rectified, pooled and rooted (after Coates and Ng, 2011).

Nothing is learnt: the filters follow from a seed. Their answers are averaged over the cells of a grid, and the square
roots of these averages are the numbers of ψ. A second layer (`deep`) looks at the answers of a first one in the same
way. Random cosines (`fourier`) of all these, a Gaussian kernel, separate finer.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from repshare.errors import ConfigError, DataError
from repshare.fields import check_least, check_one_of, check_positive
from repshare.space.banks import (
    Bank,
    accumulate,
    as_filters,
    draw_filters,
    lengthen,
    make_bank,
    rectify,
    root,
    spectral,
)  # fmt: skip
from repshare.space.glyphs import MOST_DIRECTIONS, discriminate, draw_glyphs
from repshare.space.leaves import draw_leaves
from repshare.space.rotations import Rotations
from repshare.space.space import LATER, Space

BATCH = 10  # images: what a second layer makes of them stays in the processor's cache, and its bits depend on it
FLAT_BATCH = 27  # without one; the bits of an image do not depend on it
PHOTOGRAPHS = 300
FIRST_EDGE, SECOND_EDGE = 5, 3  # of the filters of the two layers of `deep`
FIRST, MIXED = 64, 64  # filters of its first layer, and channels that its second layer sees
HALF = 0.5  # threshold of both layers
MOST_COMPONENTS = 4 * PHOTOGRAPHS  # principal directions that this many photographs show
MOST_REDUCED = 4096  # numbers that principal directions are found of: more would take minutes
WEAK = 0.1  # of the mean strength of components, added to each, so that the weakest are not mostly noise


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

    def __call__(self, inputs: Tensor) -> Tensor:
        """Map images to (n, d), each √d long."""
        if not isinstance(inputs, Tensor) or tuple(inputs.shape[1:]) != self.shape:
            shape = tuple(inputs.shape[1:]) if isinstance(inputs, Tensor) else type(inputs).__name__
            raise DataError(f"the space patches takes images of shape {self.shape}, not inputs of shape {shape}")
        batches = torch.split(inputs, BATCH if self.deep else FLAT_BATCH)
        vectors = torch.cat([self._pool(images.float()) for images in batches])
        if self.fourier:
            return lengthen(self._rotations(vectors / self.width))
        return lengthen(self._reduce(vectors))

    def graph(self) -> Callable[[Tensor], Tensor]:
        """The same map, without the division into small batches."""

        def embed(inputs: Tensor) -> Tensor:
            vectors = self._pool(inputs.float())
            return lengthen(self._rotations.at_once(vectors / self.width) if self.fourier else self._reduce(vectors))

        return embed

    def _reduce(self, vectors: Tensor) -> Tensor:
        """Map vectors (n, pooled) to their components, if these are wanted."""
        if not self.components:
            return vectors
        mean, directions = (each.to(vectors.device) for each in reduce(self))
        return (vectors - mean) @ directions

    def _pool(self, images: Tensor) -> Tensor:
        """Return vectors (n, pooled) of length 1."""
        groups = self._groups(torch.cat([images, images.flip(3)]) if self.mirror else images)
        if self.mirror:
            groups = [F.normalize(group[: len(images)] + group[len(images) :]) for group in groups]
        return torch.cat(groups, dim=1) / math.sqrt(len(groups))

    def _groups(self, images: Tensor) -> list[Tensor]:
        """Return the two layers' vectors (n, …), each of length 1."""
        images = images - images.mean(dim=(1, 2, 3), keepdim=True)  # no filter sees it, and sums stay small
        images = images.contiguous(memory_format=torch.channels_last)
        sums = accumulate(images)
        answers = (signed for bank in self._banks for signed in bank.answer(images, sums))  # one bank's at a time
        groups = [_average(answers, self.grid)]
        if self._deep is not None:
            groups.append(_average(self._deep.answer(images, sums), self.deep_grid))
        return [F.normalize(root(group)) for group in groups]

    @cached_property
    def _photographs(self) -> NDArray[np.float32]:
        return draw_leaves(PHOTOGRAPHS, self.shape, self.seed)

    @cached_property
    def _banks(self) -> list[Bank]:
        photographs = self._photographs if self.whiten else None
        return [self._bank(self.filters, edge, self.threshold, photographs) for edge in self.sizes]

    def _bank(self, count: int, edge: int, threshold: float, photographs: NDArray[np.float32] | None) -> Bank:
        return make_bank(count, edge, self.shape[0], threshold, self.epsilon, self.seed, photographs)

    @cached_property
    def _deep(self) -> "Deep | None":
        if not self.deep:
            return None
        first = self._bank(FIRST, FIRST_EDGE, HALF, self._photographs if self.whiten else None)
        return make_deep(first, self.deep, self._photographs, self.seed)

    @cached_property
    def _rotations(self) -> Rotations:
        return Rotations(self.pooled, self.fourier, self.seed)


class Deep(NamedTuple):
    """Two layers of filters: the second over the answers of the first, at half the resolution."""

    first: Bank
    mixing: Tensor  # (MIXED, channels, 1, 1)  independent mixtures of the first layer's answers
    shift: Tensor  # (MIXED,)
    second: Tensor  # (count, MIXED, edge, edge)

    def answer(self, images: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Map images (n, channels, h, w), with their running sums, to likeness to filters and to their negatives."""
        seen = _halve(self.first.answer(images, sums))
        mixed = F.conv2d(seen, self.mixing.to(images.device), self.shift.to(images.device))
        power = F.avg_pool2d(mixed.square().mean(dim=1, keepdim=True), SECOND_EDGE, 1)
        return rectify(F.conv2d(mixed, self.second.to(images.device)), power.add_(0.05).rsqrt_(), HALF)


def make_deep(first: Bank, count: int, photographs: NDArray[np.float32], seed: int) -> Deep:
    """Mix the first layer's answers so that to photographs they are independent, the weak ones kept weak."""
    pieces = torch.split(torch.from_numpy(photographs), BATCH)
    halved = torch.cat([_halve(first.answer(piece, accumulate(piece))) for piece in pieces])
    seen = halved.permute(0, 2, 3, 1).flatten(0, 2).double()
    mean = seen.mean(dim=0)
    covariance = ((seen - mean).T @ (seen - mean) / len(seen)).numpy()
    usual = float(np.sort(np.linalg.eigvalsh(covariance))[-MIXED:].mean())
    whitening = spectral(covariance, lambda values: (values + 0.05 * usual) ** -0.5 * values / (values + usual))
    mixing = draw_filters(MIXED, len(covariance), seed, "mixing") * math.sqrt(len(covariance)) @ whitening
    second = draw_filters(count, MIXED * SECOND_EDGE**2, seed, "second")
    filters = as_filters(mixing, len(covariance), 1)
    return Deep(first, filters, -(filters.flatten(1).double() @ mean).float(), as_filters(second, MIXED, SECOND_EDGE))


@lru_cache(16)
def reduce(space: Patches) -> tuple[Tensor, Tensor]:
    """Return the mean of synthetic images' vectors (pooled,), and the map to components (pooled, components)."""
    if space.components_of == "photographs":
        return _reduce_photographs(space)
    with torch.inference_mode():
        groups = (_pool_groups(space, copies) for copies in draw_glyphs(space.shape, space.seed))
        found = discriminate(groups, space.components)
    mean, directions = (torch.from_numpy(each).float() for each in found)
    return mean, directions


def _pool_groups(space: Patches, groups: NDArray[np.float32]) -> NDArray[np.float64]:
    """Map groups of images (groups, n, channels, h, w) to groups of vectors (groups, n, pooled)."""
    batches = torch.split(torch.from_numpy(groups).flatten(0, 1), BATCH if space.deep else FLAT_BATCH)
    return torch.cat([space._pool(images) for images in batches]).double().numpy().reshape(*groups.shape[:2], -1)


def _reduce_photographs(space: Patches) -> tuple[Tensor, Tensor]:
    photographs = torch.from_numpy(space._photographs)
    turns = range(4) if space.shape[1] == space.shape[2] else (0, 2)
    turned = torch.cat([torch.rot90(photographs, number, (2, 3)) for number in turns])
    seen = torch.cat([turned, turned.flip(3)])  # many pictures for the cost of few
    with torch.inference_mode():
        vectors = torch.cat([space._pool(images) for images in torch.split(seen, BATCH)]).double()
    mean = vectors.mean(dim=0)
    strength, directions = torch.linalg.eigh((vectors - mean).T @ (vectors - mean) / len(vectors))
    strength, directions = strength[-space.components :].flip(0), directions[:, -space.components :].flip(1)
    signs = directions.gather(0, directions.abs().argmax(dim=0, keepdim=True)).sign()  # eigenvectors have none
    reduced = directions * signs / (strength.clamp_min(0) + WEAK * strength.mean()).sqrt()
    return mean.float().clone(), reduced.float().clone()  # ordinary tensors again


def _halve(answers: tuple[Tensor, Tensor]) -> Tensor:
    return root(torch.cat([F.avg_pool2d(signed, 3, 2) for signed in answers], dim=1))


def _deep_places(edge: int) -> int:
    """Return the places along an edge that the second layer looks at."""
    return (edge - FIRST_EDGE + 1 - 3) // 2 + 1 - SECOND_EDGE + 1


def _average(answers: Iterable[Tensor], grid: int) -> Tensor:
    return torch.cat([F.adaptive_avg_pool2d(signed, grid) for signed in answers], dim=1).flatten(1)
