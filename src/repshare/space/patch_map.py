"""The computation of `patches`: banks of filters, a second layer, components and cosines, in PyTorch."""

import math
from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from repshare.space.filters import (
    Bank,
    Rotations,
    accumulate,
    as_filters,
    draw_filters,
    lengthen,
    make_bank,
    rectify,
    root,
    spectral,
)  # fmt: skip
from repshare.space.handwriting import discriminate, draw_glyphs
from repshare.space.patches import FIRST_EDGE, PHOTOGRAPHS, SECOND_EDGE, Patches
from repshare.space.photographs import draw_leaves

BATCH = 10  # images: what a second layer makes of them stays in the processor's cache, and its bits depend on it
FLAT_BATCH = 27  # without one; the bits of an image do not depend on it
FIRST, MIXED = 64, 64  # filters of the first layer, and channels that the second layer sees
HALF = 0.5  # threshold of both layers
WEAK = 0.1  # share of the components' mean strength, added to each: the weakest are mostly noise


class PatchMap:
    """The map of a space `patches`: images (n, channels, h, w) to vectors (n, d)."""

    def __init__(self, space: Patches) -> None:
        self.space = space
        self.batch = BATCH if space.deep else FLAT_BATCH

    def __call__(self, images: Tensor) -> Tensor:
        """Map images in small batches."""
        vectors = torch.cat([self.pool(piece.float()) for piece in torch.split(images, self.batch)])
        if self.space.fourier:
            return lengthen(self._rotations(vectors / self.space.width))
        return lengthen(self._reduce(vectors))

    def at_once(self, images: Tensor) -> Tensor:
        """Map images as one batch, of any size."""
        vectors = self.pool(images.float())
        if self.space.fourier:
            return lengthen(self._rotations.at_once(vectors / self.space.width))
        return lengthen(self._reduce(vectors))

    def _reduce(self, vectors: Tensor) -> Tensor:
        """Map vectors (n, pooled) to their components, if these are wanted."""
        if not self.space.components:
            return vectors
        mean, directions = (each.to(vectors.device) for each in reduce(self.space))
        return (vectors - mean) @ directions

    def pool(self, images: Tensor) -> Tensor:
        """Vectors (n, pooled) of length 1."""
        groups = self._groups(torch.cat([images, images.flip(3)]) if self.space.mirror else images)
        if self.space.mirror:
            groups = [F.normalize(group[: len(images)] + group[len(images) :]) for group in groups]
        return torch.cat(groups, dim=1) / math.sqrt(len(groups))

    def _groups(self, images: Tensor) -> list[Tensor]:
        """The two layers' vectors (n, …), each of length 1."""
        images = images - images.mean(dim=(1, 2, 3), keepdim=True)  # no filter sees it, and sums stay small
        images = images.contiguous(memory_format=torch.channels_last)
        sums = accumulate(images)
        answers = (signed for bank in self.banks for signed in bank.answer(images, sums))  # one bank's at a time
        groups = [_average(answers, self.space.grid)]
        if self._deep is not None:
            groups.append(_average(self._deep.answer(images, sums), self.space.deep_grid))
        return [F.normalize(root(group)) for group in groups]

    @cached_property
    def photographs(self) -> NDArray[np.float32]:
        """Synthetic images, whose statistics filters and components follow."""
        return draw_leaves(PHOTOGRAPHS, self.space.shape, self.space.seed)

    @cached_property
    def banks(self) -> list[Bank]:
        """The filters of each size."""
        photographs = self.photographs if self.space.whiten else None
        return [self._bank(self.space.filters, edge, self.space.threshold, photographs) for edge in self.space.sizes]

    def _bank(self, count: int, edge: int, threshold: float, photographs: NDArray[np.float32] | None) -> Bank:
        space = self.space
        return make_bank(count, edge, space.shape[0], threshold, space.epsilon, space.seed, photographs)

    @cached_property
    def _deep(self) -> "Deep | None":
        if not self.space.deep:
            return None
        first = self._bank(FIRST, FIRST_EDGE, HALF, self.photographs if self.space.whiten else None)
        return make_deep(first, self.space.deep, self.photographs, self.space.seed)

    @cached_property
    def _rotations(self) -> Rotations:
        return Rotations(self.space.pooled, self.space.fourier, self.space.seed)


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
    """The mean of synthetic images' vectors (pooled,), and the map to components (pooled, components)."""
    if space.components_of == "photographs":
        return _reduce_photographs(space)
    with torch.inference_mode():
        groups = (_pool_groups(space, copies) for copies in draw_glyphs(space.shape, space.seed))
        found = discriminate(groups, space.components)
    mean, directions = (torch.from_numpy(each).float() for each in found)
    return mean, directions


def _pool_groups(space: Patches, groups: NDArray[np.float32]) -> NDArray[np.float64]:
    """Map groups of images (groups, n, channels, h, w) to groups of vectors (groups, n, pooled)."""
    batches = torch.split(torch.from_numpy(groups).flatten(0, 1), space.map.batch)
    return torch.cat([space.map.pool(images) for images in batches]).double().numpy().reshape(*groups.shape[:2], -1)


def _reduce_photographs(space: Patches) -> tuple[Tensor, Tensor]:
    photographs = torch.from_numpy(space.map.photographs)
    turns = range(4) if space.shape[1] == space.shape[2] else (0, 2)
    turned = torch.cat([torch.rot90(photographs, number, (2, 3)) for number in turns])
    seen = torch.cat([turned, turned.flip(3)])  # many pictures for the cost of few
    with torch.inference_mode():
        vectors = torch.cat([space.map.pool(images) for images in torch.split(seen, BATCH)]).double()
    mean = vectors.mean(dim=0)
    strength, directions = torch.linalg.eigh((vectors - mean).T @ (vectors - mean) / len(vectors))
    strength, directions = strength[-space.components :].flip(0), directions[:, -space.components :].flip(1)
    signs = directions.gather(0, directions.abs().argmax(dim=0, keepdim=True)).sign()  # eigenvectors have none
    reduced = directions * signs / (strength.clamp_min(0) + WEAK * strength.mean()).sqrt()
    return mean.float().clone(), reduced.float().clone()  # ordinary tensors again


def _halve(answers: tuple[Tensor, Tensor]) -> Tensor:
    return root(torch.cat([F.avg_pool2d(signed, 3, 2) for signed in answers], dim=1))


def _average(answers: Iterable[Tensor], grid: int) -> Tensor:
    return torch.cat([F.adaptive_avg_pool2d(signed, grid) for signed in answers], dim=1).flatten(1)
