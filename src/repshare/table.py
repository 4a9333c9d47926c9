"""A party's table, read by the columns that clients agree on: numbers for a space, and what is found on the way.

What would teach others nonsense is refused, with its place. What may be right is told: rows that are left out, missing
values, and columns whose values look as if they were in another unit.
"""

import difflib
import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.errors import DataError
from repshare.sharing.columns import Cells, Column, Frame, as_number, as_text, bound_inputs, is_missing, read_cells
from repshare.sharing.representations import Floats, Integers

ROUNDED = 1e-6  # fp32 may add this share of a range to it
NARROW = 1 / 20  # of a range: values that use less of it may be in another unit
END, MOST = 1 / 10, 0.95  # so many values in so little of a range may be in another unit
FEWEST = 8  # values that tell anything of a column


class Found(NamedTuple):
    """What was found in a table."""

    place: str
    """The file."""
    rows: int
    used: int
    left_out: dict[str, int]
    """The rows that are not used, by the reason."""
    missing: dict[str, int]
    """The missing values, by their column."""
    filled: dict[str, str]
    """What stands for them, as agreed on, by their column."""
    classes: dict[str, int]
    """The rows that are used, by class; empty where nobody asked for classes."""
    ignored: tuple[str, ...]
    """The columns that are not for learning."""
    doubts: tuple[str, ...]
    """Columns that may be in another unit."""

    def lines(self) -> list[str]:
        """Say it, doubts apart."""
        told = [f"{self.place}: {self.used:,} of {self.rows:,} rows are used"]
        told[0] += "".join(f"; {count:,} left out: {why}" for why, count in self.left_out.items())
        if self.missing:
            each = (f"{name} {count:,} ({self.filled.get(name, 'left out')})" for name, count in self.missing.items())
            told.append(f"missing values: {', '.join(each)}")
        if self.classes:
            told.append(f"classes: {', '.join(f'{name} {count:,}' for name, count in self.classes.items())}")
        return told + ([f"columns not for learning: {', '.join(self.ignored)}"] if self.ignored else [])


class Table(NamedTuple):
    """The rows of a table as numbers, by the agreed columns."""

    inputs: Floats  # (n, k): a number a column, or 0 and 1 for each of its categories
    labels: Integers  # (n,): 0 where nobody asked for classes
    rows: Integers  # (n,): which rows of the table these are, from 0
    columns: tuple[Column, ...]
    found: Found


def is_table(given: Any) -> bool:
    """Whether these data have names for their columns: the path of a file, or a DataFrame."""
    return isinstance(given, str | Path | Frame)


def read_table(
    given: str | Path | Frame,
    columns: Sequence[Column],
    label: str | None = None,
    *,
    class_names: Sequence[str] = (),
    ignored: Collection[str] | None = (),
) -> Table:
    """Read a .csv file or a DataFrame by the names of its columns, in whatever order they are.

    Args:
        given: The path of the file, or the DataFrame.
        columns: The columns agreed on.
        label: The column of the class. Default: the classes are not asked for.
        class_names: The names of the classes. Without any, a class is a number from 0.
        ignored: Columns that are not for learning. None: all that are not agreed on.
    """
    cells = read_cells(given)
    ignored = _match(cells, [each.name for each in columns], label, ignored)
    reasons: list[str] = [""] * len(next(iter(cells.columns.values()), ()))
    if not reasons:
        raise DataError(f"{cells.place} has a head, and no row")
    missing, blocks, doubts = dict[str, int](), list[NDArray[np.float32]](), list[str]()
    for column in columns:
        block, empty = _read(cells, column)
        if len(empty):
            missing[column.name] = len(empty)
        if column.missing is None:
            for row in empty:
                reasons[row] = reasons[row] or f"no {column.name}"
        blocks.append(block)
        doubts += _doubt(column, np.delete(block[:, 0], empty))
    labels = np.zeros(len(reasons), np.int64)
    for row, text in enumerate([] if label is None else cells.columns[label]):
        if is_missing(text) and as_text(text) not in class_names:
            reasons[row] = reasons[row] or f"no {label}"
        else:
            labels[row] = _number(text, class_names, f"{_where(cells, row)}, column {label}")
    kept = np.flatnonzero([not reason for reason in reasons])
    if not len(kept):
        raise DataError(f"{cells.place}: no row is left ({', '.join(sorted({*reasons}))})")
    filled = {
        each.name: f"as {as_text(each.missing)}"
        for each in columns
        if each.name in missing and each.missing is not None
    }
    counts = Counter(labels[kept].tolist() if label is not None else ())
    names = class_names or list(map(str, range(max(counts, default=-1) + 1)))
    found = Found(
        cells.place,
        len(reasons),
        len(kept),
        dict(Counter(filter(None, reasons))),
        missing,
        filled,
        {name: counts[place] for place, name in enumerate(names)} if counts else {},
        ignored,
        tuple(doubts),
    )
    return Table(np.concatenate(blocks, axis=1)[kept], labels[kept], kept, tuple(columns), found)


def check_rows(rows: Any, columns: Sequence[Column]) -> None:
    """Raise DataError unless these numbers (n, k), which have no names, are in the ranges of the columns.

    Args:
        rows: As `read_table` makes them.
        columns: The columns agreed on.
    """
    low, high = (np.array(each) for each in bound_inputs(columns))
    given = np.asarray(rows, np.float64).reshape(len(rows), -1)
    if given.shape[1] != len(low):
        raise DataError(f"a row has {given.shape[1]} numbers; the task's columns make {len(low)}")
    outside = ~((given >= low - ROUNDED * (high - low)) & (given <= high + ROUNDED * (high - low)))
    if outside.any():
        row, place = (int(each[0]) for each in outside.nonzero())
        raise DataError(
            f"row {row} has {given[row, place]:g} as number {place}, from {low[place]:g} to {high[place]:g} is agreed "
            "on: other units, another order or scale? A table with names is read by them"
        )


def _match(cells: Cells, names: Sequence[str], label: str | None, ignored: Collection[str] | None) -> tuple[str, ...]:
    """Return the columns that are not for learning. Refuses a table that lacks a column, or has an unknown one."""
    there, wanted = list(cells.columns), [*names, *([] if label is None else [label])]
    if label in names:
        raise DataError(f"the label {label!r} is one of the task's columns: classes are a column of their own")
    if absent := [name for name in wanted if name not in there]:
        near = difflib.get_close_matches(absent[0], set(there) - {*wanted}, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(there)[:200]}"
        more = f", and {len(absent) - 1} more" if len(absent) > 1 else ""
        raise DataError(f"{cells.place} has no column {absent[0]!r}{more}, which is agreed on{hint}")
    beside = [name for name in there if name not in wanted]
    if unknown := [name for name in beside if ignored is not None and name not in ignored]:
        raise DataError(
            f"{cells.place} has a column {unknown[0]!r} that is not agreed on: take it out, or name it in "
            "Party(ignore=…)"
        )
    return tuple(beside)


def _where(cells: Cells, row: int) -> str:
    return f"{cells.place}, row {cells.first + row}"


def _read(cells: Cells, column: Column) -> tuple[Floats, list[int]]:
    """Return a column as numbers (n, 1), or 0 and 1 for each category (n, categories), and the rows without a value."""
    given, place = cells.columns[column.name], {name: number for number, name in enumerate(column.categories)}
    values, empty = np.zeros(len(given)), []
    for row, cell in enumerate(given):
        if is_missing(cell) and as_text(cell) not in place:
            empty.append(row)
            cell = column.missing
            if cell is None:
                continue
        number = place.get(as_text(cell)) if place else as_number(cell)
        if number is None:
            what = "one of its categories" if place else "a number"
            raise DataError(
                f"{_where(cells, row)}, column {column.name}: {as_text(cell)[:40]!r} is not {what} ({column.values})"
            )
        values[row] = number
    if place:
        return np.eye(len(place), dtype=np.float32)[values.astype(int)], empty
    _check_range(cells, column, values, empty)
    return values[:, None].astype(np.float32), empty


def _check_range(cells: Cells, column: Column, values: NDArray[np.float64], empty: Sequence[int]) -> None:
    low, high = column.least or 0.0, column.largest or 0.0
    room = ROUNDED * (high - low)
    outside = ~((values >= low - room) & (values <= high + room))
    outside[list(empty)] = False
    if outside.any():
        row = int(outside.argmax())
        raise DataError(
            f"{_where(cells, row)}, column {column.name}: {values[row]:g} is not {column.values}, as agreed on "
            f"({int(outside.sum()):,} of {len(values):,} values are not). Another unit, or scaled here?"
        )


def _doubt(column: Column, values: NDArray[np.float32]) -> Iterator[str]:
    """Say if the values of a column look as if they were in another unit."""
    if column.categories or len(values) < FEWEST:
        return
    low, high = column.least or 0.0, column.largest or 0.0
    width, least, largest = high - low, float(values.min()), float(values.max())
    few, most = (float(each) for each in np.quantile(values, [1 - MOST, MOST]))
    told = f"column {column.name} is {least:g} to {largest:g} here, and agreed on {column.values}"
    unit = f"another unit in place of {column.unit}" if column.unit else "another unit"
    if largest - least < NARROW * width:
        yield f"{told}: it uses {(largest - least) / width:.1%} of the range: {unit}?"
    elif most < low + END * width or few > high - END * width:
        end = "lowest" if most < low + END * width else "highest"
        yield f"{told}: {MOST:.0%} are in the {end} tenth: {unit}?"


def _number(cell: Any, class_names: Sequence[str], where: str) -> int:
    """Return the place of a class among the names, or its number where there are none."""
    text = as_text(cell)
    if class_names:
        if text not in class_names:
            raise DataError(f"{where}: {text[:40]!r} is none of the classes {', '.join(class_names)[:200]}")
        return list(class_names).index(text)
    number = as_number(text)
    if number is None or not 0 <= number < math.inf or number % 1:
        raise DataError(f"{where}: {text[:40]!r} is no class: the task names none, so that classes are 0, 1, 2 …")
    return int(number)
