"""Output on the terminal: lines and tables."""

import math
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from repshare.imports import visible


def say(console: Console, text: str, style: str = "") -> None:
    """Print a line on the terminal, as it is."""
    console.print(visible(text), style=style, highlight=False, markup=False, soft_wrap=True)


def make_table(heads: str, rows: Iterable[Sequence[str]] = (), title: str = "", caption: str = "") -> Table:
    """A table with these headings, divided by |. A column of words begins with <, the others are of numbers."""
    table = Table(
        title=title or None, caption=caption or None, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD
    )
    for head in heads.split("|"):
        table.add_column(head.removeprefix("<"), justify="left" if head.startswith("<") else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def traffic(bytes_: float) -> str:
    """Bytes in a unit that suits them."""
    if bytes_ == 0:
        return "–"
    power = min(int(math.log10(max(bytes_, 1)) // 3), 3)
    return f"{bytes_ / 1000**power:.3g} {('B', 'kB', 'MB', 'GB')[power]}"
