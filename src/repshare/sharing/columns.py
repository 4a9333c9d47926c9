"""The columns of a table as clients agree on them: name, unit, range or categories, and what a missing value means.

They are a part of the agreement, so that a table is read by its names, and scaled by bounds that are nobody's data.
"""

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from repshare.errors import ConfigError
from repshare.sharing.task import STEERING

MISSING = frozenset(("", "na", "n/a", "nan", "none", "null", "<na>", "nat", "?"))  # texts of a cell without a value
DELIMITERS = ",;\t"
DIVIDER = "|"  # of categories in a file


@runtime_checkable
class Frame(Protocol):
    """A table by columns, as pandas and others have it."""

    columns: Any

    def __getitem__(self, name: Any) -> Iterable[Any]:
        """The cells of a column."""

    def __len__(self) -> int:
        """The number of rows."""


class Column(NamedTuple):
    """A column of a table: numbers of a range, or one of some categories."""

    name: str
    unit: str = ""
    least: float | None = None
    largest: float | None = None
    categories: tuple[str, ...] = ()
    missing: float | str | None = None
    """What stands for a missing value. None: its row is left out."""

    def __str__(self) -> str:
        """What is in it, and what stands for a missing value."""
        return self.values if self.missing is None else f"{self.values}; missing: {as_text(self.missing)}"

    @property
    def values(self) -> str:
        """The values that are in it, in words."""
        if self.categories:
            return f"one of {', '.join(self.categories)}"
        return f"from {self.least:g} to {self.largest:g} {self.unit}".rstrip()

    def describe(self) -> dict[str, Any]:
        """What an agreement says of it, in JSON's types."""
        told = {**self._asdict(), "categories": list(self.categories)}
        return {key: value for key, value in told.items() if value not in (None, "", [])}


class Cells(NamedTuple):
    """The cells of a table, by the names in its head."""

    place: str
    columns: dict[str, list[Any]]
    first: int
    """The number of its first row, as its owner counts: in a file the head is row 1."""


def read_columns(given: "str | Path | Frame | Iterable[Mapping[str, Any] | Column]") -> tuple[Column, ...]:
    """The columns that a .csv file, a DataFrame or a list describes, a row or an entry for each.

    Args:
        given: Their name, unit, least and largest value or categories (in a file divided by |), and missing, what
            stands for a missing value; where nothing does, rows without one are left out.
    """
    if isinstance(given, str | Path | Frame):
        cells = read_cells(given)
        keys = list(cells.columns)
        records: list[Any] = [dict(zip(keys, row, strict=True)) for row in zip(*cells.columns.values(), strict=True)]
    else:
        records = [each._asdict() if isinstance(each, Column) else each for each in given]
    columns = tuple(map(_read_column, records))
    if not columns:
        raise ConfigError("there is no column: name one in each row")
    if twice := [name for name, count in Counter(each.name for each in columns).items() if count > 1]:
        raise ConfigError(f"two columns have the name {twice[0]!r}")
    return columns


def read_cells(given: "str | Path | Frame") -> Cells:
    """The cells of a .csv file (divided by commas, semicolons or tabs) or a DataFrame."""
    if isinstance(given, Frame):
        names = [str(name) for name in given.columns]
        _check_head(names, "the table")
        return Cells("the table", {str(name): list(given[name]) for name in given.columns}, 0)
    path = Path(given)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            head = file.readline()
            file.seek(0)
            rows = [row for row in csv.reader(file, delimiter=max(DELIMITERS, key=head.count)) if row]
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not written in UTF-8: save it so") from error
    except (OSError, csv.Error) as error:
        raise ConfigError(f"{path} cannot be read as .csv: {getattr(error, 'strerror', None) or error}") from error
    if not rows:
        raise ConfigError(f"{path} is empty: its first row must name the columns")
    names = [name.strip() for name in rows[0]]
    _check_head(names, str(path))
    if short := [number for number, row in enumerate(rows[1:], 2) if len(row) != len(names)]:
        raise ConfigError(f"{path}, row {short[0]}: {len(rows[short[0] - 1])} cells, but the head has {len(names)}")
    return Cells(str(path), {name: [row[place] for row in rows[1:]] for place, name in enumerate(names)}, 2)


def _check_head(names: Sequence[str], place: str) -> None:
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ConfigError(f"{place} has two columns {twice[0]!r}")


def _read_column(record: Any) -> Column:
    if not isinstance(record, Mapping) or not {"name"} <= record.keys() <= {*Column._fields}:
        named = ", ".join(map(str, record)) if isinstance(record, Mapping) else str(record)
        raise ConfigError(f"a column is described by {', '.join(Column._fields)}, not by {named[:80]}")
    told = {key: value for key, value in record.items() if not is_missing(value)}
    name, unit = as_text(told.get("name", "")), as_text(told.get("unit", ""))
    given = told.get("categories", ())
    several = given if isinstance(given, list | tuple) else as_text(given).split(DIVIDER)
    categories = tuple(map(as_text, several))
    if not name or any(STEERING.search(text) for text in (name, unit, *categories)):
        raise ConfigError(f"a column needs a name, and words without control characters, not {name[:80]!a}")
    least, largest = (_read_bound(name, key, told.get(key)) for key in ("least", "largest"))
    missing = told.get("missing")
    if categories and (least is not None or largest is not None or len({*categories}) < max(2, len(categories))):
        raise ConfigError(f"column {name} needs a range, or two or more different categories: not both")
    if not categories and (least is None or largest is None or least >= largest):
        raise ConfigError(f"column {name} needs its least and largest value, the first below the second, or categories")
    if missing is not None:
        missing = as_text(missing) if categories else _read_bound(name, "missing", missing)
    column = Column(name, unit, least, largest, categories, missing)
    if missing is not None and missing not in (categories or (missing,)):
        raise ConfigError(f"column {name}: {missing!r} stands for missing values, but is not {column.values}")
    if isinstance(missing, float) and least is not None and largest is not None and not least <= missing <= largest:
        raise ConfigError(f"column {name}: {missing:g} stands for missing values, but is not {column.values}")
    return column


def _read_bound(name: str, key: str, value: Any) -> float | None:
    if value is None:
        return None
    number = as_number(value)
    if number is None or not math.isfinite(number):
        raise ConfigError(f"column {name}: {key} is {as_text(value)[:40]!r}, not a number")
    return number


def is_missing(value: Any) -> bool:
    """Whether a cell has no value: None, NaN, or one of the texts that say so."""
    return not isinstance(value, list | tuple) and as_text(value).lower() in MISSING


def as_text(value: Any) -> str:
    """A cell as text, the same for 2, 2.0 and "2"."""
    is_whole = isinstance(value, float | np.floating) and value.is_integer()
    return str(int(value)) if is_whole else str(value).strip()


def as_number(value: Any) -> float | None:
    """A cell as a number; None: it is none."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def name_inputs(columns: Iterable[Column]) -> list[str]:
    """The meaning of each number of an input: a column, or one of its categories (0 or 1)."""
    return [each for column in columns for each in _name(column)]


def _name(column: Column) -> Iterator[str]:
    if not column.categories:
        yield column.name
    yield from (f"{column.name} = {category}" for category in column.categories)


def bound_inputs(columns: Iterable[Column]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The least and the largest value of each number of an input. Those of a category are 0 and 1."""
    low: list[float] = []
    high: list[float] = []
    for each in columns:
        low += [each.least or 0.0] * max(1, len(each.categories))
        high += [1.0] * len(each.categories) or [each.largest or 0.0]
    return tuple(low), tuple(high)
