"""The demo on the terminal."""

import statistics
from collections.abc import Sequence

from rich.table import Table

from repshare.cli.demo.scene import Cast, Rounds
from repshare.results.records import Line
from repshare.results.terminal import CURVE_WIDTH, curve, make_table, traffic


def live_table(rounds: Sequence[Rounds], cast: Cast) -> Table:
    """Show everyone's progress: a row for each client, as wide from the beginning as it will be."""
    title = f"{cast.clients} clients learn from {cast.samples} images of {cast.dataset} each: accuracy now [%]"
    table = make_table("<client|<network|round|alone|together|<by round|up|down", title=title)
    for each in rounds:
        here = len(each.together)
        state = f"{here}/{cast.rounds}" if here else "–"
        style = "yellow" if here and each.together[-1]["trouble"] else ""
        now = (f"{last(lines):.1f}" if lines else "–" for lines in (each.alone, each.together))
        shown, up, down = _traffic(each)
        sized = f"{shown:<{CURVE_WIDTH}}", f"{up:>6}", f"{down:>6}"
        table.add_row(f"[bold]{each.name}[/]", each.model, f"{state:>7}", *now, *sized, style=style)
    return table


def final_table(rounds: Sequence[Rounds], cast: Cast) -> Table:
    """Return a table of the accuracy alone and together, after the last round."""
    title = f"{cast.dataset}, {cast.samples} images each, {cast.rounds} rounds: test accuracy at the end [%]"
    table = make_table("<client|<network|alone|together|gain|<by round|up|down", title=title)
    for each in rounds:
        _add_row(table, f"[bold]{each.name}[/]", each.model, last(each.alone), last(each.together), _traffic(each))
    alone, together = (statistics.fmean(last(getattr(each, way)) for each in rounds) for way in ("alone", "together"))
    table.add_section()
    _add_row(table, "mean", "", alone, together, ("", "", ""))
    return table


def last(lines: Sequence[Line]) -> float:
    """Return the last test accuracy in percent."""
    return 100 * float(next((line["test_accuracy"] for line in reversed(lines) if line["test_accuracy"]), 0.0))


def _add_row(table: Table, name: str, model: str, alone: float, together: float, rest: Sequence[str]) -> None:
    gain = together - alone
    colour = "green" if gain > 0 else "red"
    table.add_row(name, model, f"{alone:.2f}", f"{together:.2f}", f"[{colour}]{gain:+.2f}[/]", *rest)


def _traffic(each: Rounds) -> tuple[str, str, str]:
    up, down = (traffic(sum(line[way] for line in each.together)) for way in ("bytes_up", "bytes_down"))
    return curve(each.together), up, down
