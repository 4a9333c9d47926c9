"""FEDPER: all layers but the head are averaged; each client has a head of its own, which never leaves it.

W_B ← Σ_i n_i/n · W_B,i after a round of local training of both parts, (W_B, W_P,i). The paper also tries more personal
layers than one; here it is the linear head.
"""

from functools import partial
from typing import NamedTuple

from torch import Tensor

from repshare.methods.method import Method
from repshare.network.models import Network
from repshare_lab.methods import averaging, policies
from repshare_lab.methods.fedavg import WeightsLearner


class AllButHead(NamedTuple):
    """A network without its head."""

    network: Network

    def state_dict(self) -> dict[str, Tensor]:
        """Return its tensors by name."""
        head = f"{self.network.head_name}."
        return {n: tensor for n, tensor in self.network.model.state_dict().items() if not n.startswith(head)}


class BodyAverage(averaging.Average):
    """The average of all layers but the head."""

    part = staticmethod(AllButHead)


class BodyLearner(WeightsLearner):
    """A learner that keeps its head to itself."""

    part = staticmethod(AllButHead)


FEDPER = Method(
    "FEDPER", "personal heads on averaged layers (FedPer)", BodyLearner.open, BodyAverage,
    adapt=partial(policies.refuse_privacy, "FEDPER"), models="part", shares_weights=True, add_up=BodyAverage.add_up,
    source="Arivazhagan et al., 2019: Federated learning with personalization layers",
)  # fmt: skip
