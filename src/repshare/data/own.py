"""A user's own data: `file.py:function`."""

import importlib.util
import operator
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from repshare.errors import ConfigError, DataError

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
    function = _find(reference)
    try:
        returned = function()
    except Exception as error:  # the user's code may raise anything
        raise DataError(f"{reference} raised {_line(error)}") from error
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


def _find(reference: str) -> Callable[[], Any]:
    file, _, name = reference.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise ConfigError(f"{reference}: there is no file {file}")
    module_name = f"repshare_own_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{reference}: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look their module up by name
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's code may raise anything
        del sys.modules[module_name]
        raise DataError(f"{reference}: importing {file} raised {_line(error)}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"{reference}: {file} has no function {name!r}")
    return function  # type: ignore[no-any-return]


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
        raise DataError(f"{what} are not an array: {_line(error)}") from error


def _count(classes: Any, reference: str) -> int:
    try:
        return operator.index(classes)
    except TypeError as error:
        raise DataError(f"{reference}: the number of classes is {classes!r}, not an integer") from error


def _line(error: Exception) -> str:
    """An error in one line, whatever its author thought of lines."""
    return " ".join(f"{type(error).__name__}: {error}".split())
