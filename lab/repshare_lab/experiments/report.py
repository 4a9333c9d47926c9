"""Recorded runs -> one HTML file that loads nothing. Whatever comes from a run is escaped or a picture."""

import base64
import io
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np
from rich.console import Console
from rich.markdown import Markdown
from rich.markup import escape
from rich.table import Table

from repshare import __version__
from repshare.errors import ConfigError
from repshare.methods import METHODS
from repshare.records import Journal, Line
from repshare_lab.experiments.catalogue import EXPERIMENTS
from repshare_lab.experiments.experiment import missing, usual_setting
from repshare_lab.results import plots, terminal
from repshare_lab.results.findings import clients_differ, name_setting
from repshare_lab.results.records import group

COLUMNS = 160  # characters in a line of a table
NEEDED = {"method", "seed", "round", "client", "test_accuracy", "bytes_up", "bytes_down", "seconds"}  # in a record
KINDS = ({"methods", "seeds"}, {"experiment"}, {"client", "task"})  # of runs, by what their run.json has
Shown = tuple[str, list[str], list[Table | Markdown | str]]  # a run's title, what is missing, its tables


class Recorded(NamedTuple):
    """One run as the report shows it: its tables as text, its pictures as data: addresses by name."""

    path: Path
    configuration: str
    title: str
    missing: Sequence[str]
    tables: str
    pictures: Mapping[str, str]


def make_report(paths: Iterable[Path]) -> str:
    """Return one page about the runs in these folders. Raises ConfigError if one is no run, or has no records."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    templates = jinja2.Environment(autoescape=True, loader=loader, undefined=jinja2.StrictUndefined)
    date, runs = time.strftime("%Y-%m-%d", time.localtime()), [_read(path) for path in paths]
    return templates.get_template("report.html").render(runs=runs, date=date, version=__version__)


def _read(path: Path) -> Recorded:
    try:
        described = json.loads((path / "run.json").read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is no run: run.json cannot be read ({error})") from error
    if not isinstance(described, dict) or not any(kind <= described.keys() for kind in KINDS):
        raise ConfigError(f"{path / 'run.json'} describes no run of compare, run, reproduce, join or peer")
    lines = Journal(path / "records.jsonl").read()
    if not lines:
        raise ConfigError(f"{path} has no records: nothing was done there yet")
    files = {file.stem: file for kind in ("png", "svg") for file in sorted(path.glob(f"*.{kind}"))}
    pictures = {name: _embed(file.read_bytes(), file.suffix) for name, file in files.items()}
    if "experiment" in described:
        title, left, tables = _show_experiment(path, described, lines)
    else:
        lines = _read_rounds(path, described, lines)
        title, left, tables = _show_comparison(path, described, lines)
        if "figure" not in pictures:  # an interrupted run, or a client's own
            drawn = io.BytesIO()
            plots.draw_accuracy(lines, drawn, title, differ=clients_differ(described.get("setting", {}), lines))
            pictures["figure"] = _embed(drawn.getvalue(), ".png")
    console = Console(file=io.StringIO(), record=True, width=COLUMNS, highlight=False, emoji=False)
    console.print(*tables, sep="\n\n")
    return Recorded(path, json.dumps(described, indent=2), title, left, console.export_text(), pictures)


def _embed(content: bytes, suffix: str) -> str:
    kind = {".png": "png", ".svg": "svg+xml"}[suffix]
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _show_experiment(path: Path, described: Mapping[str, Any], lines: Sequence[Line]) -> Shown:
    given, name, left = described.get("setting") or {}, str(described["experiment"]), []
    dataset, seeds = str(given.get("dataset", "mnist")), 1 + max(line.get("seed", 0) for line in lines)
    if name in EXPERIMENTS:
        cells = EXPERIMENTS[name].plan(usual_setting(dataset, 60_000, given.get("rounds")), seeds)
        left = [cell.title for cell in missing(cells, lines)]
    tables = [Markdown(file.read_text("utf-8"), hyperlinks=False) for file in sorted(path.glob("*.md"))]
    return f"{name}, {dataset}", left, [*tables]


def _read_rounds(path: Path, described: Mapping[str, Any], lines: list[Line]) -> list[Line]:
    """Return the records of a comparison; those of a client's own run as one with its controls, if it has any."""
    if "client" in described:
        controls = [{**line, "method": line.get("control")} for line in Journal(path / "controls.jsonl").read()]
        own = "alone" if described["task"] == "alone" else "together"
        lines = [{"method": own, "seed": 0, **line} for line in [*lines, *controls]]
    for number, line in enumerate(lines, start=1):
        if lacking := NEEDED - line.keys() if isinstance(line, dict) else NEEDED:
            raise ConfigError(f"{path / 'records.jsonl'}: line {number} has no {min(lacking)}")
    return lines


def _show_comparison(path: Path, described: Mapping[str, Any], lines: Sequence[Line]) -> Shown:
    """Return the tables that `compare` shows, of the methods and seeds that are finished."""
    setting, kept, left = described.get("setting", {}), path / "finished.json", list[str]()
    title = f"client {described.get('client')} in task {described.get('task')}"
    if "client" not in described:
        title = name_setting(setting)
        done = {tuple(pair) for pair in json.loads(kept.read_text())} if kept.exists() else set()
        last = {(line["method"], line["seed"]): line["round"] for line in lines}
        left = [f"{run[0]}, seed {run[1]}: after round {last[run]}" for run in last if run not in done]
        unknown = len(described["methods"]) * len(described["seeds"]) - len(done | last.keys())
        left += [f"{unknown} not begun"] if unknown > 0 else []
        lines = [line for line in lines if (line["method"], line["seed"]) in done]
    used = {name: METHODS[name] for name in group(lines, "method") if name in METHODS}
    titles = {name: method.title for name, method in used.items()} | described.get("titles", {})
    tables = terminal.comparison_tables(lines, setting, title, titles)
    measured = {line["method"]: line["metrics"] for line in lines if line.get("metrics")}
    for name, metrics in measured.items():
        shown = (f"{what.replace('_', ' ')} {np.round(np.array(value, float), 3)}" for what, value in metrics.items())
        tables.append(escape(f"{name}, last test: {', '.join(shown)}"))
    return title, left, [*tables]
