"""Feature inversion: from a released average back to an input, by gradient descent through φ."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from repshare.network.models import Network
from repshare.sharing.representations import Floats

STEPS = 300
STEP_SIZE = 0.1
PLAUSIBILITY = 1e-3  # what an unlikely coordinate costs, where features not met at all cost 1
COORDINATES = 60


class Prior(NamedTuple):
    """The attacker's knowledge of inputs, from its own data: a mean, and directions as long as data vary in them."""

    mean: Tensor  # (channels, h, w)
    directions: Tensor  # (k, channels · h · w)

    def draw(self, coordinates: Tensor) -> Tensor:
        """Return inputs (n, channels, h, w) at these coordinates (n, k)."""
        return self.mean + (coordinates @ self.directions).view(-1, *self.mean.shape)


class Likeness(NamedTuple):
    """Measures how well reconstructions show whose features they were made from."""

    missed: float
    """The squared distance of features to those released, relative to the latter's square: 0 if they were met."""
    error: float
    """Mean squared difference from the samples that were averaged, in variances of the data."""
    elsewhere: float
    """The same from other samples of the class: what knowing the class alone gives."""
    found: float
    """The share of cases in which the nearest of all samples of the class, by pixels, is one that was averaged."""
    chance: float
    """That share by chance."""


def look_at(images: NDArray[np.float32]) -> Prior:
    """Make a prior from images (n, channels, h, w): their principal components."""
    flat = images.reshape(len(images), -1).astype(np.float64)
    mean = flat.mean(axis=0)
    _, lengths, directions = np.linalg.svd(flat - mean, full_matrices=False)
    scaled = (directions * lengths[:, None] / len(images) ** 0.5)[:COORDINATES]
    return Prior(torch.from_numpy(mean).float().view(images.shape[1:]), torch.from_numpy(scaled).float())


def invert(network: Network, targets: Floats, prior: Prior, steps: int = STEPS) -> Tensor:
    """Return plausible inputs (n, …) whose representations are as near to these (n, d) as gradient descent gets."""
    network.model.eval()
    wanted = torch.from_numpy(targets)
    coordinates = torch.zeros(len(targets), len(prior.directions), requires_grad=True)
    optimizer = torch.optim.Adam([coordinates], lr=STEP_SIZE)
    for _ in range(steps):
        features, _ = network(prior.draw(coordinates))
        misfit = _misfit(features, wanted)
        unlikely = coordinates.square().mean(dim=1)  # (n,)
        (gradient,) = torch.autograd.grad((misfit + PLAUSIBILITY * unlikely).sum(), coordinates)
        coordinates.grad = gradient
        optimizer.step()
    return prior.draw(coordinates.detach())


def miss(network: Network, images: Tensor, targets: Floats) -> list[float]:
    """Return the distance of each input's features from those wanted."""
    network.model.eval()
    with torch.no_grad():
        features, _ = network(images)
    return list(_misfit(features, torch.from_numpy(targets)).tolist())


def _misfit(features: Tensor, wanted: Tensor) -> Tensor:
    """Return the squared distance of each row, relative to the square of what is wanted (n,)."""
    return (features - wanted).square().sum(dim=1) / wanted.square().sum(dim=1)


def compare(image: Tensor, among: NDArray[np.float32], averaged: NDArray[np.bool_], missed: float) -> Likeness:
    """Compare a reconstruction with all samples of its class (m, …), of which some (m,) were averaged in it."""
    samples = among.reshape(len(among), -1)
    errors = np.square(image.flatten().numpy() - samples).mean(axis=1) / samples.var()  # (m,)
    near, far = float(errors[averaged].mean()), float(errors[~averaged].mean())
    return Likeness(missed, near, far, float(averaged[errors.argmin()]), float(averaged.mean()))
