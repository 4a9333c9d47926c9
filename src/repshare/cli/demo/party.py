"""The parties of the demo: real images dealt among networks that differ. `repshare join --task …/party.py:party`.

`python -m repshare.cli.demo.party RECORDS ROUNDS PACE SHARES`: the same parties without each other.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from repshare import LeNet5, Party, Policy, load
from repshare.client import Client
from repshare.learning.models import MLP, ConvNet
from repshare.learning.randomness import derive, numpy_stream
from repshare.results.records import Journal

DIMENSION = 84  # d', which all of them agree on
VARIABLE = "REPSHARE_DEMO"
TESTED = 2000  # images, so that a round on MNIST is not mostly testing
DOOR_SECONDS = 120.0


@dataclass(frozen=True)
class Share:
    """One party's part in one demo."""

    dataset: str
    place: int  # 0, 1, …
    samples: int
    seed: int
    door: str | None = None  # a folder in which parties say that they are ready
    parties: int = 1  # how many to wait for there

    def environment(self) -> dict[str, str]:
        """Return the environment of a process that is to be this party."""
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


def party() -> Party:
    """Return the party that the environment names, once all other parties are ready, too."""
    share = Share(**json.loads(os.environ[VARIABLE]))
    made = make_party(share)
    if share.door is not None:
        _meet(Path(share.door), share)
    return made


def make_party(share: Share) -> Party:
    """Return a network and a few images of its own. The same share has the same ones wherever it is made."""
    train, test, classes = load(share.dataset).normalised()
    mine = choose(share, len(train.labels))
    return Party(
        model=NETWORKS[network_of(share.place)](classes),
        data=(train.images[mine], train.labels[mine]),
        test=(test.images[:TESTED], test.labels[:TESTED]),
        policy=Policy(learning_rate=0.003),  # three times the usual: a demo is short
    )


def choose(share: Share, of: int) -> NDArray[np.int64]:
    """Return which of the training samples this party has."""
    order = numpy_stream(share.seed, "demo").permutation(of)
    return order[share.place * share.samples : (share.place + 1) * share.samples]


def _meet(door: Path, share: Share) -> None:
    """Wait for the others. Real clients need not, but processes take seconds to start, and a demo is short."""
    (door / f"ready-{share.place}").touch()
    deadline = time.monotonic() + DOOR_SECONDS
    while len(list(door.glob("ready-*"))) < share.parties and time.monotonic() < deadline:
        time.sleep(0.05)


def learn_alone(journal: Journal, rounds: int, pace: float, shares: dict[str, Share]) -> None:
    """Train each of them with the same weights and batches as together, but without other clients to learn from."""
    clients = [_make_client(name, share) for name, share in shares.items()]
    for _ in range(rounds):
        began = time.monotonic()
        for client in clients:
            journal.add([asdict(client.round())])
        time.sleep(max(pace - (time.monotonic() - began), 0))


def _make_client(name: str, share: Share) -> Client:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(share.seed, name, "model"))  # as `repshare join` does
        party = make_party(share)
    alone = replace(party.policy or Policy(), lambda_kd=0.0, lambda_disc=0.0)
    return Client(party.model, party.data, name=name, policy=alone, test=party.test, seed=share.seed)


if __name__ == "__main__":
    torch.set_num_threads(1)
    records, rounds, pace, shares = sys.argv[1:]
    parties = {name: Share(**share) for name, share in json.loads(shares).items()}
    learn_alone(Journal(Path(records)), int(rounds), float(pace), parties)
