"""The parties of the demo: real images dealt among networks that differ. `repshare join --task …/party.py:party`."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from repshare import LeNet5, Party, Policy, load
from repshare.learning.models import MLP, ConvNet
from repshare.learning.randomness import numpy_stream

DIMENSION = 84  # d', which all of them agree on
VARIABLE = "REPSHARE_DEMO"
TESTED = 2000  # images, so that a round on MNIST is not mostly testing
DOOR_SECONDS = 120.0


@dataclass(frozen=True)
class Share:
    """Which party of which demo."""

    dataset: str
    place: int  # 0, 1, …
    samples: int
    seed: int
    door: str | None = None  # a folder in which parties say that they are ready
    parties: int = 1  # how many to wait for there

    def environment(self) -> dict[str, str]:
        """What a process that is to be this party finds in its environment."""
        return {VARIABLE: json.dumps(asdict(self))}


class ResNet(nn.Module):
    """A small one: convolutions around which the image also goes straight on."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 24, 3, stride=2, padding=1), nn.ReLU())
        self.block = nn.Sequential(nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1))
        self.project = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, DIMENSION), nn.Tanh())
        self.head = nn.Linear(DIMENSION, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, 1, h, w) to logits (n, classes)."""
        stem = self.stem(images)
        return self.head(self.project(torch.relu(stem + self.block(stem))))  # type: ignore[no-any-return]


NETWORKS: dict[str, Callable[[int], nn.Module]] = {  # dealt out in turn
    "LeNet5": lambda classes: LeNet5(classes=classes, dimension=DIMENSION),
    "ConvNet": lambda classes: ConvNet(classes=classes, dimension=DIMENSION),
    "MLP": lambda classes: MLP(classes=classes, dimension=DIMENSION),
    "ResNet": ResNet,
}


def network_of(place: int) -> str:
    """Which network this party has."""
    return list(NETWORKS)[place % len(NETWORKS)]


def party() -> Party:
    """The party that the environment names, when all the others are ready, too."""
    share = Share(**json.loads(os.environ[VARIABLE]))
    made = make_party(share)
    if share.door is not None:
        _meet(Path(share.door), share)
    return made


def make_party(share: Share) -> Party:
    """A network and a few images of its own. The same share has the same ones wherever it is made."""
    train, test, classes = load(share.dataset).normalised()
    mine = choose(share, len(train.labels))
    return Party(
        model=NETWORKS[network_of(share.place)](classes),
        data=(train.images[mine], train.labels[mine]),
        test=(test.images[:TESTED], test.labels[:TESTED]),
        policy=Policy(learning_rate=0.003),  # three times the usual: a demo is short
    )


def choose(share: Share, of: int) -> NDArray[np.int64]:
    """Which of the training samples this party has."""
    order = numpy_stream(share.seed, "demo").permutation(of)
    return order[share.place * share.samples : (share.place + 1) * share.samples]


def _meet(door: Path, share: Share) -> None:
    """Wait for the others: nobody has to in earnest, but processes take seconds to start, and a demo is short."""
    (door / f"ready-{share.place}").touch()
    deadline = time.monotonic() + DOOR_SECONDS
    while len(list(door.glob("ready-*"))) < share.parties and time.monotonic() < deadline:
        time.sleep(0.05)
