"""Runs -> the HTML file. Whatever comes from a run is escaped here or is a picture, and no script may run in it."""

import base64
import html
import io
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import matplotlib

from repshare import __version__
from repshare.experiments.report.reading import Recorded
from repshare.methods import METHODS
from repshare.results.plots import draw_methods, panels, tidy
from repshare.results.records import Line, Summary, plus_minus, summarise
from repshare.results.terminal import traffic as in_units

STATIC = Path(__file__).parent / "static"
MOST_CLIENTS = 40  # rows that one still reads
MEASURES = {  # besides test accuracy
    "train_accuracy": "accuracy on own training samples [%]",
    "ce": "cross-entropy",
    "kd": "distillation loss, before λ",
    "disc": "discrimination loss, before λ",
    "bound": "bound on mutual information [nats]",
}
MEANT = (
    "; ± clients: standard deviation over clients; a client and round: bytes sent and received; compute: seconds of "
    "one core, all clients together."
)
SHADED = "Lines are means over clients and seeds, shaded by the standard deviation over clients."
BOUND = " The bound is one for clients whose classes are about equally frequent."


def make_report(runs: Sequence[Recorded]) -> str:
    """Make one HTML file about these runs that loads nothing from anywhere."""
    articles = "\n".join(_article(run, number) for number, run in enumerate(runs, start=1))
    made = time.strftime("%Y-%m-%d", time.localtime())
    return Template((STATIC / "report.html").read_text()).substitute(
        title=html.escape(f"{runs[0].title if len(runs) == 1 else f'{len(runs)} runs'} · repshare"),
        style=(STATIC / "report.css").read_text(),
        body=(_contents(runs) if len(runs) > 1 else "") + articles,
        footer=f"Made on {made} by repshare {__version__} from the run's own files; needs no network.",
    )


def _contents(runs: Sequence[Recorded]) -> str:
    rows = (
        f'<li><a href="#run-{number}">{html.escape(run.title)}</a>, {html.escape(str(run.path))}'
        for number, run in enumerate(runs, start=1)
    )
    return f"<nav aria-label='Runs'><h1>{len(runs)} runs</h1><ul>{''.join(rows)}</ul></nav>\n"


def _article(run: Recorded, number: int) -> str:
    parts = [f"<h1>{html.escape(run.title)}</h1>", f'<p class="where">{html.escape(str(run.path))}</p>']
    if run.unfinished:
        more = f"; and {len(run.unfinished) - 12} more" if len(run.unfinished) > 12 else ""
        shown = html.escape("; ".join(run.unfinished[:12]) + more)
        parts.append(f'<p class="notice" role="note"><strong>Unfinished.</strong> Missing: {shown}.</p>')
    parts += _experiment(run) if run.experiment else _comparison(run)
    flat: dict[str, Any] = {}
    for key, value in run.setting.items():
        flat |= value if isinstance(value, dict) else {key: value}
    parts += [_section("Configuration", _definitions(flat)), _section("Versions", _definitions(run.made_with))]
    return f'<article id="run-{number}">' + "\n".join(parts) + "</article>"


def _experiment(run: Recorded) -> list[str]:
    """Return the table and the figure that the experiment itself wrote."""
    table, figure = run.path / "table.md", run.path / "figure.svg"
    return [
        _section("Results", _from_markdown(table.read_text()) if table.is_file() else ""),
        _section("Figure", _picture(figure.read_bytes(), "The experiment's figure") if figure.is_file() else ""),
    ]


def _comparison(run: Recorded) -> list[str]:
    seeds = len({line["seed"] for line in run.lines})
    over = f", ± standard deviation over {seeds} seeds" if seeds > 1 else ""
    tested = [line for line in run.lines if line["test_accuracy"] is not None]
    dealt, told = run.path / "partition.png", [field for field in MEASURES if _has(run.lines, field)]
    bound = BOUND if "bound" in told else ""
    who = _picture(dealt.read_bytes(), "Samples by client and class", "png") if dealt.is_file() else ""
    return [
        _section("Results", _results(run), f"Test accuracy after the last round, mean over clients{over}{MEANT}"),
        _section("Test accuracy by round", _draw_measure(tested, "test_accuracy") if tested else "", SHADED),
        _section("By client", _clients(tested), "Test accuracy after the last round [%], mean over seeds."),
        _section("Traffic", _draw_traffic(run.lines) + _traffic(run)),
        _section("Training", "".join(_draw_measure(run.lines, field) for field in told), f"{SHADED}{bound}"),
        _section("Who has what", who or '<p class="quiet">Not drawn: the run has not ended, or is a client\'s.</p>'),
    ]


def _has(lines: Iterable[Line], field: str) -> bool:
    return any(line.get(field) is not None for line in lines)


def _draw_measure(lines: Sequence[Line], field: str, x: str = "round", named: str = "communication round") -> str:
    title, file = MEASURES.get(field, "test accuracy [%]"), io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure, (axes,) = panels(6.2, 3.4)
        draw_methods(axes, lines, field, x, digits=1 if "accuracy" in field else 2)
        tidy(axes, "", named, title)
        axes.set_xscale("linear" if x == "round" else "log")
        figure.savefig(file, format="svg", metadata={"Date": None})
    return _picture(file.getvalue(), f"{title} by {named}")


def _draw_traffic(lines: Sequence[Line]) -> str:
    """Test accuracy by what a client has sent and received until then."""
    found = []
    for method in dict.fromkeys(line["method"] for line in lines):
        own, moved = [line for line in lines if line["method"] == method], 0.0
        for number in sorted({line["round"] for line in own}):
            here = [line for line in own if line["round"] == number]
            moved += statistics.fmean(line["bytes_up"] + line["bytes_down"] for line in here) / 1000
            found += [{**line, "moved": moved} for line in here if moved]
    if not _has(found, "test_accuracy"):
        return ""
    return _draw_measure(found, "test_accuracy", "moved", "sent and received so far, a client [kB]")


def _results(run: Recorded) -> str:
    """Make a table with one row for each method."""
    methods = dict.fromkeys(line["method"] for line in run.lines)
    found = {name: _summarise([line for line in run.lines if line["method"] == name], run) for name in methods}
    rivals = [each.accuracy for method, each in found.items() if each and (method != "CL" or len(found) == 1)]
    best = max(rivals, default=None)  # CL, which has all the data, is no rival
    rows, marked = [], None
    for method, summary in found.items():
        title = METHODS[method].title if method in METHODS else ""
        if summary is None:
            rows.append([method, title, "not tested yet", "", "", ""])
            continue
        marked = len(rows) if summary.accuracy == best else marked
        shown = plus_minus(summary.accuracy, summary.std_over_seeds), f"{summary.std_over_clients:.2f}"
        moved = in_units((summary.bytes_up + summary.bytes_down) / summary.client_rounds)
        rows.append([method, title, *shown, moved, f"{summary.seconds:.0f} s"])
    return _table([["method", "", "accuracy %", "± clients", "a client and round", "compute"], *rows], 2, marked)


def _summarise(lines: Sequence[Line], run: Recorded) -> Summary | None:
    """Return the summary; of an unfinished run, up to the last test that every seed reached: some got less far."""
    last: dict[int, int] = {}
    for line in lines:
        if line["test_accuracy"] is not None:
            last[line["seed"]] = max(last.get(line["seed"], 0), line["round"])
    if not last:
        return None
    return summarise([line for line in lines if not run.unfinished or line["round"] <= min(last.values())])


def _clients(tested: Sequence[Line]) -> str:
    """Make a table: a row for each client, a column for each method. Empty where there are too many, or only one."""
    last = {(line["client"], line["method"], line["seed"]): line for line in sorted(tested, key=lambda x: x["round"])}
    finals: dict[str, dict[str, list[float]]] = {}
    for (client, method, _), line in last.items():
        finals.setdefault(client, {}).setdefault(method, []).append(100 * line["test_accuracy"])
    if not 1 < len(finals) <= MOST_CLIENTS:
        return ""
    every = dict.fromkeys(line["method"] for line in tested)
    methods = [method for method in every if sum(method in own for own in finals.values()) > 1]
    rows = [
        [client, *(f"{statistics.fmean(own[method]):.2f}" if method in own else "" for method in methods)]
        for client, own in finals.items()
    ]
    return _table([["client", *methods], *rows])


def _traffic(run: Recorded) -> str:
    """Make a table of what was sent and received: in a round, and in all."""
    rows = []
    for method in dict.fromkeys(line["method"] for line in run.lines):
        lines = [line for line in run.lines if line["method"] == method]
        up, down = (sum(line[way] for line in lines) for way in ("bytes_up", "bytes_down"))
        each, seeds = [in_units(up / len(lines)), in_units(down / len(lines))], len({line["seed"] for line in lines})
        rows.append([method, *each, in_units((up + down) / seeds)])
    return _table([["method", "up, a client and round", "down", "all clients and rounds"], *rows])


def _section(title: str, content: str, caption: str = "") -> str:
    said = f'<p class="caption">{html.escape(caption)}</p>' if caption else ""
    return f"<section><h2>{html.escape(title)}</h2>{content}{said}</section>" if content else ""


def _picture(content: bytes, label: str, kind: str = "svg+xml") -> str:
    """Return a picture in which no script runs, whatever its source."""
    encoded = base64.b64encode(content).decode()
    return f'<img class="picture" alt="{html.escape(label)}" src="data:image/{kind};base64,{encoded}">'


def _definitions(values: Mapping[str, Any]) -> str:
    rows = (
        f"<div><dt>{html.escape(str(key))}</dt><dd>{html.escape(_show(value))}</dd></div>"
        for key, value in values.items()
    )
    return f"<dl>{''.join(rows)}</dl>" if values else ""


def _show(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "–"
    return (
        {None: "–", True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool | None) else str(value)
    )


def _from_markdown(text: str) -> str:
    """Convert paragraphs and tables, which is all that experiments write."""
    parts = []
    for paragraph in text.strip().split("\n\n"):
        rows = [line.strip().strip("|").split("|") for line in paragraph.splitlines()]
        if paragraph.startswith("|"):
            words = sum(not cell.endswith(":") for cell in rows[1])
            parts.append(_table([[cell.strip() for cell in row] for row in (rows[0], *rows[2:])], words))
        else:
            parts.append(f'<p class="caption">{html.escape(paragraph)}</p>')
    return "".join(parts)


def _table(rows: Sequence[Sequence[str]], words: int = 1, best: int | None = None) -> str:
    """Make a table of rows of text, headings first; the first `words` columns are words, the others numbers."""

    def row(cells: Sequence[str], other: str, scope: str, mark: str = "") -> str:
        made = [f'<th scope="{scope}">{html.escape(cells[0])}</th>']
        for place, cell in enumerate(cells[1:], start=1):
            side = ' class="left"' if place < words else ""
            made.append(f"<{other}{side}>{html.escape(cell)}</{other}>")
        return f"<tr{mark}>{''.join(made)}</tr>"

    marks = [' class="best"' if number == best else "" for number in range(len(rows) - 1)]
    body = "".join(row(cells, "td", "row", mark) for cells, mark in zip(rows[1:], marks, strict=True))
    return f'<div class="wide"><table><thead>{row(rows[0], "th", "col")}</thead><tbody>{body}</tbody></table></div>'
