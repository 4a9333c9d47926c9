"""The demo on the terminal."""

import statistics
from collections.abc import Sequence

import numpy as np
from rich.table import Table

from repshare.cli.terminal import make_table, traffic
from repshare.party.controls import ALONE, SHORT
from repshare.records import Line
from repshare_lab.cli.demo.collaboration import SAMPLES, Collaboration, network_of
from repshare_lab.results.terminal import CURVE_WIDTH, curve

HEADS = "<party|<network|<has only|alone|alone,\nshort|RS|CS|<CS by round"
METHODS = (ALONE, SHORT, "RS", "CS")  # as in the table's columns


def progress_table(demo: Collaboration, title: str, *, ended: bool = False) -> Table:
    """Return a row for each party, and the mean of all at the end."""
    table, columns = make_table(HEADS, title=title), dict[str, list[float]]()
    for name, (_, labels) in demo.data.items():
        lines = demo.lines(name)
        for method in METHODS:
            columns.setdefault(method, []).append(_accuracy(lines[method]))
        shown = [f"{columns[method][-1]:.1f}" if lines[method] else "–" for method in METHODS]
        classes = " ".join(map(str, np.unique(labels)))
        table.add_row(f"[bold]{name}[/]", network_of(name), classes, *shown, _course(lines["CS"]))
    if ended:
        table.add_section()
        table.add_row("mean", "", "", *(f"[bold]{statistics.fmean(columns[method]):.1f}[/]" for method in METHODS), "")
    return table


def tell_story(demo: Collaboration) -> Table:
    """Show what mallory did and who noticed it, and what was sent."""
    lines = {name: demo.lines(name) for name in demo.names}
    come, gone = demo.acts[0], demo.acts[-1] if len(demo.acts) > 1 else {}
    before = statistics.fmean(_accuracy(lines[name]["CS"][: come[name]]) for name in demo.names)
    disturbed = {name: lines[name]["CS"][come[name] : gone.get(name)] for name in demo.names}
    rounds = [statistics.fmean(_accuracy([line]) for line in at) for at in zip(*disturbed.values(), strict=False)]
    end = statistics.fmean(_accuracy(lines[name]["CS"]) for name in demo.names)
    rows = {
        "mallory": f"came with {len(demo.names) * SAMPLES} images of white noise, as many as all others have",
        "mean accuracy": f"{before:.1f} before; {min(rounds):.1f}, then {rounds[-1]:.1f} with it",
        "marked by": "nobody: the relay finds nothing unusual, and mallory is still there",
    }
    if demo.noticed:
        rows["mean accuracy"] += f"; {end:.1f} without it again"
        rows["marked by"] = (
            f"the relay after {demo.noticed:.1f} s: wrong {demo.strangeness:.0f} times as often as usual"
        )
        rows["removed by"] = f"the operator: repshare {' '.join(demo.removal)}"
    rows["bytes"] = "; ".join(_tell_traffic(method, lines[demo.names[0]][method]) for method in demo.tasks)
    table = Table.grid(padding=(0, 2))
    for name, text in rows.items():
        table.add_row(f"[bold]{name}[/]", text)
    return table


def _course(lines: Sequence[Line]) -> str:
    """Return the accuracy over the rounds as a row of blocks, each the lowest of a few rounds."""
    size = -(-len(lines) // CURVE_WIDTH) or 1
    blocks = (lines[at : at + size] for at in range(0, len(lines), size))
    return curve([min(block, key=lambda line: line["test_accuracy"]) for block in blocks])


def _tell_traffic(method: str, lines: Sequence[Line]) -> str:
    up, down = (traffic(sum(line[f"bytes_{way}"] for line in lines)) for way in ("up", "down"))
    return f"{method} {up} up, {down} down (rounds: {len(lines)})"


def _accuracy(lines: Sequence[Line]) -> float:
    """Return the last test accuracy in percent."""
    return 100 * float(lines[-1]["test_accuracy"] or 0.0) if lines else 0.0
