"""Data sets by name, or a user's own by reference, checked before anyone trains on them."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from repshare.data import own
from repshare.data.contents import DATASETS, Arrays, verify
from repshare.data.sources import fetch
from repshare.errors import ConfigError, DataError
from repshare.imports import is_reference


class Dataset(NamedTuple):
    """Row i is one image and its class."""

    images: npt.NDArray[np.uint8] | npt.NDArray[np.float32]
    """Of shape (n, channels, height, width)."""
    labels: npt.NDArray[np.int64]
    """Of shape (n,), from 0."""


class Splits(NamedTuple):
    """Training and test samples. Labels are 0 … classes−1."""

    train: Dataset
    """The training samples."""
    test: Dataset
    """The test samples."""
    classes: int
    """Number of classes."""

    def tested_on(self, samples: int | None) -> "Splits":
        """Return the splits with the first test samples only.

        Args:
            samples: Number of test samples. None: all.
        """
        return self._replace(test=Dataset(self.test.images[:samples], self.test.labels[:samples]))

    def first(self, samples: int | None) -> "Splits":
        """Return the splits with the first training samples only.

        Args:
            samples: Number of training samples. None: all.
        """
        return self._replace(train=Dataset(self.train.images[:samples], self.train.labels[:samples]))

    def normalised(self) -> "Splits":
        """Return all images as float32, scaled by one mean and one standard deviation over all training pixels."""
        pixels = self.train.images
        mean, deviation = np.float32(pixels.mean(dtype=float)), np.float32(pixels.std(dtype=float) or 1.0)

        def normalise(data: Dataset) -> Dataset:
            return Dataset(((data.images - mean) / deviation).astype(np.float32), data.labels)

        return self._replace(train=normalise(self.train), test=normalise(self.test))


def load(name_or_reference: str, *, folder: Path | None = None, progress: bool = False) -> Splits:
    """Load a data set.

    Args:
        name_or_reference: Its name (see `DATASETS`), or your own as `file.py:function`. Your function returns
            `((train_images, train_labels), (test_images, test_labels))`, and may add the number of classes.
        folder: Folder that already holds the files of the named data set.
        progress: Whether to show a download's progress.
    """
    name = name_or_reference
    if name in DATASETS:
        arrays = _digits() if name == "digits" else fetch(name, folder=folder, progress=progress)
        splits = Splits(Dataset(*arrays[:2]), Dataset(*arrays[2:]), DATASETS[name].classes)
    elif is_reference(name):
        given = own.read(name)
        splits = Splits(Dataset(*given[:2]), Dataset(*given[2:4]), given.classes)
    else:
        raise ConfigError(f"no data set is called {name!r}: use {', '.join(DATASETS)} or your own as file.py:function")
    check(splits)
    return splits


def _digits() -> Arrays:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = digits.images.astype(np.uint8)[:, np.newaxis]  # (1797, 1, 8, 8), values 0 … 16
    labels = digits.target.astype(np.int64)
    arrays = Arrays(images[:1200], labels[:1200], images[1200:], labels[1200:])
    verify(arrays, "digits")
    return arrays


def check(splits: Splits) -> None:
    """Raise DataError, with the value and its place, unless the splits can be trained and tested on."""
    for part, (images, labels) in (("train", splits.train), ("test", splits.test)):
        if len(images) != len(labels):
            raise DataError(f"{part} has {len(images)} images but {len(labels)} labels")
        if images.size == 0:
            raise DataError(f"{part} is empty: images have shape {images.shape}")
        wrong = np.flatnonzero((labels < 0) | (labels >= splits.classes))
        if wrong.size:
            allowed = f"0…{splits.classes - 1} ({splits.classes} classes)"
            raise DataError(f"{part} label {labels[wrong[0]]} at index {wrong[0]} is not in {allowed}")
        if images.dtype.kind == "f" and not np.isfinite(images).all():
            place = tuple(np.argwhere(~np.isfinite(images))[0].tolist())
            raise DataError(f"{part} images have the value {images[place]} at {place}")
    train, test = splits.train.images, splits.test.images
    if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
        raise DataError(
            f"train images are {train.dtype} {train.shape[1:]} but test images {test.dtype} {test.shape[1:]}"
        )
