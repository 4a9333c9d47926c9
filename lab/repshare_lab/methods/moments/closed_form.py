"""Classifiers in closed form in a common space: a client's side.

Each client shares moments of its samples' vectors ψ once, and the server makes one linear classifier of all of them.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.sharing import wire
from repshare.sharing.representations import Floats, Integers, Release
from repshare.space.learner import SpaceLearner
from repshare.space.model import Hits, Linear
from repshare_lab.methods import averaging, policies

MOST_DIMENSIONS = 8192  # second moments of more would be over 130 MB a client, and minutes of solving
ONCE = 1  # the round of all that is shared: it counts for good, whenever it comes


class Solved(NamedTuple):
    """A classifier that a server has made, and the samples behind it."""

    linear: Linear
    samples: int


class ServedModel:
    """One client's samples in the space, and the classifier that the server has made for all clients."""

    enough = 2  # share, and collect what the server has made

    def __init__(self, vectors: Floats, labels: Integers, classes: int) -> None:
        self.vectors, self.labels = vectors, labels
        self.targets = np.eye(classes)[labels]  # (n, C)
        self.total: Solved | None = None
        zeros = np.zeros((classes, vectors.shape[1]), np.float32)
        self._nothing = Linear(zeros, zeros[0], self.targets.mean(axis=0).astype(np.float32))

    def absorb(self, total: Solved | None) -> None:
        """Use this classifier from now on."""
        self.total = total

    def improve(self) -> None:
        """Do nothing: the moments of a client do not depend on what others share."""

    def release(self, round: int, space: str) -> Release:
        """Raise ConfigError: moments are no release of rows."""
        raise ConfigError("moments are shared by the method's own learner")

    def acknowledge(self) -> None:
        """Do nothing: no classifier depends on what this client has shared before."""

    def linear(self) -> Linear:
        """Everybody's classifier; before there is one, the client's shares of the classes."""
        return self._nothing if self.total is None else self.total.linear

    def alone(self) -> Linear:
        """The client's shares of the classes."""
        return self._nothing

    def leave_one_out(self) -> tuple[Hits, Hits]:
        """Raise ConfigError: what the server has made cannot be undone for a sample."""
        raise ConfigError("this method needs held-out samples for prefer_own: raise held_out")

    def own_scores(self, linear: Linear) -> Floats:
        """A classifier's scores of this client's samples (n, C)."""
        return linear(self.vectors)

    def state(self) -> dict[str, Any]:
        """All that a model of the same samples needs to continue to the same bits."""
        return {"total": None if self.total is None else [*self.total.linear, self.total.samples]}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from this state."""
        kept = state["total"]
        self.total = None if kept is None else Solved(Linear(*map(np.asarray, kept[:3])), kept[3])


class MomentLearner(SpaceLearner):
    """A client's samples in the space, whose moments are shared once, and the classifier that the server has made."""

    model: ServedModel

    def make_model(self, vectors: Floats, labels: Integers, *, alone: bool) -> ServedModel:
        """Keep the samples for their moments."""
        return ServedModel(vectors, labels, self.classes)

    def moments(self) -> tuple[averaging.Weights, int]:
        """The arrays that are shared, and the number of samples that they count as."""
        raise NotImplementedError

    def release(self, round: int) -> bytes:
        """Moments as bytes; nothing where there are fewer samples than the policy asks for."""
        arrays, samples = self.moments() if len(self.model.labels) >= self.policy.fewest else ({}, 0)
        return wire.encode_weights(arrays, round=ONCE, samples=samples)

    def absorb(self, body: bytes) -> None:
        """Use the server's classifier from now on, if there is any."""
        arrays, _, samples = wire.decode_weights(body)
        if arrays:
            weights = torch.zeros(self.model.linear().weights.shape)
            averaging.copy_into({"weights": weights}, arrays)
            zeros = np.zeros(sum(weights.shape), np.float32)
            linear = Linear(weights.numpy(), zeros[: weights.shape[1]], zeros[weights.shape[1] :])
            self.model.absorb(Solved(linear, samples))


def check_dimension(dimension: int) -> None:
    """Raise ConfigError if second moments would be too many numbers."""
    if dimension > MOST_DIMENSIONS:
        raise ConfigError(
            f"second moments of {dimension:,} features are {2 * dimension * (dimension + 1) / 1e6:,.0f} MB a client: "
            f"choose a --space of at most {MOST_DIMENSIONS:,}, or FEDCOF, which shares means only"
        )


def adapt(policy: Policy) -> Policy:
    """Share once, all samples; no network, no distillation, and no privacy budget: no noise is made for moments."""
    policy = policies.own_terms("methods of moments", policy)
    if policy.peers is not None:
        raise ConfigError("a classifier in closed form is made by all clients: leave peers out")
    return replace(policy, lambda_length=0.0, held_out=0.0, releases=1)
