"""Your own model and data on the command line:

repshare compare --dataset examples/own.py:data --model examples/own.py:model --clients 4 --rounds 100
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from torch import nn

Part = tuple[NDArray[np.float32], NDArray[np.int64]]


def data() -> tuple[Part, Part, list[str]]:
    """569 real biopsies of 30 measurements each: the first 400 train, the others test; two classes, by name.

    Nothing is changed by repshare: the measurements are standardised here.
    """
    table = load_breast_cancer()
    values = ((table.data - table.data[:400].mean(0)) / table.data[:400].std(0)).astype(np.float32)
    labels = table.target.astype(np.int64)
    return (values[:400], labels[:400]), (values[400:], labels[400:]), ["malignant", "benign"]


def model(features: int, classes: int) -> nn.Module:
    """Anything that ends in a linear layer. It may ask for the number of columns and of classes."""
    return nn.Sequential(nn.Linear(features, 16), nn.Tanh(), nn.Linear(16, classes))
