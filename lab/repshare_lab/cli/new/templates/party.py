"""Your side of a collaboration: replace data and model by your own.

repshare compare --dataset party.py:data --model party.py:model     simulates clients that share these data
repshare join URL --party party.py:party --dry-run                  shows what would leave, and sends nothing
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import nn

from repshare import Party, Policy

DIMENSION = 84  # numbers in a representation; all clients of a task agree on it
CLASSES = 10
TRAINING = 1200  # of 1,797 samples; the others test

Part = tuple[NDArray[np.float32], NDArray[np.int64]]


def data() -> tuple[Part, Part, int]:
    """Return training samples, test samples, and the number of classes: handwritten digits of 8 × 8 pixels."""
    table = load_digits()
    images, labels = (table.images / 16).astype(np.float32), table.target.astype(np.int64)
    return (images[:TRAINING], labels[:TRAINING]), (images[TRAINING:], labels[TRAINING:]), CLASSES


def model(channels: int = 1, classes: int = CLASSES) -> nn.Module:
    """Return any classifier that ends in a linear layer: here, from 64 pixels to 84 numbers to 10 classes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * channels, DIMENSION), nn.Tanh(), nn.Linear(DIMENSION, classes))


def party() -> Party:
    """Return what `repshare join` trains. Nothing of it leaves this machine but what the policy allows."""
    train, test, _ = data()
    return Party(model=model(), data=train, test=test, policy=Policy(learning_rate=0.003, minimum_count=5))
