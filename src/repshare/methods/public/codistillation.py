"""CODIST: codistillation without a server; clients learn from their neighbours' stale predictions of public samples.

Loss of a batch: CE(y, f_i(x)) + w · CE(1/(N−1) · Σ_{j≠i} softmax f_j(u), f_i(u)), from the round after the burn-in on.
The first term is over the client's own samples x. The second is over public samples u, one batch with each of x: the
paper's is over the same samples, since its workers read each other's checkpoints. Here they exchange predictions, which
the paper names as the alternative, so that models may differ and no weights leave. Predictions are a round old.

--topology says who is whose neighbour (default: all). Of neighbours, those that took part in the newest round count.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from repshare.board import Wants
from repshare.fields import check_whole, check_within
from repshare.learning.measures import Losses
from repshare.learning.training import Batch, Learner
from repshare.methods.method import Method
from repshare.methods.policies import own_terms
from repshare.methods.public import soft_labels
from repshare.sharing import wire


@dataclass(frozen=True)
class NeighbourOptions:
    """The weight of the others."""

    per_round: int = 1000
    """Number of public samples whose soft labels are exchanged in a round, drawn at random. At most all there are."""
    weight: float = 1.0
    """w: weight of the second term."""
    burn_in: int = 1
    """Number of rounds before a client listens to others."""

    def __post_init__(self) -> None:
        check_whole(self, 1, "per_round", "burn_in")
        check_within(self, 0, sys.float_info.max, "weight")


class PeerLearner(soft_labels.PublicLearner):
    """A learner whose every step is also on a batch of public samples."""

    def train(self) -> Losses:
        """Train on own samples; `loss` adds the others."""
        return Learner.train(self)


def loss(learner: Any, batch: Batch) -> Tensor:
    """Return w times the cross-entropy with the others' mean prediction of as many public samples."""
    if (taught := learner.taught()) is None or int(learner.remembered["round"]) < learner.options.burn_in:
        return batch.logits.new_zeros(())
    rows, targets = taught
    part = torch.randint(len(rows), (len(batch.labels),), generator=learner.pairing)
    _, logits = learner._forward(learner.public.batch(rows[part])[0])
    return float(learner.options.weight) * F.cross_entropy(logits, targets[part])


def absorb(learner: Any, body: bytes) -> None:
    """Average what neighbours said in the newest round, if any did."""
    received = [wire.decode_weights(each)[:2] for _, each in sorted(wire.decode_items(body).items())]
    newest = max((round for _, round in received), default=0)
    said = [message["labels"] for message, round in received if round == newest and "labels" in message]
    if said and len({each.shape for each in said}) == 1:
        mean = np.mean([each.astype(np.float64) for each in said], axis=0).astype(np.float32)
        soft_labels.absorb(learner, wire.encode_weights({"labels": mean}, round=newest, samples=len(said)))


class Neighbours(soft_labels.SoftLabels):
    """The newest predictions of each client, which a simulator keeps in the place of connections between them."""

    usual_topology = "complete"
    graph: Mapping[str, Sequence[str]] | None = None

    def meet(self, graph: Mapping[str, Sequence[str]]) -> None:
        """Use these neighbours of each client."""
        self.graph = graph

    def teach(self, client: str, wants: Wants) -> bytes:
        """Return each neighbour's predictions."""
        near = self.sent if self.graph is None else self.graph.get(client, ())
        return wire.encode_items({other: self.sent[other] for other in near if other in self.sent and other != client})


CODIST = Method(
    "CODIST", "codistillation with neighbours on public samples", soft_labels.share_probabilities, Neighbours,
    absorb, loss, NeighbourOptions(), PeerLearner, partial(own_terms, "CODIST"),
    source="Anil et al., 2018: Large scale distributed neural network training through online distillation",
)  # fmt: skip
