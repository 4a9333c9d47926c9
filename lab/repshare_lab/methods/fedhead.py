"""FH: FedAvg of a linear head in the common space: what a team with a frozen backbone would try first.

Each client descends cross-entropy on its own vectors, and a server averages weights by samples. They travel in fp16.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.fields import check_positive, check_whole
from repshare.methods.method import Method
from repshare.randomness import numpy_stream
from repshare.sharing import wire
from repshare.sharing.representations import Floats, Integers
from repshare.space.learner import SpaceLearner
from repshare.space.model import Linear
from repshare_lab.methods import averaging, policies
from repshare_lab.methods.afl import ServedModel, Solved

BATCH = 32


@dataclass(frozen=True)
class HeadOptions:
    """How clients train the head."""

    rate: float = 0.003
    """Step size of SGD, for vectors of length √d."""
    epochs: int = 1
    """Passes over the own samples in each round."""

    def __post_init__(self) -> None:
        check_positive(self, "rate")
        check_whole(self, 1, "epochs")


class HeadModel(ServedModel):
    """One client's samples, and the average of all heads."""

    def __init__(self, vectors: Floats, labels: Integers, classes: int) -> None:
        super().__init__(vectors, labels, classes)
        self._nothing = self._nothing._replace(offset=np.zeros(classes, np.float32))

    def train(self, start: Linear, options: HeadOptions, rng: np.random.Generator) -> Linear:
        """Descend the cross-entropy from this head."""
        weights, offset = start.weights.copy(), start.offset.copy()
        targets, rate = self.targets.astype(np.float32), np.float32(options.rate)
        for _ in range(options.epochs):
            order = rng.permutation(len(self.labels))
            for rows in np.split(order, range(BATCH, len(order), BATCH)):
                vectors = self.vectors[rows]
                logits = vectors @ weights.T + offset
                chances = np.exp(logits - logits.max(axis=1, keepdims=True))
                slope = (chances / chances.sum(axis=1, keepdims=True) - targets[rows]) / np.float32(len(rows))
                weights -= rate * (slope.T @ vectors)
                offset -= rate * slope.sum(axis=0)
        return start._replace(weights=weights, offset=offset)


class HeadLearner(SpaceLearner):
    """A client that trains the head from the average of the last round."""

    model: HeadModel

    def make_model(self, vectors: Floats, labels: Integers, *, alone: bool) -> HeadModel:
        """Keep the samples to train on."""
        return HeadModel(vectors, labels, self.classes)

    def release(self, round: int) -> bytes:
        """The head after this round\'s training."""
        rng = numpy_stream(int.from_bytes(self.secret), self.name, "head", round)
        made = self.model.train(self.model.linear(), self.options, rng)
        arrays = {name: each.astype(np.float16) for name, each in (("weights", made.weights), ("offset", made.offset))}
        return wire.encode_weights(arrays, round=round, samples=len(self.model.labels))

    def absorb(self, body: bytes) -> None:
        """Continue from the average, if there is any."""
        arrays, _, samples = wire.decode_weights(body)
        if not arrays:
            return
        before = self.model.linear()
        _check(arrays, before)
        weights, offset = (arrays[name].astype(np.float32) for name in ("weights", "offset"))
        self.model.absorb(Solved(before._replace(weights=weights, offset=offset), samples))


def _check(arrays: Mapping[str, Any], like: Linear) -> None:
    if {name: each.shape for name, each in arrays.items()} != {
        "weights": like.weights.shape, "offset": like.offset.shape,
    }:  # fmt: skip
        raise ConfigError("the average is of another head than this client's")


def adapt(policy: Policy) -> Policy:
    """Train on all samples, without terms or a budget of other methods."""
    return replace(policies.own_terms("FH", policy), held_out=0.0)


FH = Method(
    "FH", "federated averaging of a linear head in the common space", HeadLearner.open, averaging.ArrayAverage,
    HeadOptions(), adapt, models="part", in_space=True, add_up=averaging.ArrayAverage.add_up,
    source="McMahan et al., 2016, on frozen features",
)  # fmt: skip
