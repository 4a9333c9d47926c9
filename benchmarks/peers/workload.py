"""What every contender is given (model, samples, hyperparameters) and how it answers.

Contenders run in environments of their own, so this file needs nothing but PyTorch and NumPy.
"""

import json
import sys
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCH, LEARNING_RATE = 32, 1e-3
TEST_BATCH = 250


class Workload(NamedTuple):
    """One local epoch of FedAvg a round, all clients taking part."""

    data: str  # .npz with images (n, 1, 28, 28), labels (n,), test_images, test_labels
    answer: str
    clients: int
    samples: int  # of each client
    rounds: int
    workers: int  # processes, or threads of a contender that has one process

    def write_to_arguments(self) -> list[str]:
        """What `read_arguments` reads."""
        return [str(value) for value in self]


def read_arguments() -> Workload:
    data, answer, *numbers = sys.argv[1:]
    return Workload(data, answer, *map(int, numbers))


@cache
def read_clients(workload: Workload) -> list[tuple[Tensor, Tensor]]:
    """Images and labels of each client; read once in a process."""
    with np.load(workload.data) as arrays:
        images, labels = torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["labels"])
    return list(zip(images.split(workload.samples), labels.split(workload.samples), strict=True))


class LeNet5(nn.Module):
    """The paper's LeNet5, with the loss that pfl asks a model for."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 120, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(120, 84), nn.Tanh(),
            nn.Linear(84, 10),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, 1, 28, 28) to logits (n, 10)."""
        return self.layers(images)

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy, averaged over the batch."""
        return F.cross_entropy(self(images), labels)

    def metrics(self, images: Tensor, labels: Tensor) -> dict[str, float]:
        """Asked for by pfl, never called here."""
        return {}


def train(model: LeNet5, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> None:
    """One local epoch in random order."""
    model.train()
    for batch in torch.randperm(len(labels)).split(BATCH):
        optimizer.zero_grad()
        model.loss(images[batch], labels[batch]).backward()
        optimizer.step()


@torch.no_grad()
def test(model: LeNet5, workload: Workload) -> float:
    """Accuracy on the test images: evidence that a contender has learnt, taken when its clock has stopped."""
    with np.load(workload.data) as arrays:
        images, labels = torch.from_numpy(arrays["test_images"]), torch.from_numpy(arrays["test_labels"])
    model.eval()
    logits = torch.cat([model(batch) for batch in images.split(TEST_BATCH)])
    return float((logits.argmax(1) == labels).float().mean())


class Clock:
    """When each round ended, and how much this process itself had computed by then."""

    def __init__(self) -> None:
        self.ends: list[float] = []  # seconds; monotonic time is the same in all processes of a machine
        self.computed: list[float] = []  # seconds

    def tick(self) -> None:
        """A round has ended."""
        self.ends.append(time.monotonic())
        self.computed.append(time.process_time())

    def answer(self, workload: Workload, accuracy: float) -> None:
        """Write what the benchmark waits for."""
        answer = {"ends": self.ends, "computed": self.computed, "accuracy": accuracy}
        Path(workload.answer).write_text(json.dumps(answer))
