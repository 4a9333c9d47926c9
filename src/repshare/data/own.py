"""A user's own data: `file.py:function`."""

import operator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from repshare.errors import DataError
from repshare.imports import find_function, in_one_line

Images = npt.NDArray[np.uint8] | npt.NDArray[np.float32]
EXPECTED = "((train_images, train_labels), (test_images, test_labels)[, classes])"


class Own(NamedTuple):
    """What the function returned, as arrays of the types the package works with."""

    train_images: Images  # (n, channels, height, width)
    train_labels: npt.NDArray[np.int64]  # (n,)
    test_images: Images
    test_labels: npt.NDArray[np.int64]
    classes: int


def read(reference: str) -> Own:
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
    return Own(
        _images(train_images, f"{reference}: train"),
        labels,
        _images(test_images, f"{reference}: test"),
        _labels(test_labels, f"{reference}: test"),
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
