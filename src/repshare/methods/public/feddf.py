"""FEDDF: FedAvg, and the average is then trained to predict public samples as all clients' models together do.

x_0 = Σ_k n_k/n · x_k;  x_j = x_{j−1} − η ∂KL(softmax(1/K · Σ_k f(x_k, d)), softmax(f(x_{j−1}, d)))/∂x over batches d of
public samples, with Adam and a cosine schedule of η. Only the server needs public samples. All have one architecture:
the paper's groups of several are left out, as is its early stopping, which needs labelled samples at the server.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from repshare.errors import ConfigError, Refused
from repshare.fields import check_positive, check_whole
from repshare.learning.models import Network
from repshare.learning.randomness import torch_stream
from repshare.learning.samples import Samples
from repshare.methods import averaging, fedavg, policies
from repshare.methods.gathering import Gathering, Message, mean_by_samples
from repshare.methods.method import Method
from repshare.methods.public.distilling import copy_network, distil, predict
from repshare.sharing.task import Task


@dataclass(frozen=True)
class EnsembleOptions:
    """The server's training."""

    steps: int = 100
    """Number of steps that the server makes after each round."""
    batch: int = 64
    """Number of public samples in a step."""
    server_rate: float = 1e-3
    """η: learning rate of the server's Adam at its first step. It ends at 0."""

    def __post_init__(self) -> None:
        check_whole(self, 1, "steps", "batch")
        check_positive(self, "server_rate")


class Ensemble(Gathering):
    """The distilled average of the newest round's models."""

    uses_public, one_architecture = True, True

    def __init__(self, task: Task, start: Network | None = None, options: Any = None) -> None:
        if start is None:
            raise ConfigError("the server trains a network: leave independent_starts out")
        super().__init__(task, start, options)
        self.network, self.first = start, averaging.read_weights(start.model)

    def equip(self, seed: int, public: Samples) -> None:
        """Distil with these samples, drawn from this seed."""
        self.seed, self.public = seed, public

    def check(self, client: str, message: Message) -> None:
        """Refuse weights of another architecture."""
        super().check(client, message)
        if {n: array.shape for n, array in message.items()} != {n: array.shape for n, array in self.first.items()}:
            raise Refused(f"{client}'s weights are of another architecture: all need the same one")

    def combine(self, messages: Mapping[str, Message], samples: Mapping[str, int]) -> Message:
        """Return the average after distillation."""
        make = partial(copy_network, self.network, device=self.public.device)
        clients = [predict(make(each), self.public) for each in messages.values()]
        targets = torch.stack(clients).mean(dim=0).softmax(dim=1)  # (p, C)
        average = mean_by_samples(messages, samples)
        network = make({name: array.astype(self.first[name].dtype) for name, array in average.items()})
        draws, options = torch_stream(self.seed, "server", "distillation", self.round), self.options
        distil(network, self.public, targets, draws, steps=options.steps, batch=options.batch, rate=options.server_rate)
        return averaging.read_weights(network.model)


FEDDF = Method(
    "FEDDF", "FedAvg, distilled from the ensemble on public samples (FedDF)", fedavg.share, Ensemble, fedavg.absorb,
    options=EnsembleOptions(), adapt=partial(policies.refuse_privacy, "FEDDF"), models="one",
    source="Lin et al., 2020: Ensemble distillation for robust model fusion in federated learning",
)  # fmt: skip
