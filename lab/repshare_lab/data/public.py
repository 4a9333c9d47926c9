"""Public samples: those that no client owns, and that every client and the server may have."""

from dataclasses import replace

import numpy as np

from repshare.errors import ConfigError
from repshare_lab.data.arrays import count, take
from repshare_lab.data.datasets import Dataset, Splits, describe_shapes, load

REST = "rest"  # of the data set's own training samples
UNKNOWN = -1  # the label of a sample of another data set, whose classes are others


def choose_public(wanted: str, dataset: str, splits: Splits, used: int, *, standardise: bool = False) -> Dataset:
    """Return the public samples that `NAME:NUMBER` names, prepared as the clients' are. No test sample is among them.

    Args:
        wanted: `rest:2000` for training samples after the clients', or the name of another data set.
        dataset: The name of the clients' data set.
        splits: The clients' data set.
        used: Number of its training samples that clients have: the first ones.
        standardise: Whether the user asked to standardise the samples.
    """
    name, _, text = wanted.rpartition(":")
    number, first = int(text), used if name == REST else 0
    if name == dataset:
        raise ConfigError(f"clients have the first samples of {dataset}: for those after them, use {REST}:{number}")
    source = splits.train if name == REST else load(name).train
    available = max(0, count(source.inputs) - first)
    if number > available:
        what = f"{dataset} has {available} training samples beyond the clients' {used}"
        raise ConfigError(
            f"{what if name == REST else f'{name} has {available} training samples'}: {number} are too many"
        )
    shapes = [describe_shapes(each.inputs, 1) for each in (splits.train, source)]
    if shapes[0] != shapes[1]:
        raise ConfigError(
            f"samples of {name} are {shapes[1]}, those of {dataset} {shapes[0]}: choose other public data"
        )
    rows = slice(first, first + number)
    labels = source.labels[rows] if name == REST else np.full(number, UNKNOWN)
    public = Dataset(take(source.inputs, rows), labels)
    return replace(splits.first(used), test=public).prepared(standardise=standardise).test


def describe_public(wanted: str, dataset: str) -> str:
    """Return in words which samples `NAME:NUMBER` names."""
    name, _, number = wanted.rpartition(":")
    whose = f"training samples of {dataset} that no client has" if name == REST else f"training samples of {name}"
    return f"{int(number):,} {whose}"
