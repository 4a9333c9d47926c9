"""SL: split learning (Gupta and Raskar, 2018): features at the clients, the head at the server.

For every batch, a client sends its features and labels, and the server sends back the gradient. All clients learn at
the same time, as in SplitFed (Thapa et al., 2020): during a round the server has a copy of the head for each, and when
the round is over it averages the copies. What a client has of the network never leaves it.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from repshare.config import Policy
from repshare.learning.objective import Terms, cross_entropy
from repshare.learning.training import Learner
from repshare.methods.fedavg import add_up, in_the_open, read_weights, serve, take_over
from repshare.methods.method import Method
from repshare.sharing import wire


class Cut:
    """Where the network is cut: the server's half of one client's batches, and the bytes that cross."""

    def __init__(self, head: nn.Linear) -> None:
        self.head, self.up, self.down = head, 0, 0

    def gradients(self, features: Tensor, labels: Tensor) -> tuple[Terms, Tensor]:
        """Send a batch across; leave both halves with their gradients."""
        sent = wire.encode_batch(features.detach().float().cpu().numpy(), labels.cpu().numpy())
        received, loss, logits = self._answer(sent)
        self.up, self.down = self.up + len(sent), self.down + len(received)
        gradient, _ = wire.decode_batch(received)
        features.backward(torch.from_numpy(gradient).to(features))  # type: ignore[no-untyped-call]
        return Terms(loss), logits

    def crossed(self) -> tuple[int, int]:
        """Bytes up and down since this was last asked."""
        crossed, self.up, self.down = (self.up, self.down), 0, 0
        return crossed

    def _answer(self, body: bytes) -> tuple[bytes, Tensor, Tensor]:
        """What the server does; the loss and the logits are for the records."""
        vectors, labels = wire.decode_batch(body)
        features = torch.from_numpy(vectors).to(self.head.weight).requires_grad_()
        logits = self.head(features)
        loss = cross_entropy(logits, torch.from_numpy(labels).to(logits.device))
        loss.backward()  # type: ignore[no-untyped-call]
        return wire.encode_batch(features.grad.float().cpu().numpy()), loss, logits  # type: ignore[union-attr]


def begin(learner: Learner, _: int) -> None:
    """Leave the head to the server."""
    learner.across = Cut(learner.network.head)


def share(learner: Learner, round: int) -> bytes:
    """The server's copy of the head after this round. It was there all the time: no traffic."""
    return wire.encode_weights(read_weights(learner.network.head), round=round, samples=len(learner.samples))


def absorb(learner: Learner, body: bytes) -> None:
    """Let the server's copy be the average again."""
    take_over(learner.network.head, body)


def adapt(policy: Policy) -> Policy:
    """Cross-entropy alone. Every batch crosses as it is: no budget would cover it."""
    policy = in_the_open("SL", policy)
    return replace(policy, lambda_kd=0.0, lambda_disc=0.0, lambda_length=0.0, m_up=0, m_down=0)


SL = Method(
    "SL",
    "split learning",
    share,
    serve,
    absorb,
    add_up=add_up,
    adapt=adapt,
    begin=begin,
    server_part=lambda network: network.head,
)
