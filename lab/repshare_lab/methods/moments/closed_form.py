"""Classifiers in closed form in a common space: a client's side.

Each client shares moments of its samples' vectors ψ once, and the server makes one linear classifier of all of them.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.learning.common.learner import CommonLearner
from repshare.learning.common.reading import Linear
from repshare.sharing import wire
from repshare_lab.methods import averaging, policies

MOST_DIMENSIONS = 8192  # second moments of more would be over 130 MB a client, and minutes of solving
ONCE = 1  # the round of all that is shared: it counts for good, whenever it comes


class Solved(NamedTuple):
    """A classifier that a server has made, and the samples behind it."""

    linear: Linear
    samples: int


class Given:
    """One client's samples in the space, and the classifier that the server has made for all clients."""

    def __init__(self, vectors: Tensor, labels: Tensor, classes: int) -> None:
        self.vectors, self.labels = vectors, labels
        self.targets = torch.nn.functional.one_hot(labels, classes).double()  # (n, C)
        self.total: Solved | None = None
        self._nothing = Linear(vectors.new_zeros(classes, vectors.shape[1]), vectors.new_zeros(vectors.shape[1]),
                               self.targets.mean(dim=0).to(vectors))  # fmt: skip

    def improve(self) -> None:
        """Do nothing: the moments of a client do not depend on what others share."""

    def publish(self) -> None:
        """Do nothing: no classifier depends on what this client has shared before."""

    def linear(self) -> Linear:
        """Return everybody's classifier; before there is one, the client's shares of the classes."""
        return self._nothing if self.total is None else self.total.linear

    def scores(self, linear: Linear) -> Tensor:
        """Return a classifier's scores of this client's samples (n, C)."""
        return linear(self.vectors)

    def state(self) -> dict[str, Any]:
        """Return what another of the same samples needs to continue to the same bits."""
        return {"total": None if self.total is None else [*self.total.linear, self.total.samples]}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from this state."""
        kept = state["total"]
        self.total = None if kept is None else Solved(Linear(*kept[:3]), kept[3])


class MomentLearner(CommonLearner):
    """A client's samples in the space, and the classifier that the server has made."""

    def _begin(self, vectors: Tensor, labels: Tensor, *, alone: bool) -> Any:
        return Given(vectors, labels, self.network.classes)


def absorb(learner: Any, body: bytes) -> None:
    """Use the server's classifier from now on, if there is any."""
    arrays, _, samples = wire.decode_weights(body)
    if arrays:
        weights = torch.zeros_like(learner.dual.linear().weights)
        averaging.copy_into({"weights": weights}, arrays)
        zeros = weights.new_zeros(sum(weights.shape))
        learner.dual.total = Solved(Linear(weights, zeros[: weights.shape[1]], zeros[weights.shape[1] :]), samples)


def share_once(learner: Any, arrays: averaging.Weights, samples: int) -> bytes:
    """Return moments as bytes; nothing where there are fewer samples than the policy asks for."""
    if len(learner.dual.labels) < learner.policy.fewest:
        arrays, samples = {}, 0
    return wire.encode_weights(arrays, round=ONCE, samples=samples)


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
    return replace(policy, held_out=0.0, releases=1)
