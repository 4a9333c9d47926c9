"""SL: split learning (Gupta and Raskar, 2018): features at the clients, the head at the server.

For every batch, a client sends its features and labels, and the server sends back the gradient. All clients learn at
the same time, as in SplitFed (Thapa et al., 2020): during a round the server has a copy of the head for each, and when
the round is over it averages the copies. What a client has of the network never leaves it.
"""

from dataclasses import replace
from operator import attrgetter

import torch
from torch import Tensor, nn

from repshare.config import Policy
from repshare.measures import Record
from repshare.methods.method import Method
from repshare.network.learner import Batch
from repshare.network.objective import Terms, cross_entropy
from repshare.sharing import wire
from repshare_lab.methods.averaging import Average, Part
from repshare_lab.methods.fedavg import WeightsLearner
from repshare_lab.methods.policies import own_terms

head_of: Part = attrgetter("head")


def answer_batch(head: nn.Linear, body: bytes) -> tuple[bytes, Tensor, Tensor]:
    """Compute the server's answer to a batch, which leaves the head with its gradients.

    The loss and the logits are for the records.
    """
    vectors, labels = wire.decode_batch(body)
    features = torch.from_numpy(vectors).to(head.weight).requires_grad_()
    logits = head(features)
    loss = cross_entropy(logits, torch.from_numpy(labels).to(logits.device))
    loss.backward()  # type: ignore[no-untyped-call]
    return wire.encode_batch(features.grad.float().cpu().numpy()), loss, logits  # type: ignore[union-attr]


class SplitLearner(WeightsLearner):
    """A learner that leaves its head, and so the loss, to the server."""

    part = staticmethod(head_of)
    _bytes = 0, 0  # up and down in this training

    def train(self) -> Record:
        """Train, and count what crosses: what is collected and published is the server's own."""
        self._bytes = 0, 0
        record = super().train()
        return replace(record, bytes_up=self._bytes[0], bytes_down=self._bytes[1])

    def _backward(self, batch: Batch) -> tuple[Terms, Tensor, Tensor]:
        """Send a batch to the server; leave both halves of the network with their gradients."""
        features = batch.features
        sent = wire.encode_batch(features.detach().float().cpu().numpy(), batch.labels.cpu().numpy())
        received, loss, logits = answer_batch(self.network.head, sent)
        up, down = self._bytes
        self._bytes = up + len(sent), down + len(received)
        gradient, _ = wire.decode_batch(received)
        features.backward(torch.from_numpy(gradient).to(features))  # type: ignore[no-untyped-call]
        return Terms(loss), loss, logits


class HeadAverage(Average):
    """The average of the server's copies of the head. They are at the server all the time: no traffic."""

    part = staticmethod(head_of)


def adapt(policy: Policy) -> Policy:
    """Use cross-entropy alone. Every batch crosses as it is: no budget would cover it."""
    return replace(own_terms("SL", policy), lambda_length=0.0)


SL = Method(
    "SL", "split learning", SplitLearner.open, HeadAverage, adapt=adapt, models="part",
    sends_batches=True, add_up=HeadAverage.add_up,
    source="Gupta and Raskar, 2018: Distributed learning of deep neural network over multiple agents",
)  # fmt: skip
