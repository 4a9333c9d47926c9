"""The parties of the demo: real images dealt among networks that differ. `repshare join --task …/party.py:party`.

`python -m repshare.cli.demo.party OPTIONS RECORDS`: the same parties without each other.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from repshare import LeNet5, Party, Policy, load
from repshare.cli.demo.options import DemoOptions
from repshare.cli.party_loop import WorkOptions, make_client
from repshare.learning.models import MLP, ConvNet
from repshare.learning.randomness import numpy_stream
from repshare.results.records import Journal

DIMENSION = 84  # d', which all of them agree on
VARIABLE = "REPSHARE_DEMO"
TESTED = 2000  # images, so that a round on MNIST is not mostly testing
READY_SECONDS = 120.0


class ResNet(nn.Module):
    """A small one: convolutions around which the image also goes straight on."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 24, 3, stride=2, padding=1), nn.ReLU())
        self.block = nn.Sequential(nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1))
        self.project = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, DIMENSION), nn.Tanh())
        self.head = nn.Linear(DIMENSION, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, 1, h, w) to logits (n, classes)."""
        stem = self.stem(images)
        return self.head(self.project(torch.relu(stem + self.block(stem))))  # type: ignore[no-any-return]


NETWORKS: dict[str, Callable[[int], nn.Module]] = {  # dealt out in turn
    "LeNet5": lambda classes: LeNet5(classes=classes, dimension=DIMENSION),
    "ConvNet": lambda classes: ConvNet(classes=classes, dimension=DIMENSION),
    "MLP": lambda classes: MLP(classes=classes, dimension=DIMENSION),
    "ResNet": ResNet,
}


def network_of(place: int) -> str:
    """Return this party's network."""
    return list(NETWORKS)[place % len(NETWORKS)]


def environment(options: DemoOptions, place: int, ready: Path | None = None) -> dict[str, str]:
    """Return the environment of a process that is to be one of the parties; it waits for the others in `ready`."""
    given = {"options": asdict(options), "place": place, "ready": None if ready is None else str(ready)}
    return {VARIABLE: json.dumps(given)}


def party() -> Party:
    """Return the party that the environment names: a network and a few images of its own.

    If it was given a folder for that, it waits there until all other parties are ready, too.
    """
    given = json.loads(os.environ[VARIABLE])
    options, place = DemoOptions(**given["options"]), given["place"]
    train, test, classes = load(options.dataset).normalised()
    mine = choose_samples(options, place, len(train.labels))
    made = Party(
        model=NETWORKS[network_of(place)](classes),
        data=(train.images[mine], train.labels[mine]),
        test=(test.images[:TESTED], test.labels[:TESTED]),
        policy=Policy(learning_rate=0.003),  # three times the usual: a demo is short
    )
    if given["ready"] is not None:
        _wait_for_others(Path(given["ready"]), options, place)
    return made


def choose_samples(options: DemoOptions, place: int, of: int) -> NDArray[np.int64]:
    """Return which of the training samples this party has."""
    order = numpy_stream(options.seed, "demo").permutation(of)
    return order[place * options.samples : (place + 1) * options.samples]


def _wait_for_others(ready: Path, options: DemoOptions, place: int) -> None:
    """Wait until all are ready. Real clients need not, but processes take seconds to start, and a demo is short."""
    (ready / str(place)).touch()
    deadline = time.monotonic() + READY_SECONDS
    while len(list(ready.iterdir())) < options.clients and time.monotonic() < deadline:
        time.sleep(0.05)


def learn_alone(options: DemoOptions, journal: Journal) -> None:
    """Train each of them with the same weights and batches as together, but without other clients to learn from."""
    work, alone = WorkOptions(seed=options.seed, threads=1), Policy(lambda_kd=0.0, lambda_disc=0.0)
    clients = []
    for place, name in enumerate(options.names):
        os.environ |= environment(options, place)
        clients.append(make_client(f"{__file__}:party", name, work, alone))
    for _ in range(options.rounds):
        began = time.monotonic()
        for client in clients:
            journal.add([asdict(client.round())])
        time.sleep(max(options.pace - (time.monotonic() - began), 0))


if __name__ == "__main__":
    learn_alone(DemoOptions(**json.loads(sys.argv[1])), Journal(Path(sys.argv[2])))
