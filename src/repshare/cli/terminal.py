"""Output on the terminal: lines and tables."""

import math
import time
from collections.abc import Callable, Iterable, Sequence

from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from repshare.imports import visible

SLOW_SECONDS = 2.0  # from which on it is worth a line


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


def watch_mapping(console: Console) -> Callable[[int, int], None]:
    """A progress bar of samples that a backbone maps, with their speed and the time left; and a line of the whole."""
    bar, started = Progress(console=console, transient=True), [0.0]

    def watch(done: int, total: int) -> None:
        if not bar.live.is_started:
            started[0] = time.monotonic()
            bar.start()
            bar.add_task("mapping samples", total=total)
        seconds = time.monotonic() - started[0]
        told = f"{done / seconds:,.0f} samples/s" if seconds else ""
        bar.update(bar.task_ids[-1], completed=done, description=f"mapping samples, {told}")
        if done == total:
            bar.stop()
            bar.remove_task(bar.task_ids[-1])
            if seconds > SLOW_SECONDS:
                say(console, f"{total:,} samples were mapped in {seconds:,.0f} seconds: {told}")

    return watch
