"""FEDPROX: FedAvg in which clients stay close to the average that a round began with.

Each client minimises F_i(w) + μ/2 · ‖w − w_t‖². Everyone trains as many epochs: the paper's partial work of slow
clients is left out.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from repshare.fields import check_not_negative
from repshare.learning.training import Batch, Learner
from repshare.methods.method import Method
from repshare_lab.methods import averaging, fedavg, policies


@dataclass(frozen=True)
class ProximalOptions:
    """Its one weight."""

    mu: float = 0.01
    """μ: how strongly weights are pulled back to the average that the round began with."""

    def __post_init__(self) -> None:
        check_not_negative(self, "mu")


def absorb(learner: Learner, body: bytes) -> None:
    """Continue from the average, and remember it."""
    fedavg.absorb(learner, body)
    learner.remembered = {name: tensor.detach().clone() for name, tensor in learner.network.model.named_parameters()}


def loss(learner: Learner, batch: Batch) -> Tensor:
    """Return μ/2 · ‖w − w_t‖²."""
    mu: float = learner.options.mu
    moved = [tensor - learner.remembered[name] for name, tensor in learner.network.model.named_parameters()]
    return mu / 2 * torch.stack([each.square().sum() for each in moved]).sum()


FEDPROX = Method(
    "FEDPROX", "FedAvg, kept close to the average (FedProx)", fedavg.share, averaging.Average, absorb, loss,
    ProximalOptions(), adapt=partial(policies.refuse_privacy, "FEDPROX"), models="one",
    source="Li et al., 2018: Federated optimization in heterogeneous networks",
)  # fmt: skip
