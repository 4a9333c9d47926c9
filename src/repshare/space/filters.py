"""Filter banks and random rotations that follow from a seed.

A filter answers where a patch, brought to mean 0 and variance 1, is like the filter or like its negative by more
than a threshold.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from repshare.space import seeded

Matrix = NDArray[np.float64]
STEP = 2.0**-14  # of a filter's numbers: coarse enough to come out the same from any linear algebra
PIECE = 500  # rows at a time
LEAST = 2.0**-100  # the least value of an inverse root: 0 times that is 0. An added constant would be lost in ONNX


class Bank(NamedTuple):
    """Filters of one size."""

    filters: Tensor  # (count, channels, edge, edge)
    norm: Tensor | None  # (pixels, channels, edge, edge)  what a patch's length is measured after; None: its deviation
    threshold: float
    epsilon: float

    def answer(self, images: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Map images (n, channels, h, w), with their running sums, to likeness to filters and to their negatives."""
        filters, edge = self.filters.to(images.device), self.filters.shape[-1]
        if self.norm is None:
            rows = sums[:, :, edge:] - sums[:, :, :-edge]
            means, squares = torch.split((rows[..., edge:] - rows[..., :-edge]) / (edge * edge), 1, dim=1)
            variance = (squares - means.square()).clamp_min_(0)
        else:
            variance = F.conv2d(images, self.norm.to(images.device)).square_().mean(dim=1, keepdim=True)
        return rectify(F.conv2d(images, filters), variance.add_(self.epsilon).rsqrt_(), self.threshold)


def accumulate(images: Tensor) -> Tensor:
    """Running sums of pixels and of their squares (n, 2, h + 1, w + 1): any square's mean is four of them."""
    moments = [each.mean(dim=1, keepdim=True) for each in (images, images.square())]
    return F.pad(torch.cat(moments, dim=1), (1, 0, 1, 0)).cumsum(2).cumsum(3)


def rectify(likeness: Tensor, scale: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Both signs, scaled, less a threshold; the first in place. Apart: joining them takes as long as filters."""
    negative = (-threshold - likeness.mul_(scale)).clamp_min_(0)
    return likeness.sub_(threshold).clamp_min_(0), negative


def root(values: Tensor) -> Tensor:
    """Square roots, in place. PyTorch's own take five times as long where there are zeros."""
    return values.mul_(values.clamp_min(LEAST).rsqrt_())


def draw_filters(count: int, size: int, *path: int | str) -> Matrix:
    """Draw random filters (count, size) of length 1."""
    drawn = seeded.normal((count, size), *path).astype(np.float64)
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def make_bank(
    count: int,
    edge: int,
    channels: int,
    threshold: float,
    epsilon: float,
    seed: int,
    photographs: NDArray[np.float32] | None,
) -> Bank:
    """Make a bank of mean-free filters; with photographs, for patches that are whitened by the statistics of these."""
    size = channels * edge * edge
    drawn, norm = draw_filters(count, size, seed, "filters", edge), None
    if photographs is None:
        drawn -= drawn.mean(axis=1, keepdims=True)
        drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    else:
        whitening = _whiten_patches(photographs, edge, epsilon)
        drawn, norm = drawn @ whitening, as_filters(whitening, channels, edge)
    return Bank(as_filters(drawn, channels, edge), norm, threshold, epsilon)


def as_filters(matrix: Matrix, channels: int, edge: int) -> Tensor:
    """The rows as filters (rows, channels, edge, edge) in fp32."""
    rows = torch.from_numpy((np.rint(matrix / STEP) * STEP).astype(np.float32)).view(-1, channels, edge, edge)
    return torch.empty(rows.shape, memory_format=torch.channels_last).copy_(rows)  # also of one channel


def _whiten_patches(photographs: NDArray[np.float32], edge: int, epsilon: float, noise: float = 0.02) -> Matrix:
    """The matrix that makes a patch's pixels independent: the inverse root of their covariance (size, size)."""
    patches = F.unfold(torch.from_numpy(photographs), edge)[:, :, ::11].transpose(1, 2).flatten(0, 1).double().numpy()
    patches -= patches.mean(axis=1, keepdims=True)
    patches /= np.sqrt(np.square(patches).mean(axis=1, keepdims=True) + epsilon)
    covariance = patches.T @ patches / len(patches)
    covariance /= np.diagonal(covariance).mean()
    free = np.eye(len(covariance)) - 1 / len(covariance)  # removes the mean
    return np.asarray(spectral(free @ covariance @ free, lambda values: (values + noise) ** -0.5) @ free)


def spectral(matrix: Matrix, change: Callable[[Matrix], Matrix]) -> Matrix:
    """The symmetric matrix with its eigenvalues changed: free of the eigenvectors' signs and order."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * change(np.clip(values, 0, None))) @ vectors.T)


def lengthen(vectors: Tensor) -> Tensor:
    """Bring each row to length √d; what is all zero stays so."""
    factors: Tensor = math.sqrt(vectors.shape[1]) / vectors.norm(dim=1, keepdim=True).clip(1e-12, None)
    return vectors * factors


class Rotations:
    """Cosines and sines of random rotations, a Gaussian kernel for long vectors (Yu et al., 2016).

    A rotation is three times random signs and a Hadamard matrix, which takes no more than two small products.
    """

    def __init__(self, inputs: int, features: int, seed: int) -> None:
        self.inputs, self.half = inputs, features // 2
        bits = max(2, (inputs - 1).bit_length())
        self.rows, self.columns = 1 << bits // 2, 1 << bits - bits // 2
        size = self.rows * self.columns
        drawn = seeded.uniform((-(-self.half // size), 3, size), seed, "signs")
        self._signs = torch.from_numpy(np.where(drawn < 0.5, np.float32(-1), np.float32(1)))
        self._left, self._right = _hadamard(self.rows), _hadamard(self.columns)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Map vectors (n, inputs) to (n, features), for the kernel exp(−‖x − y‖² / 2)."""
        return torch.cat([self.at_once(rows) for rows in torch.split(vectors, PIECE)])

    def at_once(self, vectors: Tensor) -> Tensor:
        """The same, without the division into pieces."""
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
    """The orthogonal matrix of ±1/√size (Sylvester's)."""
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / math.sqrt(size)
