"""Data sets by name, or a user's own by reference, checked before training."""

import operator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from repshare.data.contents import DATASETS, Arrays, verify
from repshare.data.sources import fetch
from repshare.errors import ConfigError, DataError
from repshare.imports import find_function, in_one_line, is_reference

Images = npt.NDArray[np.uint8] | npt.NDArray[np.float32]
EXPECTED = "((train_images, train_labels), (test_images, test_labels)[, classes])"


class Dataset(NamedTuple):
    """Row i is one image and its class."""

    images: Images
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

    def first(self, train: int | None = None, test: int | None = None) -> "Splits":
        """Return the splits with the first samples only.

        Args:
            train: Number of training samples. None: all.
            test: Number of test samples. None: all.
        """
        return self._replace(
            train=Dataset(self.train.images[:train], self.train.labels[:train]),
            test=Dataset(self.test.images[:test], self.test.labels[:test]),
        )

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
        splits = _read_own(name)
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


def _read_own(reference: str) -> Splits:
    """Call the function and convert what it returns. Values are for the caller to check."""
    function = find_function(reference)
    try:
        returned = function()
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise DataError(f"{reference} raised {in_one_line(error)}") from error
    try:
        (train_images, train_labels), (test_images, test_labels), *rest = returned
        (classes,) = rest or (None,)
    except (TypeError, ValueError) as error:
        raise DataError(f"{reference} must return {EXPECTED}, not {type(returned).__name__} ({error})") from error
    labels = _labels(train_labels, f"{reference}: train")
    return Splits(
        Dataset(_images(train_images, f"{reference}: train"), labels),
        Dataset(_images(test_images, f"{reference}: test"), _labels(test_labels, f"{reference}: test")),
        int(labels.max(initial=-1)) + 1 if classes is None else _count(classes, reference),
    )


def _images(given: Any, whose: str) -> Images:
    images = _array(given, f"{whose} images")
    if images.ndim == 3:
        images = images[:, np.newaxis]
    if images.ndim != 4:
        raise DataError(f"{whose} images have shape {images.shape}, not (n, h, w) or (n, channels, h, w)")
    if images.dtype.kind not in "buif":
        raise DataError(f"{whose} images are {images.dtype}, not numbers")
    if images.dtype == np.uint8:
        return images.astype(np.uint8)  # a copy: what is given may be read-only
    with np.errstate(over="ignore"):  # what overflows becomes inf, which the check reports with its place
        return images.astype(np.float32)


def _labels(given: Any, whose: str) -> npt.NDArray[np.int64]:
    labels = _array(given, f"{whose} labels")
    if labels.ndim != 1 or (labels.dtype.kind not in "ui" and labels.size):
        raise DataError(f"{whose} labels are {labels.dtype} of shape {labels.shape}, not integers of shape (n,)")
    return labels.astype(np.int64)


def _array(given: Any, what: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(given)
    except Exception as error:  # lists of unequal length, tensors on another device, anything with __array__
        raise DataError(f"{what} are not an array: {in_one_line(error)}") from error


def _count(classes: Any, reference: str) -> int:
    try:
        return operator.index(classes)
    except TypeError as error:
        raise DataError(f"{reference}: the number of classes is {classes!r}, not an integer") from error
