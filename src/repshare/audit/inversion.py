"""Feature inversion: from a released average back to an input, by gradient descent through φ."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from repshare.models import Network
from repshare.representations import Floats

STEPS = 400
STEP_SIZE = 0.05
SMOOTHNESS = 1e-4  # what a squared difference of neighbouring pixels costs, where features not met at all cost 1


class Likeness(NamedTuple):
    """How well reconstructions show whose features they were made from."""

    error: float
    """Mean squared difference from the samples that were averaged, in variances of the data."""
    elsewhere: float
    """The same from other samples of the class: what knowing the class alone gives."""
    found: float
    """How often the nearest of all samples of the class, by pixels, is one that was averaged."""
    chance: float
    """How often it would be by chance."""


def invert(
    network: Network, targets: Floats, shape: tuple[int, ...], limits: tuple[float, float], steps: int = STEPS
) -> Tensor:
    """Inputs (n, …) whose representations are as near to these (n, d) as can be found, with smooth pixels."""
    network.model.eval()
    wanted = torch.from_numpy(targets)
    images = torch.zeros(len(targets), *shape, requires_grad=True)
    optimizer = torch.optim.Adam([images], lr=STEP_SIZE * (limits[1] - limits[0]))
    for _ in range(steps):
        optimizer.zero_grad()
        features, _ = network(images)
        misfit = (features - wanted).square().sum(dim=1) / wanted.square().sum(dim=1)  # (n,)
        (gradient,) = torch.autograd.grad((misfit + SMOOTHNESS * _roughness(images)).sum(), images)
        images.grad = gradient
        optimizer.step()
        with torch.no_grad():
            images.clamp_(*limits)
    return images.detach()


def compare(images: Tensor, averaged: list[NDArray[np.int64]], among: NDArray[np.float32]) -> Likeness:
    """Compare each reconstruction with all samples of its class (m, …), of which some were averaged in it."""
    flat, samples = images.flatten(1).numpy(), among.reshape(len(among), -1)
    errors = np.square(flat[:, None] - samples[None]).mean(axis=2) / samples.var()  # (n, m)
    own = np.zeros(errors.shape, bool)
    for row, members in zip(own, averaged, strict=True):
        row[members] = True
    found = own[np.arange(len(own)), errors.argmin(axis=1)]
    return Likeness(float(errors[own].mean()), float(errors[~own].mean()), float(found.mean()), float(own.mean()))


def _roughness(images: Tensor) -> Tensor:
    """Squared differences of neighbouring pixels (n,)."""
    across, down = images.diff(dim=-1).square(), images.diff(dim=-2).square()
    return across.flatten(1).sum(dim=1) + down.flatten(1).sum(dim=1)
