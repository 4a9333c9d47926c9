"""CODIST: codistillation without a server; clients learn from their neighbours' stale predictions of public samples.

Loss of a batch: CE(y, f_i(x)) + w · CE(1/(N−1) · Σ_{j≠i} softmax f_j(u), f_i(u)), from the round after the burn-in on.
The first term is over the client's own samples x. The second is over public samples u, one batch with each of x: the
paper's is over the same samples, since its workers read each other's checkpoints. Here they exchange predictions, which
the paper names as the alternative, so that models may differ and no weights leave. Predictions are a round old.

--topology says who is whose neighbour (default: all). Of neighbours, those that took part in the newest round count.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from repshare.board import Wants
from repshare.fields import check_not_negative, check_whole
from repshare.methods.method import Method
from repshare.methods.neighbours import Neighbours
from repshare.methods.policies import own_terms
from repshare.methods.public import soft_labels
from repshare.methods.public.beside import PeerLearner, loss
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
        check_not_negative(self, "weight")


def absorb(learner: Any, body: bytes) -> None:
    """Average what neighbours said in the newest round, if any did."""
    received = [wire.decode_weights(each)[:2] for _, each in sorted(wire.decode_items(body).items())]
    newest = max((round for _, round in received), default=0)
    said = [message["labels"] for message, round in received if round == newest and "labels" in message]
    if said and len({each.shape for each in said}) == 1:
        mean = torch.from_numpy(soft_labels.average(said))
        soft_labels.absorb(learner, soft_labels.encode(mean, newest))


class NeighbourLabels(soft_labels.SoftLabels, Neighbours):
    """The predictions of each client in the newest round."""

    usual_topology = "complete"

    def teach(self, client: str, wants: Wants) -> bytes:
        """Return each neighbour's predictions."""
        return wire.encode_items(self.near(client))


CODIST = Method(
    "CODIST", "codistillation with neighbours on public samples", soft_labels.share_probabilities, NeighbourLabels,
    absorb, loss, NeighbourOptions(), PeerLearner, partial(own_terms, "CODIST"),
    source="Anil et al., 2018: Large scale distributed neural network training through online distillation",
)  # fmt: skip
