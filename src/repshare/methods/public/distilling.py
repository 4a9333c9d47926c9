"""A network and public samples: its logits for them, and its training towards soft labels."""

import copy

import torch
from torch import Tensor
from torch.nn import functional as F

from repshare.learning.models import Network
from repshare.learning.samples import EVALUATION_BATCH, Samples
from repshare.methods.averaging import Weights, copy_into


def copy_network(network: Network, weights: Weights, *, device: torch.device) -> Network:
    """Return the same network with these weights."""
    model = copy.deepcopy(network.model).to(device)
    copy_into(model.state_dict(), weights)
    return Network(model, network.head_name)


def predict(network: Network, public: Samples) -> Tensor:
    """Return the logits of all public samples (p, C)."""
    network.model.eval()
    with torch.no_grad():
        return torch.cat([network(inputs)[1] for inputs, _ in public.in_order(EVALUATION_BATCH)])


def distil(
    network: Network, public: Samples, targets: Tensor, draws: torch.Generator, *, steps: int, batch: int, rate: float
) -> None:
    """Train towards the targets (p, C) on random batches, with Adam and a cosine schedule of its rate."""
    optimizer = torch.optim.Adam(network.model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    network.model.train()
    for _ in range(steps):
        rows = torch.randint(len(targets), (batch,), generator=draws)
        predicted = network(public.batch(rows)[0])[1].log_softmax(dim=1)
        optimizer.zero_grad()
        F.kl_div(predicted, targets[rows], reduction="batchmean").backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
