"""Data sets by name, or a user's own: a function, a CSV file, a folder of images. Checked before training."""

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from repshare.errors import ConfigError, DataError
from repshare.imports import find_function, in_one_line, is_reference
from repshare_lab.data.arrays import Array, Half, Inputs, change_arrays, count, number_labels, read_part, take
from repshare_lab.data.bundled import BUNDLED, read_bundled
from repshare_lab.data.contents import DATASETS
from repshare_lab.data.folders import read_folder
from repshare_lab.data.sources import fetch
from repshare_lab.data.tables import read_table

EXPECTED = "(train, test[, classes]), where train and test are each a pair (inputs, labels) or a dataset"
TABLES = (".csv", ".tsv")


class Dataset(NamedTuple):
    """Row i is one sample and its class."""

    inputs: Inputs
    """An array (n, …), or a dictionary of these. Images are (n, channels, height, width), tables (n, columns)."""
    labels: npt.NDArray[np.int64]
    """Of shape (n,), from 0."""

    @property
    def images(self) -> Array:
        """The inputs, where they are one array."""
        if isinstance(self.inputs, dict):
            raise DataError(f"the inputs are a dictionary of {', '.join(self.inputs)}, not images")
        return self.inputs


@dataclass(frozen=True)
class Splits:
    """Training and test samples. Labels are 0 … classes−1. It can be unpacked: `train, test, classes = splits`."""

    train: Dataset
    """The training samples."""
    test: Dataset
    """The test samples."""
    classes: int
    """Number of classes."""
    class_names: tuple[str, ...] = ()
    """The names of the classes, in the order of their labels. Default: not known."""
    standardise: bool = False
    """Whether a simulation standardises the inputs: those of built-in images and tables."""
    notes: tuple[str, ...] = ()
    """What was done to the samples when they were read."""
    embedded: Any = None
    """The same samples in the space of a backbone, for methods that learn there: see `simulation.embedding`."""

    def __iter__(self) -> Iterator[Any]:
        yield from (self.train, self.test, self.classes)

    def first(self, train: int | None = None, test: int | None = None) -> "Splits":
        """Return the splits with the first samples only.

        Args:
            train: Number of training samples. None: all.
            test: Number of test samples. None: all.
        """
        return replace(
            self,
            train=Dataset(take(self.train.inputs, slice(train)), self.train.labels[:train]),
            test=Dataset(take(self.test.inputs, slice(test)), self.test.labels[:test]),
        )

    def normalised(self) -> "Splits":
        """Return all inputs as float32 with mean 0 and deviation 1 over the training samples.

        Each column of a table has its own mean and deviation; images have one over all pixels. Whole numbers, such as
        token ids, stay as they are.
        """
        train, test = self.train.inputs, self.test.inputs
        if isinstance(train, dict) and isinstance(test, dict):
            pairs = {name: _standardise(train[name], test[name]) for name in train}
            first, last = ({name: pair[place] for name, pair in pairs.items()} for place in (0, 1))
            return replace(self, train=Dataset(first, self.train.labels), test=Dataset(last, self.test.labels))
        both = _standardise(self.train.images, self.test.images)
        return replace(self, train=Dataset(both[0], self.train.labels), test=Dataset(both[1], self.test.labels))

    def prepared(self, *, standardise: bool = False) -> "Splits":
        """Return the samples as a simulation trains on them: built-in ones are standardised, your own only if asked.

        Args:
            standardise: Whether to standardise your own, too.
        """
        if standardise and all(array.dtype.kind == "i" for array in _arrays(self.train.inputs)):
            raise ConfigError("there is nothing to standardise: the inputs are whole numbers, as token ids are")
        return self.normalised() if standardise or self.standardise else self


def load(
    name_or_reference: str,
    *,
    folder: Path | None = None,
    progress: bool = False,
    label: str | None = None,
    test_file: Path | None = None,
) -> Splits:
    """Load a data set.

    Args:
        name_or_reference: Its name (see `DATASETS`), or your own: `file.py:function`, a table as `file.csv`, or a
            folder of images with one folder for each class. Your function returns `(train, test)`, and may add the
            number of classes or their names; train and test are what a `Client` takes.
        folder: Folder that already holds the files of the named data set.
        progress: Whether to show a download's progress.
        label: The column of a table that has the classes. Default: the last one.
        test_file: A table of test samples. Default: a fifth of each class, always the same.
    """
    name, path = name_or_reference, Path(name_or_reference).expanduser()
    is_table = path.suffix.lower() in TABLES
    if (label is not None or test_file is not None) and not is_table:
        raise ConfigError(f"{name} is no table in a CSV file: leave --label and --test-file out")
    if name in DATASETS:
        content = DATASETS[name]
        arrays = read_bundled(name) if name in BUNDLED else fetch(name, folder=folder, progress=progress)
        train, test = Dataset(*arrays[:2]), Dataset(*arrays[2:])
        names = content.class_names
        splits = Splits(train, test, content.classes, names, content.kind != "text", _tell_names(names))
    elif is_reference(name):
        splits = _read_own(name)
    elif is_table:
        splits = _join(*read_table(path, label, test_file), name)
    elif path.is_dir():
        splits = _join(*read_folder(path), name)
    elif "/" in name and ":" not in name:
        raise ConfigError(f"there is no folder {name}")
    else:
        own = "your own as file.py:function, file.csv or a folder of images"
        raise ConfigError(f"no data set is called {name!r}: use {', '.join(DATASETS)} or {own}")
    check(splits)
    return splits


def check(splits: Splits) -> None:
    """Raise DataError, with the value and its place, unless the splits can be trained and tested on."""
    for part, (inputs, labels) in (("train", splits.train), ("test", splits.test)):
        if any(len(array) != len(labels) for array in _arrays(inputs)):
            raise DataError(f"{part} has {count(inputs)} inputs but {len(labels)} labels")
        if not count(inputs) or any(array.size == 0 for array in _arrays(inputs)):
            raise DataError(f"{part} is empty: inputs have shape {describe_shapes(inputs, 0)}")
        wrong = np.flatnonzero((labels < 0) | (labels >= splits.classes))
        if wrong.size:
            allowed = f"0…{splits.classes - 1} ({splits.classes} classes)"
            raise DataError(f"{part} label {labels[wrong[0]]} at index {wrong[0]} is not in {allowed}")
        for array in _arrays(inputs):
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                place = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
                raise DataError(f"{part} inputs have the value {array[place]} at {place}")
    train, test = (describe_shapes(each.inputs, 1) for each in (splits.train, splits.test))
    if train != test:
        raise DataError(f"train inputs are {train} but test inputs {test}")


def _arrays(inputs: Inputs) -> list[Array]:
    return [*inputs.values()] if isinstance(inputs, dict) else [inputs]


def describe_shapes(inputs: Inputs, skipped: int) -> str:
    """Return type and shape of the inputs, without their first dimensions."""
    told = change_arrays(inputs, lambda array: f"{array.dtype} {array.shape[skipped:]}")  # type: ignore[arg-type,return-value]
    return ", ".join(f"{name}: {each}" for name, each in told.items()) if isinstance(told, dict) else str(told)


def _standardise(train: Array, test: Array) -> tuple[Array, Array]:
    if train.dtype.kind == "i":
        return train, test
    axis = 0 if train.ndim == 2 else None
    mean, deviation = np.float32(train.mean(axis, dtype=float)), train.std(axis, dtype=float)
    deviation = np.float32(np.where(deviation == 0, 1.0, deviation))
    return ((train - mean) / deviation).astype(np.float32), ((test - mean) / deviation).astype(np.float32)


def _read_own(reference: str) -> Splits:
    """Call the function and convert what it returns. Values are for the caller to check."""
    function = find_function(reference)
    try:
        returned = function()
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise DataError(f"{reference} raised {in_one_line(error)}") from error
    if isinstance(returned, Mapping) and {"train", "test"} <= set(returned):  # as Hugging Face gives them
        returned = (returned["train"], returned["test"])
    try:
        train, test, *rest = returned
        (classes,) = rest or (None,)
        if any(isinstance(part, str | np.ndarray) for part in (train, test)):
            raise ValueError("train or test has no labels")
    except (TypeError, ValueError) as error:
        raise DataError(f"{reference} must return {EXPECTED}, not {type(returned).__name__} ({error})") from error
    return _join(read_part(train, f"{reference}: train"), read_part(test, f"{reference}: test"), reference, classes)


def _join(train: Half, test: Half, whose: str, classes: Any = None) -> Splits:
    """Number the classes, and put both parts together. `classes` is their number, or their names."""
    names = train.class_names
    if isinstance(classes, tuple | list) and all(isinstance(name, str) for name in classes):
        names, classes = tuple(classes), None
    labels, tested, names = number_labels(train.labels, test.labels, names, whose)
    number = len(names) or int(labels.max(initial=-1)) + 1
    if classes is not None:
        number = _count(classes, whose)
        names = names if len(names) == number else ()
    notes = tuple(dict.fromkeys((*train.notes, *test.notes, *_tell_names(names))))
    return Splits(Dataset(train.inputs, labels), Dataset(test.inputs, tested), number, names, notes=notes)


def _tell_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """A note with the number of each class."""
    return (f"classes: {', '.join(f'{place} {name}' for place, name in enumerate(names))}",) if names else ()


def _count(classes: Any, reference: str) -> int:
    try:
        return operator.index(classes)
    except TypeError as error:
        raise DataError(f"{reference}: the number of classes is {classes!r}, not an integer") from error
