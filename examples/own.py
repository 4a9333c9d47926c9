"""Your own model and data on the command line:

repshare compare --dataset examples/own.py:data --model examples/own.py:model --clients 4 --rounds 100
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from torch import nn

Part = tuple[NDArray[np.float32], NDArray[np.int64]]


def data() -> tuple[Part, Part, int]:
    """569 real biopsies of 30 measurements each: the first 400 train, the others test; two classes.

    Samples are images here, (n, height, width), so the measurements form one row.
    """
    table = load_breast_cancer()
    values = (table.data - table.data[:400].mean(0)) / table.data[:400].std(0)
    images, labels = values.astype(np.float32)[:, None, :], table.target.astype(np.int64)
    return (images[:400], labels[:400]), (images[400:], labels[400:]), 2


def model(channels: int, classes: int) -> nn.Module:
    """Anything that ends in a linear layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(30 * channels, 16), nn.Tanh(), nn.Linear(16, classes))
