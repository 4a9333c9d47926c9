"""Measures of a learner: its losses as it trains, its score on a test, its view of samples."""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from repshare.learning.objective import Terms
from repshare.sharing.representations import Floats, Integers


class Losses(NamedTuple):
    """Means over the samples of one round's local training, taken as each batch was seen."""

    ce: float
    kd: float | None
    disc: float | None
    bound: float | None  # log K − L_disc, in nats
    accuracy: float
    gap: float | None = None  # of a common classifier: this client's part of the duality gap
    held_out: float | None = None  # its accuracy on held-out samples, from 0 to 1
    held_out_alone: float | None = None  # that of a classifier of this client's samples alone
    doubt: str | None = None  # what on held-out samples speaks against the others


class Score(NamedTuple):
    """The number of samples of each class that a model got right, and how many there were."""

    right: Integers  # (C,)
    totals: Integers  # (C,)

    @property
    def accuracy(self) -> float:
        """The accuracy, from 0 to 1."""
        return int(self.right.sum()) / int(self.totals.sum())

    def weighted(self, classes: Integers) -> float | None:
        """Return the accuracy for these numbers of samples of each class; None where none of those could be tested."""
        tested = (self.totals > 0) & (classes > 0)
        if not tested.any():
            return None
        return float(np.average(self.right[tested] / self.totals[tested], weights=classes[tested]))


class View(NamedTuple):
    """A client's view of some samples: its features of them, and its linear head."""

    features: Floats  # (n, d')
    weight: Floats  # (C, d')
    bias: Floats  # (C,)  zeros where the head has none


def count_hits(chosen: Tensor, labels: Tensor, classes: int) -> Score:
    """Return the score of having chosen these classes for samples of those."""
    right, totals = (torch.bincount(each, minlength=classes) for each in (labels[chosen == labels], labels))
    return Score(right.numpy(), totals.numpy())


class Averages:
    """Means over samples of what each batch reports. Values are read at the end: reading one waits for it on a GPU."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[Tensor, int]]] = {}

    def add(self, terms: Terms, logits: Tensor, labels: Tensor) -> None:
        """Note a batch."""
        for name, value in zip(Terms._fields, terms, strict=True):
            if value is not None:
                self._seen.setdefault(name, []).append((value.detach(), len(labels)))
        right = (logits.detach().argmax(1) == labels).sum()
        self._seen.setdefault("accuracy", []).append((right / len(labels), len(labels)))

    def result(self) -> Losses:
        """Return the means."""
        return Losses(**{name: self._mean(name) for name in Losses._fields})  # type: ignore[arg-type]

    def _mean(self, name: str) -> float | None:
        seen = self._seen.get(name)
        if not seen:
            return None
        finite = [(float(value), count) for value, count in seen if value.isfinite()]
        return sum(value * count for value, count in finite) / sum(count for _, count in finite) if finite else math.nan
