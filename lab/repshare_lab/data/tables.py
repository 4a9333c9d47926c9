"""Tables in CSV files: numeric columns, and one with the classes."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from repshare.errors import DataError
from repshare.sharing.columns import as_number, is_missing, read_cells
from repshare_lab.data.arrays import Half

TESTED = 5  # one in so many samples of each class is a test sample, without a file of test samples
SEED = 0  # of the order of the samples, always the same


class _Table(NamedTuple):
    columns: list[str]  # without the label's
    values: npt.NDArray[np.float32]  # (n, columns)
    labels: npt.NDArray[np.str_]  # (n,)
    label: str  # the name of their column


def read_table(path: Path, label: str | None = None, test: Path | None = None) -> tuple[Half, Half]:
    """Return the training and test samples of a table whose first line names the columns.

    Args:
        path: The file.
        label: The column of the classes. Default: the last one.
        test: A file of test samples, with the same columns. Default: a fifth of each class, always the same.
    """
    table = _read(path, label)
    kinds, count = len(set(table.labels)), len(table.labels)
    if kinds < 2 or (2 < kinds > count / 2 and all(as_number(text) is not None for text in table.labels)):
        raise DataError(
            f"{path.name}: the column {table.label} has {kinds} different values in {count} rows, so it holds no "
            "classes: choose the column that does with --label"
        )
    names = _order(table.labels)
    if test is not None:
        tested = _read(test, label)
        if sorted(tested.columns) != sorted(table.columns):
            apart = sorted(set(tested.columns) ^ set(table.columns))
            raise DataError(f"{path.name} and {test.name} differ in the columns {', '.join(apart)}")
        same = [tested.columns.index(name) for name in table.columns]
        return Half(table.values, table.labels, names), Half(tested.values[:, same], tested.labels)
    order = np.random.RandomState(SEED).permutation(len(table.labels))
    rows = [order[table.labels[order] == name] for name in np.unique(table.labels)]
    tested_rows = {int(row) for own in rows for row in own[: len(own) // TESTED or (len(own) > 1)]}
    is_test = np.array([int(row) in tested_rows for row in order])
    if not is_test.any():
        raise DataError(f"{path.name} has one row of each class: none can be left for a test")
    values, labels = table.values[order], table.labels[order]
    return Half(values[~is_test], labels[~is_test], names), Half(values[is_test], labels[is_test])


def _read(path: Path, label: str | None) -> _Table:
    cells = read_cells(path)
    header, name = list(cells.columns), path.name
    if len(header) < 2 or not cells.columns[header[0]]:
        raise DataError(f"{name} has no table: a line with names of columns, then one line a sample")
    if all(as_number(each) is not None for each in header):
        raise DataError(f"{name} begins with numbers ({', '.join(header[:3])} …): the first line must name columns")
    if label is not None and label not in header:
        raise DataError(f"{name} has no column {label!r}: choose --label from {', '.join(header)}")
    chosen = label or header[-1]
    columns = [each for each in header if each != chosen]
    values = np.stack([_column(cells.columns[each], f"{name}, column {each}", cells.first) for each in columns], axis=1)
    labels = [text.strip() for text in cells.columns[chosen]]
    if "" in labels:
        raise DataError(f"{name}, column {chosen}: row {cells.first + labels.index('')} has no class")
    return _Table(columns, values.astype(np.float32), np.array(labels), chosen)


def _column(texts: Sequence[str], whose: str, first: int) -> npt.NDArray[np.float64]:
    """Return a column as numbers, or raise DataError with the row of the first that is none."""
    numbers = [as_number(text) for text in texts]
    if all(number is None for number in numbers):
        raise DataError(f"{whose} holds no numbers ({texts[0]!r}): encode it as numbers, or choose it with --label")
    for row, (text, number) in enumerate(zip(texts, numbers, strict=True), start=first):
        if is_missing(text):
            raise DataError(f"{whose}: row {row} has no value ({text!r}): fill it in, or leave the row out")
        if number is None or not math.isfinite(number):
            raise DataError(f"{whose}: row {row} has {text!r}, where others have numbers")
    return np.array(numbers, np.float64)


def _order(labels: npt.NDArray[np.str_]) -> tuple[str, ...]:
    """Return the names of the classes: numbers by their size, then words by the alphabet."""
    numbers = {name: as_number(name) for name in set(labels.tolist())}
    return tuple(sorted(numbers, key=lambda name: (numbers[name] is None, numbers[name] or 0.0, name)))
