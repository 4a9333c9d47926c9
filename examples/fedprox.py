"""A method of your own: FedProx (Li et al., 2018), FedAvg in which clients stay close to where they started.

repshare compare --methods IL FL examples/fedprox.py:PROX --method-options PROX.mu=0.1 --partition shards
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from repshare.network.learner import Batch
from repshare_lab.methods import FL
from repshare_lab.methods.fedavg import WeightsLearner


@dataclass(frozen=True)
class Options:
    """Set with --method-options PROX.mu=0.1."""

    mu: float = 0.01
    """How strongly weights are pulled back to the average that the round began with."""


class Proximal(WeightsLearner):
    """FedAvg's learner, with a loss of its own."""

    def absorb(self, body: bytes) -> None:
        """Go on from the average, and remember it."""
        super().absorb(body)
        self.remembered = {name: tensor.detach().clone() for name, tensor in self.network.model.named_parameters()}

    def own_loss(self, batch: Batch) -> Tensor:
        """μ/2 · ‖w − w_average‖², added to the cross-entropy of each batch."""
        mu: float = self.options.mu
        moved = [tensor - self.remembered[name] for name, tensor in self.network.model.named_parameters()]
        return mu / 2 * torch.stack([each.square().sum() for each in moved]).sum()


SOURCE = "Li et al., 2018: Federated optimization in heterogeneous networks"
PROX = FL._replace(name="PROX", title="FedAvg, kept close", learner=Proximal.open, options=Options(), source=SOURCE)
