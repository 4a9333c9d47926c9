"""The noise that a privacy budget needs, and the error that it causes, before the first release."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.privacy.guard import noise_multiplier


class Expected(NamedTuple):
    """The errors to expect in a class of this size: root mean square lengths, over the clip norm."""

    size: int
    mean: float
    observation: float
    together: float
    """The error of the mean of all clients' means, if all have as many samples."""


class Forecast(NamedTuple):
    """The noise that a budget needs, and the errors that it causes."""

    noise: float
    """The noise multiplier: the deviation over how far one sample can move a sum."""
    deviation: float
    """Of the noise on each number of a class sum."""
    clip: float
    classes: list[Expected]


def forecast(policy: Policy, sizes: Sequence[int], dimension: int, clients: int) -> Forecast:
    """Return the noise, and the error that it makes, for classes of these sizes."""
    if policy.epsilon is None:
        raise ConfigError("there is nothing to plan without epsilon")
    if not sizes or min(sizes) < 1 or dimension < 1 or clients < 1:
        raise ConfigError("class sizes, dimension and clients must be at least 1")
    clip, noise = policy.clip or math.sqrt(dimension), noise_multiplier(policy, min(sizes))
    sensitivity = 2.0  # in clip norms: a sample is replaced
    length = noise * sensitivity * math.sqrt(dimension)
    classes = [
        Expected(size, length / size, length / min(policy.n_avg, size), length / size / math.sqrt(clients))
        for size in sorted(set(sizes))
    ]
    return Forecast(noise, noise * sensitivity * clip, clip, classes)
