"""Runs -> tables in HTML."""

import html
import statistics
from collections import defaultdict
from collections.abc import Sequence

from repshare.experiments import PUBLISHED
from repshare.experiments.report.reading import Recorded
from repshare.methods import METHODS
from repshare.results.records import Line, Summary, summarise
from repshare.results.terminal import traffic as in_units

MOST_CLIENTS = 40  # rows that one still reads


def results(run: Recorded) -> str:
    """One row for each method."""
    rows = []
    found = {method: _summarise(lines, in_step=bool(run.unfinished)) for method, lines in _by_method(run).items()}
    rivals = [summary.accuracy for method, summary in found.items() if summary and (method != "CL" or len(found) == 1)]
    best = max(rivals, default=None)  # CL, which has all the data, is no rival
    for method, summary in found.items():
        title = METHODS[method].title if method in METHODS else ""
        if summary is None:
            rows.append([html.escape(method), html.escape(title), "not tested yet", "", "", ""])
            continue
        accuracy = _mark(plus_minus(summary.accuracy, summary.std_over_seeds), summary.accuracy == best)
        spread = f"{summary.std_over_clients:.2f}"
        traffic = in_units((summary.bytes_up + summary.bytes_down) / summary.client_rounds)
        rows.append([html.escape(method), html.escape(title), accuracy, spread, traffic, f"{summary.seconds:.0f} s"])
    headings = ["method", "", "accuracy %", "± clients", "a client and round", "compute"]
    return _table(headings, rows, left=2)


def explanation(run: Recorded) -> str:
    """What the columns mean."""
    seeds = len({line["seed"] for line in run.lines})
    over = f", ± standard deviation over {seeds} seeds" if seeds > 1 else ""
    return (
        f"Test accuracy after the last round, mean over clients{over}; ± clients: standard deviation over clients; "
        "a client and round: bytes sent and received; compute: seconds of one core, all clients together."
    )


def clients(run: Recorded) -> str:
    """One row for each client, a column for each method. Empty where there are too many to read, or only one."""
    finals = defaultdict[str, dict[str, list[float]]](dict)
    for method, lines in _by_method(run).items():
        for (client, _), accuracy in _last_tests(lines).items():
            finals[client].setdefault(method, []).append(100 * accuracy)
    if not 1 < len(finals) <= MOST_CLIENTS:
        return ""
    methods = [method for method in _by_method(run) if sum(method in own for own in finals.values()) > 1]
    rows = [
        [html.escape(client), *(f"{statistics.fmean(own[method]):.2f}" if method in own else "" for method in methods)]
        for client, own in finals.items()
    ]
    return _table(["client", *map(html.escape, methods)], rows)


def traffic(run: Recorded) -> str:
    """What was sent and received: in a round, and in all."""
    rows = []
    for method, lines in _by_method(run).items():
        seeds = len({line["seed"] for line in lines})
        up, down = (sum(line[way] for line in lines) for way in ("bytes_up", "bytes_down"))
        each = [in_units(up / len(lines)), in_units(down / len(lines))]
        rows.append([html.escape(method), *each, in_units((up + down) / seeds)])
    return _table(["method", "up, a client and round", "down", "all clients and rounds"], rows)


def by_size(run: Recorded) -> str:
    """The paper's table: rows by numbers of clients, with what was published."""
    sizes = sorted({line["clients"] for line in run.lines})
    published = PUBLISHED.get(str(run.setting.get("dataset")), {})
    rows = []
    for title in dict.fromkeys(line["row"] for line in run.lines):
        numbers, cells = published.get(title, {}), []
        for size in sizes:
            own = [line["accuracy"] for line in run.lines if (line["row"], line["clients"]) == (title, size)]
            shown = plus_minus(statistics.fmean(own), statistics.stdev(own) if len(own) > 1 else None) if own else ""
            beside = f' <span class="quiet">({numbers[size]:.2f})</span>' if own and size in numbers else ""
            cells.append(shown + beside)
        rows.append([html.escape(title), *cells])
    return _table(["", *(f"N = {size}" for size in sizes)], rows)


def traffic_by_size(run: Recorded) -> str:
    """What a client sends and receives in a round, by row."""
    rows = []
    for title in dict.fromkeys(line["row"] for line in run.lines):
        own = [line for line in run.lines if line["row"] == title]
        rounds = sum(line["client_rounds"] for line in own)
        ways = (in_units(sum(line[way] for line in own) / rounds) for way in ("bytes_up", "bytes_down"))
        rows.append([html.escape(title), *ways])
    return _table(["", "up", "down"], rows)


def plus_minus(mean: float, deviation: float | None) -> str:
    """A mean and how far it varies."""
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f} ± {deviation:.2f}"


def _by_method(run: Recorded) -> dict[str, list[Line]]:
    found = defaultdict[str, list[Line]](list)
    for line in run.lines:
        found[str(line["method"])].append(line)
    return dict(found)


def _summarise(lines: Sequence[Line], *, in_step: bool) -> Summary | None:
    """The summary; `in_step` up to the last test that every seed reached: in an unfinished run, some got less far."""
    last: dict[int, int] = {}
    for line in lines:
        if line["test_accuracy"] is not None:
            last[line["seed"]] = max(last.get(line["seed"], 0), line["round"])
    if not last:
        return None
    return summarise([line for line in lines if not in_step or line["round"] <= min(last.values())])


def _last_tests(lines: Sequence[Line]) -> dict[tuple[str, int], float]:
    """The last test accuracy of each client and seed."""
    last: dict[tuple[str, int], tuple[int, float]] = {}
    for line in lines:
        key = (str(line["client"]), line["seed"])
        if line["test_accuracy"] is not None and line["round"] >= last.get(key, (0, 0.0))[0]:
            last[key] = (line["round"], line["test_accuracy"])
    return {key: accuracy for key, (_, accuracy) in last.items()}


def _mark(text: str, best: bool) -> str:
    return f'<span class="best">{text}</span>' if best else text


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Headings and cells are HTML already; the first `left` columns are words."""

    def side(place: int) -> str:
        return ' class="left"' if 0 < place < left else ""

    head = "".join(f'<th scope="col"{side(place)}>{heading}</th>' for place, heading in enumerate(headings))
    body = ""
    for first, *rest in rows:
        cells = "".join(f"<td{side(place)}>{cell}</td>" for place, cell in enumerate(rest, start=1))
        body += f'<tr><th scope="row">{first}</th>{cells}</tr>'
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
