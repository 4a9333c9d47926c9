"""FEDDF: FedAvg, and the average is then trained to predict public samples as all clients' models together do.

x_0 = Σ_k n_k/n · x_k;  x_j = x_{j−1} − η ∂KL(softmax(1/K · Σ_k f(x_k, d)), softmax(f(x_{j−1}, d)))/∂x over batches d of
public samples, with Adam and a cosine schedule of η. Only the server needs public samples. All have one architecture:
the paper's groups of several are left out, as is its early stopping, which needs labelled samples at the server.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from repshare.errors import ConfigError, Refused
from repshare.fields import check_positive, check_whole
from repshare.learning.models import Network
from repshare.learning.randomness import torch_stream
from repshare.learning.samples import EVALUATION_BATCH, Samples
from repshare.methods import averaging, fedavg, policies
from repshare.methods.gathering import Gathering, Message
from repshare.methods.method import Method
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
            raise ConfigError("the server trains a network: leave --independent-starts out")
        super().__init__(task, start, options)
        self.like = averaging.read_weights(start.model)

    def equip(self, seed: int, public: Samples) -> None:
        """Distil with these samples, drawn from this seed."""
        self.seed, self.public = seed, public

    def check(self, client: str, message: Message) -> None:
        """Refuse weights of another architecture."""
        super().check(client, message)
        if {n: array.shape for n, array in message.items()} != {n: array.shape for n, array in self.like.items()}:
            raise Refused(f"{client}'s weights are of another architecture: all need the same one")

    def combine(self, messages: Mapping[str, Message], samples: Mapping[str, int]) -> Message:
        """Return the average after distillation."""
        total = sum(samples.values())
        average = {
            name: sum(samples[client] / total * each[name].astype(np.float64) for client, each in messages.items())
            for name in self.like
        }
        logits = torch.stack([self._predict(each) for each in messages.values()]).mean(dim=0)  # (p, C)
        model = self._model({name: np.asarray(array, self.like[name].dtype) for name, array in average.items()})
        self._distil(model, logits.softmax(dim=1))
        return averaging.read_weights(model)

    def _combined(self) -> Message:
        return super()._combined() or self.like

    def _model(self, weights: Message) -> nn.Module:
        model = copy.deepcopy(self.start.model).to(self.public.device)  # type: ignore[union-attr]
        averaging.copy_into(model.state_dict(), weights)
        return model

    def _predict(self, weights: Message) -> torch.Tensor:
        model = self._model(weights).eval()
        with torch.no_grad():
            batches = self.public.in_order(EVALUATION_BATCH)
            return torch.cat([self._logits(model, inputs) for inputs, _ in batches])

    def _logits(self, model: nn.Module, inputs: Any) -> torch.Tensor:
        return Network(model, self.start.head_name)(inputs)[1]  # type: ignore[union-attr]

    def _distil(self, model: nn.Module, targets: torch.Tensor) -> None:
        """Train the model towards the targets (p, C)."""
        options, draws = self.options, torch_stream(self.seed, "server", "distillation", self.round)
        optimizer = torch.optim.Adam(model.parameters(), lr=options.server_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
        model.train()
        for _ in range(options.steps):
            rows = torch.randint(len(targets), (options.batch,), generator=draws)
            predicted = self._logits(model, self.public.batch(rows)[0]).log_softmax(dim=1)
            optimizer.zero_grad()
            F.kl_div(predicted, targets[rows], reduction="batchmean").backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()


FEDDF = Method(
    "FEDDF", "FedAvg, distilled from the ensemble on public samples (FedDF)", fedavg.share, Ensemble, fedavg.absorb,
    options=EnsembleOptions(), adapt=partial(policies.refuse_privacy, "FEDDF"), models="one",
    source="Lin et al., 2020: Ensemble distillation for robust model fusion in federated learning",
)  # fmt: skip
