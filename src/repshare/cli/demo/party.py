"""The parties of the demo: different networks, and real images of half of the classes each.

`repshare join … --task …/party.py:party`: one of them, and `…:mallory` the one that sends noise.
`python -m repshare.cli.demo.party RECORDS`: the same parties without each other.
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
from repshare.cli.demo.options import MALLORY, DemoOptions
from repshare.cli.party_loop import WorkOptions, make_client
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
    """Return which of the training samples each party has: only of its classes, and none twice."""
    left = numpy_stream(options.seed, "demo").permutation(len(labels))
    parts = []
    for place in range(options.clients):
        fitting = np.flatnonzero(np.isin(labels[left], classes_of(options, place, classes)))[: options.samples]
        if len(fitting) < options.samples:
            wanted = f"{options.clients} parties with {options.samples} images each, of half of the classes,"
            raise ConfigError(f"{wanted} are too many for {options.dataset}, which has {len(labels):,}")
        parts.append(left[fitting])
        left = np.delete(left, fitting)
    return parts


def environment(options: DemoOptions, place: int = 0, gates: tuple[Path, Path] | None = None) -> dict[str, str]:
    """Return the environment of a process that is to be one of the parties, or all of them alone.

    With gates, it makes the first file when it is ready, and waits for the second one.
    """
    given = {"options": asdict(options), "place": place, "gates": None if gates is None else list(map(str, gates))}
    return {VARIABLE: json.dumps(given)}


def party() -> Party:
    """Return the party that the environment names: a network and a few images of its own."""
    options, place, gates = _read_environment()
    train, test, classes = load(options.dataset).normalised()
    mine = deal_samples(options, train.labels, classes)[place]
    made = Party(
        model=NETWORKS[network_of(place)](classes),
        data=(train.images[mine], train.labels[mine]),
        test=(test.images[:TESTED], test.labels[:TESTED]),
        policy=POLICY,
    )
    _wait(gates)
    return made


def mallory() -> Party:
    """Return a party whose images are white noise: as many as all others have together, with any labels."""
    options, _, gates = _read_environment()
    train, _, classes = load(options.dataset)
    rng, count = numpy_stream(options.seed, "demo", MALLORY), options.clients * options.samples
    images = rng.standard_normal((count, *train.images.shape[1:]), dtype=np.float32)
    made = Party(NETWORKS["MLP"](classes), (images, rng.integers(0, classes, count)))
    _wait(gates)
    return made


def _read_environment() -> tuple[DemoOptions, int, list[str] | None]:
    given = json.loads(os.environ[VARIABLE])
    return DemoOptions(**given["options"]), given["place"], given["gates"]


def _wait(gates: list[str] | None) -> None:
    """Wait for the others. Real clients need not, but processes take seconds to start, and a demo is short."""
    if gates is None:
        return
    ready, begin = map(Path, gates)
    ready.touch()
    while not begin.exists():
        time.sleep(0.05)


def learn_alone(journal: Journal) -> None:
    """Train each of them with the same weights and batches as in RS, but without other clients; twice.

    The second time features are kept short: a penalty that needs nobody else.
    """
    options, _, gates = _read_environment()
    work, clients = WorkOptions(seed=options.seed, threads=1), []
    for method, penalty in ALONE.items():
        policy = Policy(lambda_kd=0.0, lambda_disc=0.0, lambda_length=penalty)
        for place, name in enumerate(options.names):
            os.environ |= environment(options, place)
            clients.append((method, make_client(f"{__file__}:party", name, work, policy)))
    _wait(gates)
    for _ in range(options.rounds):
        began = time.monotonic()
        for method, client in clients:
            journal.add([{"method": method, **asdict(client.round())}])
        time.sleep(max(options.pace - (time.monotonic() - began), 0))


if __name__ == "__main__":
    learn_alone(Journal(Path(sys.argv[1])))
