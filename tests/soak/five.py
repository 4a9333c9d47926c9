"""Five parties, each with another kind of network and 120 handwritten digits of its own."""

import os
import sys
from pathlib import Path

from torch import Tensor, nn

from repshare import LeNet5, Party
from repshare.network.models import MLP, ConvNet
from repshare.randomness import numpy_stream
from repshare_lab import load

sys.path.append(str(Path(__file__).parents[1]))
from support.processes import eventually

SEED, DOOR = "FIVE_SEED", "FIVE_DOOR"  # variables: which split it is, and a folder where they wait for each other
DIMENSION, SAMPLES, TESTED = 84, 120, 2000


class Reader(nn.Module):
    """A recurrent network that reads an image row by row."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.rows = nn.GRU(28, DIMENSION, batch_first=True)
        self.head = nn.Linear(DIMENSION, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.rows(images.squeeze(1))[1].squeeze(0))


def patches(classes: int) -> nn.Module:
    """A network that looks at each patch of 7 × 7 pixels by itself, then at all of them."""
    layers = (nn.Conv2d(1, 24, 7, stride=7), nn.ReLU(), nn.Flatten(), nn.Linear(24 * 16, DIMENSION), nn.Tanh())
    return nn.Sequential(*layers, nn.Linear(DIMENSION, classes))


NETWORKS = {
    "ada": lambda classes: LeNet5(classes=classes, dimension=DIMENSION),
    "bea": lambda classes: ConvNet(classes=classes, dimension=DIMENSION),
    "cid": lambda classes: MLP(classes=classes, dimension=DIMENSION),
    "dan": patches,
    "eva": Reader,
}


def make(name):
    """The party of this name, when all five are ready: who is far ahead would learn from beginners."""
    seed = int(os.environ.get(SEED, "0"))
    train, test, classes = load("mnist").normalised()
    first = list(NETWORKS).index(name) * SAMPLES
    mine = numpy_stream(seed, "demo").permutation(len(train.labels))[first : first + SAMPLES]
    tested = test.images[:TESTED], test.labels[:TESTED]
    made = Party(model=NETWORKS[name](classes), data=(train.images[mine], train.labels[mine]), test=tested)
    if door := os.environ.get(DOOR):
        Path(door, name).touch()
        eventually(lambda: len(list(Path(door).iterdir())) == len(NETWORKS), "all are ready")
    return made


def ada():
    return make("ada")


def bea():
    return make("bea")


def cid():
    return make("cid")


def dan():
    return make("dan")


def eva():
    return make("eva")
