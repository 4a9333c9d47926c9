"""Runs -> the HTML file. Whatever comes from a run is escaped or is a picture, and no script may run in it."""

import base64
import io
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import matplotlib

from repshare import __version__
from repshare.experiments.report.reading import Recorded
from repshare.methods import METHODS
from repshare.results.findings import find_best, still_improving, summarise_own
from repshare.results.plots import draw_methods, panels, tidy
from repshare.results.records import Line, Summary, entry, find, group, plus_minus, summarise
from repshare.results.terminal import traffic as in_units

MOST_CLIENTS = 40  # rows that one still reads
OWN_MIX, OWN_HEADS = ("test_own", "test_unseen"), ("own mix %", "worst client %", "unseen %")
MEASURES = {  # in addition to test accuracy
    "test_own": "own mix of classes: test accuracy [%]",
    "test_unseen": "unseen classes: test accuracy [%]",
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
OWN_MEANT = (
    " Own mix: each client is tested with classes as frequent as in its own data; worst client: the lowest of these; "
    "unseen: on the classes of which a client has no sample."
)
BOLD = " A row is bold if it is better than all others (CL apart) by more than their ±."
TESTED = "Test accuracy after the last round, mean over clients"
OWN = "Test accuracy after the last round. together: with the other clients; the other rows: without them."
SHADED = "Lines are means over clients and seeds, shaded by the standard deviation over clients."
NOT_DRAWN = "Not drawn: the run has not ended, or is of a single client."
BOUND = " The bound is one for clients whose classes are about equally frequent."


class HtmlTable(NamedTuple):
    """Rows of text, headings first."""

    rows: Sequence[Sequence[str]]
    words: int = 1
    """The first columns, which are words; the others are numbers."""
    best: int | None = None
    """The row that is emphasised."""


class Picture(NamedTuple):
    """A picture that is part of the file."""

    label: str
    source: str  # data:…


class Section(NamedTuple):
    """A part of the report on a run; left out if it is empty. Text is a paragraph."""

    title: str
    parts: Sequence[HtmlTable | Picture | str]
    caption: str = ""


def make_report(runs: Sequence[Recorded]) -> str:
    """Make one HTML file about these runs that loads nothing from anywhere."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent / "static")
    templates = jinja2.Environment(autoescape=True, loader=loader, trim_blocks=True, undefined=jinja2.StrictUndefined)
    templates.filters["in_words"] = _in_words
    date = time.strftime("%Y-%m-%d", time.localtime())
    template = templates.get_template("report.html")
    return template.render(
        runs=runs,
        overview=_overview(runs) if len(runs) > 1 else None,
        sections=lambda run: _experiment(run) if run.experiment else _comparison(run),
        date=date,
        version=__version__,
    )


def _experiment(run: Recorded) -> list[Section]:
    """Return the table and the figure that the experiment itself wrote."""
    table, figure = run.path / "table.md", run.path / "figure.svg"
    return [
        Section("Results", _from_markdown(table.read_text("utf-8")) if table.is_file() else []),
        Section("Figure", [_picture(figure.read_bytes(), "Figure of the experiment")] if figure.is_file() else []),
    ]


def _comparison(run: Recorded) -> list[Section]:
    seeds = len(group(run.lines, "seed"))
    over = f", ± standard deviation over {seeds} seeds" if seeds > 1 else ""
    tested = [line for line in run.lines if line["test_accuracy"] is not None]
    differ, dealt = run.clients_differ, run.path / "partition.png"
    told = [field for field in MEASURES if _has(run.lines, field) and field not in OWN_MIX]
    mixes = [field for field in MEASURES if _has(run.lines, field) and field in OWN_MIX and differ]
    rising = still_improving(run.lines) if not run.unfinished else []
    more = [f"Still improving at the end: more rounds would help {', '.join(rising)}."] if rising else []
    explained = f"{TESTED}{over}{MEANT}{OWN_MEANT if differ else ''}{BOLD}"
    who = _picture(dealt.read_bytes(), "Samples by client and class", "png") if dealt.is_file() else NOT_DRAWN
    return [
        Section("Results", [_results(run), *more], OWN if run.measures is not None else explained),
        Section("Test accuracy by round", [_draw_measure(tested, "test_accuracy")] if tested else [], SHADED),
        Section("By clients' own classes", [_draw_measure(tested, field) for field in mixes], SHADED),
        Section("By client", _clients(tested), "Test accuracy after the last round [%], mean over seeds."),
        Section(
            "By client, own mix of classes",
            _clients(tested, "test_own") if differ else [],
            "The same, with classes as frequent as in the client's own data.",
        ),
        Section("Traffic", [*_draw_traffic(run.lines), _traffic(run)]),
        Section(
            "Training", [_draw_measure(run.lines, field) for field in told], SHADED + (BOUND if "bound" in told else "")
        ),
        Section("Measures of the last test", [HtmlTable(run.measures)] if run.measures else []),
        Section("Who has what", [who] if run.measures is None else []),
    ]


def _has(lines: Iterable[Line], field: str) -> bool:
    return any(line.get(field) is not None for line in lines)


def _draw_measure(lines: Sequence[Line], field: str, x: str = "round", named: str = "communication round") -> Picture:
    title, file = MEASURES.get(field, "test accuracy [%]"), io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure, (axes,) = panels(6.2, 3.4)
        draw_methods(axes, lines, field, x, digits=1 if "accuracy" in title else 2)
        tidy(axes, "", named, title)
        if x != "round":
            axes.set_xscale("log")
        figure.savefig(file, format="svg", metadata={"Date": None})
    return _picture(file.getvalue(), f"{title} by {named}")


def _draw_traffic(lines: Sequence[Line]) -> list[Picture]:
    """Test accuracy by what a client has sent and received until then."""
    found = []
    for own in group(lines, "method").values():
        moved = 0.0
        for _, here in sorted(group(own, "round").items()):
            moved += statistics.fmean(line["bytes_up"] + line["bytes_down"] for line in here) / 1000
            found += [{**line, "moved": moved} for line in here if moved]
    if not _has(found, "test_accuracy"):
        return []
    return [_draw_measure(found, "test_accuracy", "moved", "sent and received so far, a client [kB]")]


def _overview(runs: Sequence[Recorded]) -> HtmlTable:
    """Make one table over all runs, with a row for each method of each."""
    differ, rows = any(run.clients_differ for run in runs if not run.experiment), []
    method, _, *others = _heads(differ=differ)
    for run in runs:
        made = [["", "", "see below", *[""] * (len(others) - 1)]] if run.experiment else _rows(run, differ=differ)
        shown = [[name, *cells] for name, _, *cells in made]
        rows += [["" if number else run.path.name, *cells] for number, cells in enumerate(shown)]
    return HtmlTable([["run", method, *others], *rows], 2)


def _results(run: Recorded) -> HtmlTable:
    """Make a table with one row for each method."""
    found = {method: _summarise(own, run) for method, own in group(run.lines, "method").items()}
    best = find_best({method: summary for method, summary in found.items() if summary})
    marked = None if best is None else list(found).index(best)
    return HtmlTable([_heads(differ=run.clients_differ), *_rows(run, differ=run.clients_differ)], 2, marked)


def _heads(*, differ: bool) -> list[str]:
    return [
        "method",
        "",
        "accuracy %",
        "± clients",
        *(OWN_HEADS if differ else ()),
        "a client and round",
        "compute",
    ]


def _rows(run: Recorded, *, differ: bool) -> list[list[str]]:
    """Return the cells of each method, in the order of `_heads`."""
    rows = []
    for method, lines in group(run.lines, "method").items():
        title, own = _title(method, run), _in_step(lines, run)
        summary = _summarise(lines, run)
        if summary is None:
            rows.append([method, title, "not tested yet", *[""] * (6 if differ else 3)])
            continue
        shown, mix = (
            [plus_minus(summary.accuracy, summary.std_over_seeds), f"{summary.std_over_clients:.2f}"],
            summarise_own(own),
        )
        shown += [entry(values) for values in (mix.own, mix.worst, mix.unseen) if differ]
        moved = in_units((summary.bytes_up + summary.bytes_down) / summary.client_rounds)
        rows.append([method, title, *shown, moved, f"{summary.seconds:.0f} s"])
    return rows


def _title(method: str, run: Recorded) -> str:
    """Return what a method's letters stand for, and which public samples it used, if any."""
    if method not in METHODS:
        return ""
    public = run.setting.get("public_data") if METHODS[method].uses_public else None
    return METHODS[method].title + (f" (public data: {public})" if public else "")


def _summarise(lines: Sequence[Line], run: Recorded) -> Summary | None:
    return summarise(_in_step(lines, run)) if _has(lines, "test_accuracy") else None


def _in_step(lines: Sequence[Line], run: Recorded) -> list[Line]:
    """Return the lines; of an unfinished run, up to the last test that every seed reached: some got less far."""
    tested = group((line for line in lines if line["test_accuracy"] is not None), "seed")
    reached = min((max(line["round"] for line in own) for own in tested.values()), default=0)
    return [line for line in lines if not run.unfinished or line["round"] <= reached]


def _clients(tested: Sequence[Line], field: str = "test_accuracy") -> list[HtmlTable]:
    """Make a table: a row for each client, a column for each method. None where there are too many, or only one."""
    last = {(line["client"], line["method"], line["seed"]): line for line in sorted(tested, key=lambda x: x["round"])}
    by_client = {client: group(own, "method") for client, own in group(last.values(), "client").items()}
    if not 1 < len(by_client) <= MOST_CLIENTS:
        return []
    methods = [each for each in group(tested, "method") if sum(each in own for own in by_client.values()) > 1]
    rows = [["client", *methods]]
    for client, own in by_client.items():
        values = [find(own.get(each, []), field) for each in methods]
        rows.append([client, *(f"{100 * statistics.fmean(each):.2f}" if each else "" for each in values)])
    return [HtmlTable(rows)]


def _traffic(run: Recorded) -> HtmlTable:
    """Make a table of what was sent and received: in a round, and in all."""
    rows = [["method", "up, a client and round", "down", "all clients and rounds"]]
    for method, lines in group(run.lines, "method").items():
        up, down = (sum(line[way] for line in lines) for way in ("bytes_up", "bytes_down"))
        amounts = up / len(lines), down / len(lines), (up + down) / len(group(lines, "seed"))
        rows.append([method, *map(in_units, amounts)])
    return HtmlTable(rows)


def _picture(content: bytes, label: str, kind: str = "svg+xml") -> Picture:
    return Picture(label, f"data:image/{kind};base64,{base64.b64encode(content).decode()}")


def _in_words(value: Any) -> str:
    """Return a value of a configuration as text."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "–"
    return {"None": "–", "True": "yes", "False": "no"}.get(str(value), str(value))


def _from_markdown(text: str) -> list[HtmlTable | str]:
    """Convert paragraphs and tables, which is all that experiments write."""
    parts: list[HtmlTable | str] = []
    for paragraph in text.strip().split("\n\n"):
        if not paragraph.startswith("|"):
            parts.append(paragraph)
            continue
        heads, rule, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in paragraph.splitlines())
        parts.append(HtmlTable([heads, *rows], words=sum(not cell.endswith(":") for cell in rule)))
    return parts
