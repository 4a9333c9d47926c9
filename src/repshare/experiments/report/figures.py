"""Runs -> figures, as plotly's JavaScript takes them."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from repshare.experiments.report.reading import Recorded
from repshare.results.plots import COLOURS, NUMBERED_CELLS
from repshare.results.records import Line

Figure = dict[str, Any]
INK = "@ink"  # whatever colour text has: black on paper, white at night
OTHERS = (
    "#8C6BB1",
    "#66A61E",
    "#A6761D",
    "#F0E442",
    "#CC79A7",
    "#56B4E9",
)  # for names that have no colour of their own
DASHES = {"CL": "dot", "IL": "dash", "FL": "dashdot", "FD": "longdash"}
MEASURES = {  # besides test accuracy
    "train_accuracy": "accuracy on own training samples [%]",
    "ce": "cross-entropy",
    "kd": "distillation loss, before λ",
    "disc": "discrimination loss, before λ",
    "bound": "bound on mutual information [nats]",
}
Points = Mapping[int, Sequence[float]]  # values by round


def curves(run: Recorded, measure: str, title: str) -> Figure | None:
    """A measure by round: the mean over clients and seeds, shaded from the least to the most. None if nobody has it."""
    traces: list[Figure] = []
    for method, points in _by_method(run.lines, measure).items():
        traces += _band(method, points, colour_of(method, run))
    if not traces:
        return None
    return _figure(traces, "communication round", title)


def traffic(run: Recorded) -> Figure | None:
    """Test accuracy by what a client has sent and received until then."""
    traces = []
    for method, accuracies in _by_method(run.lines, "test_accuracy").items():
        seen, moved = 0.0, dict[int, float]()
        for number, costs in sorted(
            _collect(run.lines, method, lambda line: line["bytes_up"] + line["bytes_down"]).items()
        ):
            moved[number] = seen = seen + statistics.fmean(costs)
        if seen:
            places = [number for number in sorted(accuracies) if moved.get(number)]
            means = [statistics.fmean(accuracies[number]) for number in places]
            traces.append(_line(method, [moved[number] / 1000 for number in places], means, colour_of(method, run)))
    if not traces:
        return None
    figure = _figure(traces, "sent and received so far, a client [kB]", "test accuracy [%]")
    steps = [step * 10**power for power in range(-3, 9) for step in (1, 2, 5)]
    figure["layout"]["xaxis"] |= {"type": "log", "tickvals": steps, "ticktext": [f"{step:,g}" for step in steps]}
    return figure


def sizes(run: Recorded) -> Figure:
    """A table's rows by the number of clients: the mean over seeds, ± their standard deviation."""
    traces = []
    for place, row in enumerate(dict.fromkeys(line["row"] for line in run.lines)):
        cells = defaultdict[int, list[float]](list)
        for line in run.lines:
            if line["row"] == row:
                cells[line["clients"]].append(line["accuracy"])
        spread = [statistics.stdev(own) if len(own) > 1 else 0.0 for _, own in sorted(cells.items())]
        colour = COLOURS.get(row.split()[0], OTHERS[place % len(OTHERS)])
        trace = _line(row, sorted(cells), [statistics.fmean(own) for _, own in sorted(cells.items())], _night(colour))
        if "as published" in row:
            trace["line"]["dash"] = "dot"
        traces.append({**trace, "mode": "lines+markers", "error_y": {"type": "data", "array": spread, "thickness": 1}})
    figure = _figure(traces, "clients", "test accuracy [%]")
    figure["layout"]["xaxis"] |= {"tickvals": sorted({line["clients"] for line in run.lines}), "type": "log"}
    return figure


def partition(counts: Sequence[Sequence[int]]) -> Figure:
    """Who has what: a cell for each client and class."""
    cells = len(counts) * len(counts[0])
    heat = {
        "type": "heatmap", "z": counts, "x": list(range(len(counts[0]))), "y": list(range(1, len(counts) + 1)),
        "colorscale": "@shades", "showscale": cells > NUMBERED_CELLS, "xgap": 2, "ygap": 2 if len(counts) <= 60 else 0,
        "zmin": 0, "hovertemplate": "client %{y}, class %{x}: %{z} samples<extra></extra>",
        **({"texttemplate": "%{z}"} if cells <= NUMBERED_CELLS else {}),
    }  # fmt: skip
    figure = _figure([heat], "class", "client")
    figure["height"] = min(120 + 30 * len(counts), 640)
    figure["layout"]["yaxis"] |= {"autorange": "reversed", "showgrid": False, "dtick": 1 if len(counts) <= 40 else None}
    figure["layout"]["xaxis"] |= {"showgrid": False, "dtick": 1 if len(counts[0]) <= 40 else None}
    return figure


def plain(text: str) -> str:
    """Text that plotly shows as it stands: it would take some tags in it for its own."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def colour_of(method: str, run: Recorded) -> str:
    """A method has the same colour in every figure."""
    others = [name for name in dict.fromkeys(line["method"] for line in run.lines) if name not in COLOURS]
    return _night(COLOURS[method] if method in COLOURS else OTHERS[others.index(method) % len(OTHERS)])


def _night(colour: str) -> str:
    return INK if colour == "#000000" else colour


def _by_method(lines: Sequence[Line], measure: str) -> dict[str, Points]:
    scale = 100 if measure.endswith("accuracy") else 1
    methods = dict.fromkeys(str(line["method"]) for line in lines)
    found = {name: _collect(lines, name, lambda line: line.get(measure), scale) for name in methods}
    return {name: points for name, points in found.items() if points}


def _collect(lines: Iterable[Line], method: str, value: Any, scale: float = 1) -> dict[int, list[float]]:
    by_round = defaultdict[int, list[float]](list)
    for line in lines:
        if line["method"] == method and isinstance(found := value(line), int | float):
            by_round[line["round"]].append(scale * found)
    return dict(by_round)


def _band(method: str, points: Points, colour: str) -> list[Figure]:
    rounds = sorted(points)
    low, high = [min(points[number]) for number in rounds], [max(points[number]) for number in rounds]
    around = {
        "x": [*rounds, *reversed(rounds)], "y": _round([*high, *reversed(low)]), "fill": "toself",
        "fillcolor": colour, "opacity": 0.13, "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False,
        "legendgroup": plain(method), "mode": "lines",
    }  # fmt: skip
    shaded = [around] if low != high else []
    return [*shaded, _line(method, rounds, [statistics.fmean(points[number]) for number in rounds], colour)]


def _line(name: str, x: Sequence[float], y: Sequence[float], colour: str) -> Figure:
    return {
        "x": _round(x), "y": _round(y), "name": plain(name), "legendgroup": plain(name),
        "mode": "lines" if len(x) > 1 else "markers",
        "line": {"color": colour, "width": 2.2, "dash": DASHES.get(name, "solid")},
        "marker": {"color": colour, "size": 7}, "hovertemplate": "%{y:.2f}",
    }  # fmt: skip


def _round(numbers: Sequence[float]) -> list[float]:
    return [round(number, 4) for number in numbers]


def _figure(traces: Sequence[Figure], x: str, y: str) -> Figure:
    return {"data": traces, "height": 380, "layout": {"xaxis": {"title": {"text": x}}, "yaxis": {"title": {"text": y}}}}
