"""The demo on the terminal, and its outcome as JSON."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from repshare.cli.demo.collaboration import ClientProgress
from repshare.cli.demo.options import DemoOptions
from repshare.results.records import Line
from repshare.results.terminal import CURVE_WIDTH, curve, make_table, traffic


def live_table(progress: Sequence[ClientProgress], options: DemoOptions) -> Table:
    """Show everyone's progress: a row for each client, as wide from the beginning as it will be."""
    title = f"{options.clients} clients learn from {options.samples} images of {options.dataset} each: accuracy now [%]"
    table = make_table("<client|<network|round|alone|together|<by round|up|down", title=title)
    for each in progress:
        here = len(each.together)
        state = f"{here}/{options.rounds}" if here else "–"
        style = "yellow" if here and each.together[-1]["trouble"] else ""
        now = (f"{_accuracy(lines):.1f}" if lines else "–" for lines in (each.alone, each.together))
        up, down = (f"{traffic(_total(each, way)):>6}" for way in ("bytes_up", "bytes_down"))
        shown = f"{curve(each.together):<{CURVE_WIDTH}}"
        table.add_row(f"[bold]{each.name}[/]", each.model, f"{state:>7}", *now, shown, up, down, style=style)
    return table


def final_table(progress: Sequence[ClientProgress], options: DemoOptions) -> Table:
    """Return a table of the accuracy alone and together, after the last round."""
    title = f"{options.dataset}, {options.samples} images each, {options.rounds} rounds: test accuracy at the end [%]"
    table = make_table("<client|<network|alone|together|gain|<by round|up|down", title=title)
    outcome = summarise(progress, options)
    for each, client in zip(progress, outcome["clients"], strict=True):
        rest = curve(each.together), traffic(client["bytes_up"]), traffic(client["bytes_down"])
        table.add_row(f"[bold]{each.name}[/]", each.model, *_gain(client), *rest)
    table.add_section()
    table.add_row("mean", "", *_gain(outcome), "", "", "")
    return table


def summarise(progress: Sequence[ClientProgress], options: DemoOptions) -> dict[str, Any]:
    """Return the outcome: of each client the accuracies in percent and the traffic, and the mean accuracies."""
    clients: list[dict[str, Any]] = [
        {
            "name": each.name,
            "model": each.model,
            "alone": _accuracy(each.alone),
            "together": _accuracy(each.together),
            "bytes_up": _total(each, "bytes_up"),
            "bytes_down": _total(each, "bytes_down"),
        }
        for each in progress
    ]
    means = {way: statistics.fmean(client[way] for client in clients) for way in ("alone", "together")}
    return {**means, "clients": clients, "config": asdict(options)}


def _accuracy(lines: Sequence[Line]) -> float:
    """Return the last test accuracy in percent."""
    return 100 * float(next((line["test_accuracy"] for line in reversed(lines) if line["test_accuracy"]), 0.0))


def _total(progress: ClientProgress, way: str) -> int:
    return sum(line[way] for line in progress.together)


def _gain(outcome: dict[str, Any]) -> tuple[str, str, str]:
    gain = outcome["together"] - outcome["alone"]
    colour = "green" if gain > 0 else "red"
    return f"{outcome['alone']:.2f}", f"{outcome['together']:.2f}", f"[{colour}]{gain:+.2f}[/]"
