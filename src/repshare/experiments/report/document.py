"""Runs -> the HTML file. Whatever comes from a run is escaped here, and only our own two scripts may run in it."""

import base64
import hashlib
import html
import json
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from repshare import __version__
from repshare.experiments.report import figures, tables
from repshare.experiments.report.reading import Recorded

STATIC = Path(__file__).parent / "static"


def make_report(runs: Sequence[Recorded]) -> str:
    """One HTML file about these runs that loads nothing from anywhere."""
    drawn: dict[str, figures.Figure] = {}
    articles = [_article(run, number, drawn) for number, run in enumerate(runs, start=1)]
    plotly, script = _plotly(), (STATIC / "report.js").read_text()
    title = runs[0].title if len(runs) == 1 else f"{len(runs)} runs"
    made = time.strftime("%Y-%m-%d", time.localtime())
    parts = {
        "SCRIPTS": " ".join(_hash(each) for each in (plotly, script)),
        "TITLE": html.escape(f"{title} · repshare"),
        "STYLE": (STATIC / "report.css").read_text(),
        "BODY": (_contents(runs) if len(runs) > 1 else "") + "\n".join(articles),
        "FOOTER": f"Made on {made} by repshare {__version__} from run.json and records.jsonl; needs no network.",
        "FIGURES": json.dumps(drawn).replace("<", "\\u003c"),
        "PLOTLY": plotly,
        "SCRIPT": script,
    }
    pieces = (STATIC / "report.html").read_text().split("@")  # text and names by turns
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def _contents(runs: Sequence[Recorded]) -> str:
    rows = (
        f'<li><a href="#run-{number}">{html.escape(run.title)}</a>, {html.escape(str(run.path))}'
        for number, run in enumerate(runs, start=1)
    )
    return f"<nav aria-label='Runs'><h1>{len(runs)} runs</h1><ul>{''.join(rows)}</ul></nav>\n"


def _article(run: Recorded, number: int, drawn: dict[str, figures.Figure]) -> str:
    """One run; its figures are added to those drawn."""

    def place(figure: figures.Figure | None, label: str) -> str:
        if figure is None:
            return ""
        name = f"figure-{len(drawn) + 1}"
        drawn[name] = figure
        height = f"height: {figure['height']}px"
        return f'<div class="figure" id="{name}" role="img" aria-label="{html.escape(label)}" style="{height}"></div>'

    parts = [f"<h1>{html.escape(run.title)}</h1>", f'<p class="where">{html.escape(str(run.path))}</p>']
    if run.unfinished:
        parts.append(_notice(run.unfinished))
    parts += _table_parts(run, place) if run.kind == "table" else _comparison_parts(run, place)
    parts += [_section("Configuration", _definitions(_flatten(run.setting)))]
    if run.made_with:
        parts += [_section("Versions", _definitions(run.made_with))]
    return f'<article id="run-{number}">' + "\n".join(part for part in parts if part) + "</article>"


def _comparison_parts(run: Recorded, place: Any) -> list[str]:
    accuracy = place(figures.curves(run, "test_accuracy", "test accuracy [%]"), "Test accuracy by round")
    others = [(title, figures.curves(run, measure, title)) for measure, title in figures.MEASURES.items()]
    for _, figure in others:
        if figure is not None:
            figure["height"] = 280
    small = "".join(place(figure, title) for title, figure in others)
    bounded = any(title == figures.MEASURES["bound"] and figure for title, figure in others)
    meant = "The bound is one for clients whose classes are about equally frequent." if bounded else ""
    shaded = "Lines are means over clients and seeds, shaded from the lowest to the highest."
    return [
        _section("Results", tables.results(run), tables.explanation(run)),
        _section("Test accuracy by round", accuracy, shaded) if accuracy else "",
        _section("By client", tables.clients(run), "Test accuracy after the last round [%], mean over seeds."),
        _section("Traffic", place(figures.traffic(run), "Test accuracy by traffic") + tables.traffic(run)),
        _section("Training", f'<div class="small">{small}</div>', meant) if small else "",
        _section("Who has what", _partition(run, place), "Training samples by client and class, for the first seed."),
    ]


def _table_parts(run: Recorded, place: Any) -> list[str]:
    said = "Mean test accuracy over clients after the last round [%], ± standard deviation over seeds; in brackets the "
    return [
        _section("Results", tables.by_size(run), said + "number published in the paper, where there is one."),
        _section("Accuracy by number of clients", place(figures.sizes(run), "Accuracy by number of clients")),
        _section("Traffic", tables.traffic_by_size(run), "What one client sends and receives in a round."),
    ]


def _partition(run: Recorded, place: Any) -> str:
    if run.counts:
        return str(place(figures.partition(run.counts), "Samples by client and class"))
    if run.picture:
        return f'<img class="picture" alt="Samples by client and class" src="{run.picture}">'
    return '<p class="quiet">Not recorded, and the data set is not on this machine.</p>'


def _section(title: str, content: str, caption: str = "") -> str:
    if not content:
        return ""
    said = f'<p class="caption">{html.escape(caption)}</p>' if caption else ""
    return f"<section><h2>{html.escape(title)}</h2>{content}{said}</section>"


def _notice(missing: Sequence[str]) -> str:
    shown = "; ".join(missing[:12]) + (f"; and {len(missing) - 12} more" if len(missing) > 12 else "")
    return f'<p class="notice" role="note"><strong>Unfinished.</strong> Missing: {html.escape(shown)}.</p>'


def _definitions(values: Mapping[str, Any]) -> str:
    rows = (
        f"<div><dt>{html.escape(str(key))}</dt><dd>{html.escape(_show(value))}</dd></div>"
        for key, value in values.items()
    )
    return f"<dl>{''.join(rows)}</dl>"


def _show(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "–"
    return (
        "–"
        if value is None
        else {True: "yes", False: "no"}.get(value, str(value))
        if isinstance(value, bool)
        else str(value)
    )


def _flatten(setting: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in setting.items():
        flat |= value if isinstance(value, dict) else {key: value}
    return flat


def _plotly() -> str:
    """Plotly's JavaScript, from the installed package."""
    package = find_spec("plotly")  # found, not imported: nothing here calls its Python
    if package is None:
        raise ModuleNotFoundError("No module named 'plotly'", name="plotly")
    (folder,) = package.submodule_search_locations or ("",)
    return (Path(folder) / "package_data" / "plotly.min.js").read_text()


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
