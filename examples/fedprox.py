"""A method of your own: FedProx (Li et al., 2018), FedAvg in which clients stay close to where they started.

repshare compare --methods IL FL examples/fedprox.py:PROX --method-options PROX.mu=0.1 --partition shards
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from repshare.learning.training import Batch, Learner
from repshare_lab.methods import FL, fedavg


@dataclass(frozen=True)
class Options:
    """Set with --method-options PROX.mu=0.1."""

    mu: float = 0.01
    """How strongly weights are pulled back to the average that the round began with."""


def absorb(learner: Learner, body: bytes) -> None:
    """Go on from the average, and remember it."""
    fedavg.absorb(learner, body)
    learner.remembered = {name: tensor.detach().clone() for name, tensor in learner.network.model.named_parameters()}


def loss(learner: Learner, batch: Batch) -> Tensor:
    """μ/2 · ‖w − w_average‖², added to the cross-entropy of each batch."""
    mu: float = learner.options.mu
    moved = [tensor - learner.remembered[name] for name, tensor in learner.network.model.named_parameters()]
    return mu / 2 * torch.stack([each.square().sum() for each in moved]).sum()


SOURCE = "Li et al., 2018: Federated optimization in heterogeneous networks"
PROX = FL._replace(name="PROX", title="FedAvg, kept close", absorb=absorb, loss=loss, options=Options(), source=SOURCE)
