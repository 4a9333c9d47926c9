"""Samples in any form that a client takes, read once into arrays that all processes of a simulation can map."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from repshare.errors import DataError
from repshare.imports import in_one_line

Array = npt.NDArray[Any]
Inputs = Array | dict[str, Array]  # (n, …) each
BATCH = 256  # samples that are read at a time
PIXELS = "bytes of images are divided by 255"


class Half(NamedTuple):
    """Training or test samples as they were given: labels are numbers or words."""

    inputs: Inputs
    labels: Array  # (n,)
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def change_arrays(inputs: Inputs, change: Callable[[Array], Array]) -> Inputs:
    """Return the inputs with every array changed."""
    if isinstance(inputs, dict):
        return {name: change(each) for name, each in inputs.items()}
    return change(inputs)


def take(inputs: Inputs, rows: Any) -> Inputs:
    """Return some samples' inputs."""
    return change_arrays(inputs, lambda array: array[rows])


def count(inputs: Inputs) -> int:
    """Return the number of samples."""
    return min(map(len, inputs.values()), default=0) if isinstance(inputs, dict) else len(inputs)


def read_part(given: Any, whose: str) -> Half:
    """Read a pair (inputs, labels), or a PyTorch or Hugging Face dataset."""
    if isinstance(given, tuple | list):
        if len(given) != 2:
            raise DataError(f"{whose} has {len(given)} things, not a pair (inputs, labels)")
        inputs, notes = _convert(given[0], f"{whose} inputs", channels=True)
        return Half(inputs, as_array(given[1], f"{whose} labels"), (), notes)
    if hasattr(given, "dataset") or (hasattr(given, "__getitem__") and hasattr(given, "__len__")):
        return _read_dataset(given, whose)
    raise DataError(f"{whose} is a {type(given).__name__}, not a pair (inputs, labels) or a dataset")


def _read_dataset(given: Any, whose: str) -> Half:
    """Read every sample once, in order."""
    import torch

    from repshare.batches import Indexed

    try:
        source = Indexed(given)
        batches = list(map(source.read, torch.split(torch.arange(len(source)), BATCH)))
        first = source.read(torch.arange(min(1, len(source))))[0] if batches else None
        again = first is not None and not _same(first, batches[0][0])
    except DataError as error:
        raise DataError(f"{whose}: {error}") from error
    except Exception as error:  # the dataset is the user's own code
        raise DataError(f"{whose}: reading the samples raised {in_one_line(error)}") from error
    if not batches:
        raise DataError(f"{whose} is empty")
    inputs, notes = _convert(_join([each for each, _ in batches], f"{whose} inputs"), f"{whose} inputs")
    if again:
        notes = (*notes, f"{whose} has random transforms, which are frozen: each sample is read once")
    return Half(inputs, _join([labels for _, labels in batches], f"{whose} labels"), _names(given), notes)


def _same(first: Any, batch: Any) -> bool:
    """Whether a sample that was read again is what it was."""
    if isinstance(first, Mapping):
        return all(_same(each, batch[name]) for name, each in first.items())
    return not hasattr(first, "shape") or bool((first[0] == batch[0]).all())


def _names(given: Any) -> tuple[str, ...]:
    """Return the names of the classes, where a data set of torchvision or Hugging Face has them."""
    data = getattr(given, "dataset", given)
    told = getattr(data, "classes", None)
    for name in ("label", "labels"):
        told = told or getattr((getattr(data, "features", None) or {}).get(name), "names", None)
    return tuple(map(str, told)) if isinstance(told, list | tuple) else ()


def _join(pieces: Sequence[Any], what: str) -> Any:
    if isinstance(pieces[0], Mapping):
        return {name: _join([piece[name] for piece in pieces], f"{what} {name}") for name in pieces[0]}
    arrays = [as_array(piece, what) for piece in pieces]
    shapes = {array.shape[1:] for array in arrays}
    if len(shapes) > 1:
        raise DataError(f"{what} have the shapes {', '.join(map(str, sorted(shapes)))}: pad them to one shape")
    return np.concatenate(arrays)


def _convert(given: Any, what: str, *, channels: bool = False) -> tuple[Inputs, tuple[str, ...]]:
    """Return inputs as fp32, bytes of images as 0 to 1, and whole numbers as int64."""
    notes: list[str] = []
    if isinstance(given, Mapping):
        return {str(name): _number(as_array(each, f"{what} {name}"), what, notes) for name, each in given.items()}, (
            *dict.fromkeys(notes),
        )
    array = _number(as_array(given, what), what, notes)
    if channels and array.ndim == 3 and array.dtype == np.float32:
        array = array[:, np.newaxis]  # grey images
    return array, tuple(notes)


def _number(array: Array, what: str, notes: list[str]) -> Array:
    if array.dtype.kind not in "buif":
        raise DataError(f"{what} are {array.dtype}, not numbers")
    if array.dtype == np.uint8 and array.ndim > 2:
        notes.append(PIXELS)
        return array.astype(np.float32) / np.float32(255)
    if array.dtype.kind in "ui":
        return array.astype(np.int64)
    with np.errstate(over="ignore"):  # overflow becomes inf, which the check reports with its place
        return array.astype(np.float32)


def as_array(given: Any, what: str) -> Array:
    """Convert to an array, or raise DataError."""
    try:
        return np.asarray(given)
    except Exception as error:  # lists of unequal length, tensors on another device, anything with __array__
        raise DataError(f"{what} are not an array: {in_one_line(error)}") from error


def number_labels(
    train: Array, test: Array, names: Sequence[str], whose: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], tuple[str, ...]]:
    """Return labels as numbers. Words are numbered in the order of the names, else in alphabetical order."""
    for part, labels in (("train", train), ("test", test)):
        words = labels.dtype.kind in "OU" and all(isinstance(each, str) for each in labels.tolist())
        if labels.ndim != 1 or not (words or labels.dtype.kind in "bui" or not labels.size):
            kind = f"{labels.dtype} of shape {labels.shape}"
            raise DataError(f"{whose}: {part} labels are {kind}, not integers or words of shape (n,)")
    if train.dtype.kind not in "OU" and test.dtype.kind not in "OU":
        return train.astype(np.int64), test.astype(np.int64), tuple(names)
    if train.dtype.kind not in "OU" or test.dtype.kind not in "OU":
        raise DataError(f"{whose}: labels of one part are words, of the other numbers")
    chosen = tuple(names) or tuple(sorted(set(train.tolist())))
    number = {name: place for place, name in enumerate(chosen)}
    for part, labels in (("train", train), ("test", test)):
        for index, label in enumerate(labels.tolist()):
            if label not in number:
                raise DataError(f"{whose}: {part} label {label!r} at index {index} is not one of {', '.join(chosen)}")
    return *(np.array([number[each] for each in part.tolist()], np.int64) for part in (train, test)), chosen  # type: ignore[return-value]
