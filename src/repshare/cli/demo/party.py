"""The parties of the demo: different networks, and real images of half of the classes each.

`repshare join … --party …/party.py:party`: one of them, and `…:mallory` the one that sends noise.
`python -m repshare.cli.demo.party RECORDS`: the same parties without each other.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from repshare import LeNet5, Party, Policy, load
from repshare.cli.demo.options import MALLORY, DemoOptions
from repshare.cli.party.client import WorkOptions, make_client
from repshare.data import Dataset, Splits
from repshare.errors import ConfigError
from repshare.learning.models import MLP, ConvNet
from repshare.learning.randomness import numpy_stream
from repshare.results.records import Journal

DIMENSION = 84  # d', which all networks agree on
VARIABLE = "REPSHARE_DEMO"
TESTED = 2000  # images, so that a round on MNIST is not mostly testing
ALONE = {"IL": 0.0, "IL short": 10.0}  # lambda_length of those who learn alone
POLICY = Policy(learning_rate=0.003, held_out=0.2)  # three times the usual rate: a demo is short


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


def classes_of(options: DemoOptions, place: int, classes: int) -> list[int]:
    """Return the classes that this party has: half of them, each party another half."""
    first = place * classes // options.clients
    return sorted((first + step) % classes for step in range(classes // 2))


def deal_samples(options: DemoOptions, labels: NDArray[np.int64], classes: int) -> list[NDArray[np.int64]]:
    """Return which of the training samples each party has: as many of each of its classes, and none twice."""
    left, parts = numpy_stream(options.seed, "demo").permutation(len(labels)), []
    for place in range(options.clients):
        own = classes_of(options, place, classes)
        shares = [options.samples // len(own) + (rank < options.samples % len(own)) for rank in range(len(own))]
        taken = np.concatenate([np.flatnonzero(labels[left] == c)[:n] for c, n in zip(own, shares, strict=True)])
        if len(taken) < options.samples:
            wanted = f"{options.clients} parties with {options.samples} images each, of half of the classes,"
            raise ConfigError(f"{wanted} are too many for {options.dataset}, which has {len(labels):,}")
        parts.append(left[taken])
        left = np.delete(left, taken)
    return parts


class Place(NamedTuple):
    """The part that a process plays, as its environment says."""

    options: DemoOptions
    number: int = 0
    """Of the party, from 0."""
    data: str | None = None
    """File with the data set, so that not every process has to load it. Default: it is loaded."""
    ready: str | None = None
    """File that the process makes when it is ready."""
    begin: str | None = None
    """File that it then waits for."""

    def as_environment(self) -> dict[str, str]:
        """Return the environment of a process that is to be one of the parties, or all of them alone."""
        return {VARIABLE: json.dumps([asdict(self.options), *self[1:]])}

    def wait(self) -> None:
        """Wait for the others. Real clients need not, but processes take seconds to start, and a demo is short."""
        if self.ready is None or self.begin is None:
            return
        Path(self.ready).touch()
        while not Path(self.begin).exists():
            time.sleep(0.05)

    def load(self) -> Splits:
        """Return the data set."""
        if self.data is None:
            return load(self.options.dataset)
        with np.load(self.data) as kept:
            train, test = (Dataset(kept[f"{part}_images"], kept[f"{part}_labels"]) for part in ("train", "test"))
            return Splits(train, test, int(kept["classes"]))


def save_data(splits: Splits, path: Path) -> None:
    """Write a data set for `Place.load`."""
    train, test, classes = splits
    np.savez(
        path,
        train_images=train.images,
        train_labels=train.labels,
        test_images=test.images,
        test_labels=test.labels,
        classes=np.array(classes),
    )


def _read_place() -> Place:
    options, *rest = json.loads(os.environ[VARIABLE])
    return Place(DemoOptions(**options), *rest)


def party() -> Party:
    """Return the party that the environment names: a network and a few images of its own."""
    place = _read_place()
    train, test, classes = place.load().normalised()
    mine = deal_samples(place.options, train.labels, classes)[place.number]
    made = Party(
        model=NETWORKS[network_of(place.number)](classes),
        data=(train.images[mine], train.labels[mine]),
        test=(test.images[:TESTED], test.labels[:TESTED]),
        policy=POLICY,
    )
    place.wait()
    return made


def mallory() -> Party:
    """Return a party whose images are white noise: as many as all others have together, with any labels."""
    place = _read_place()
    options, (train, _, classes) = place.options, place.load()
    rng, count = numpy_stream(options.seed, "demo", MALLORY), options.clients * options.samples
    images = rng.standard_normal((count, *train.images.shape[1:]), dtype=np.float32)
    made = Party(NETWORKS["MLP"](classes), (images, rng.integers(0, classes, count)))
    place.wait()
    return made


def learn_alone(journal: Journal) -> None:
    """Train each of them with the same weights and batches as in RS, but without other clients; twice.

    The second time features are kept short: a penalty that needs nobody else.
    """
    place, clients = _read_place(), []
    options, work = place.options, WorkOptions(seed=place.options.seed, threads=1)
    for method, penalty in ALONE.items():
        policy = Policy(lambda_kd=0.0, lambda_disc=0.0, lambda_length=penalty)
        for number, name in enumerate(options.names):
            os.environ |= Place(options, number, place.data).as_environment()
            clients.append((method, make_client(f"{__file__}:party", name, work, policy)))
    place.wait()
    for _ in range(options.rounds):
        began = time.monotonic()
        for method, client in clients:
            journal.add([{"method": method, **asdict(client.round())}])
        time.sleep(max(options.pace - (time.monotonic() - began), 0))


if __name__ == "__main__":
    learn_alone(Journal(Path(sys.argv[1])))
