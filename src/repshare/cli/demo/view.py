"""The demo on the terminal, and its outcome as JSON."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from repshare.cli.demo.collaboration import PartyProgress, Scene
from repshare.cli.demo.options import DemoOptions
from repshare.results.records import Line
from repshare.results.terminal import CURVE_WIDTH, curve, make_table, traffic

HEADS = "<party|<network|<has only|alone|alone,\nshort|RS|CS|<CS by round"
COLUMNS = {"alone": "IL", "alone_short": "IL short", "RS": "RS", "CS": "CS"}


def live_table(progress: Scene) -> Table:
    """Show everyone's progress: a row for each party, yellow where it doubts the others or has trouble."""
    done = max((len(party.lines["CS"]) for party in progress.parties), default=0)
    told = f"round {done} of CS" if done else f"round {max(len(party.lines['RS']) for party in progress.parties)}"
    table = make_table(HEADS, title=f"{progress.act}; {told}: accuracy now [%]")
    for party in progress.parties:
        doubts = bool(party.lines["CS"] and party.lines["CS"][-1]["doubt"])
        troubled = any(lines and lines[-1]["trouble"] for lines in party.lines.values())
        table.add_row(
            *_name(party), *_accuracies(party), _course(party, progress), style="yellow" if doubts or troubled else ""
        )
    return table


def final_table(progress: Scene, options: DemoOptions) -> Table:
    """Return a table of the accuracies after the last round."""
    title = f"{options.dataset}, {options.samples} images each: test accuracy on all classes at the end [%]"
    table = make_table(HEADS, title=title)
    for party in progress.parties:
        table.add_row(*_name(party), *_accuracies(party), _course(party, progress))
    table.add_section()
    outcome = summarise(progress, options)
    table.add_row("mean", "", "", *(f"[bold]{outcome[column]:.1f}[/]" for column in COLUMNS), "")
    return table


def tell_story(progress: Scene, options: DemoOptions, removal: Sequence[str]) -> Table:
    """Show what mallory did and who noticed it, and what was sent."""
    outcome = summarise(progress, options)
    told, first = outcome["mallory"], outcome["parties"][0]
    doubters, before = (", ".join(told[when]) or "nobody" for when in ("doubted_by", "doubted_before"))
    after = f"; {outcome['CS']:.1f} without it again" if told["removed"] else ""
    rows = {
        "mallory": f"came to CS with {told['images']} images of white noise, as many as all others have",
        "mean accuracy": f"{told['before']:.1f} before; {told['worst']:.1f}, then {told['with']:.1f} with it{after}",
        "doubted by": f"{doubters} (in the round before it came: {before})",
        "": told["example"],
        "marked by": "nobody: the relay finds nothing unusual, and mallory is still there",
        "removed by": "",
        "bytes": "; ".join(_tell_traffic(method, first) for method in ("RS", "CS")),
    }
    if told["marked"]:
        times = f"wrong about its own images {told['strangeness']:.0f} times the usual"
        rows["marked by"] = f"the relay after {told['seconds']:.1f} s: {times}"
        rows["removed by"] = f"the operator: repshare {' '.join(removal)}"
    table = Table.grid(padding=(0, 2))
    for name, text in rows.items():
        if text:
            table.add_row(f"[bold]{name}[/]", text)
    return table


def summarise(progress: Scene, options: DemoOptions) -> dict[str, Any]:
    """Return the outcome: of each party the accuracies in percent and the traffic, the means, and mallory's story."""
    parties: list[dict[str, Any]] = [
        {
            "name": party.name,
            "network": party.network,
            "classes": party.classes,
            **{column: _accuracy(party.lines[method]) for column, method in COLUMNS.items()},
            "rounds": {method: len(party.lines[method]) for method in ("RS", "CS")},
            "bytes": {
                method: {way: sum(line[f"bytes_{way}"] for line in party.lines[method]) for way in ("up", "down")}
                for method in ("RS", "CS")
            },
        }
        for party in progress.parties
    ]
    means = {column: statistics.fmean(party[column] for party in parties) for column in COLUMNS}
    return {**means, "parties": parties, "mallory": _judge(progress, options), "config": asdict(options)}


def _tell_traffic(method: str, party: Mapping[str, Any]) -> str:
    up, down = (traffic(party["bytes"][method][way]) for way in ("up", "down"))
    return f"{method} {up} up, {down} down (rounds: {party['rounds'][method]})"


def _judge(progress: Scene, options: DemoOptions) -> dict[str, Any]:
    """Return what mallory did to the others' accuracy, and who noticed."""
    together = {party.name: party.lines["CS"][: party.joined] for party in progress.parties}
    disturbed = {party.name: party.lines["CS"][party.joined : party.removed] for party in progress.parties}
    doubts = [line["doubt"] for lines in disturbed.values() for line in lines if line["doubt"]]
    rounds = [statistics.fmean(_accuracy([line]) for line in at) for at in zip(*disturbed.values(), strict=False)]
    return {
        "images": options.clients * options.samples,
        "before": statistics.fmean(map(_accuracy, together.values())),
        "worst": min(rounds),
        "with": rounds[-1],
        "doubted_before": [name for name, lines in together.items() if lines and lines[-1]["doubt"]],
        "doubted_by": [name for name, lines in disturbed.items() if any(line["doubt"] for line in lines)],
        "example": doubts[0] if doubts else None,
        "marked": progress.strangeness is not None,
        "strangeness": progress.strangeness,
        "seconds": progress.noticed,
        "removed": progress.removed,
    }


def _name(party: PartyProgress) -> tuple[str, str, str]:
    return f"[bold]{party.name}[/]", party.network, " ".join(map(str, party.classes))


def _course(party: PartyProgress, progress: Scene) -> str:
    """Return the accuracy over the rounds of CS as a row of blocks, each the lowest of a few rounds."""
    lines, longest = party.lines["CS"], max(len(each.lines["CS"]) for each in progress.parties)
    size = max(1, -(-longest // CURVE_WIDTH))
    lowest = (min(lines[at : at + size], key=lambda line: _accuracy([line])) for at in range(0, len(lines), size))
    return curve(list(lowest))


def _accuracies(party: PartyProgress) -> list[str]:
    return [f"{_accuracy(lines):.1f}" if (lines := party.lines[method]) else "–" for method in COLUMNS.values()]


def _accuracy(lines: Sequence[Line]) -> float:
    """Return the last test accuracy in percent."""
    return 100 * float(next((line["test_accuracy"] for line in reversed(lines) if line["test_accuracy"]), 0.0))
