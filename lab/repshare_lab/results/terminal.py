"""The tables of a comparison on the terminal, and the same tables as Markdown."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from repshare.cli.terminal import make_table, traffic
from repshare.records import Line
from repshare_lab.results.findings import clients_differ, find_best, still_improving, summarise_own
from repshare_lab.results.records import Summary, entry, find, group, plus_minus, summarise

BLOCKS = "▁▂▃▄▅▆▇█"
UNLIMITED = 10_000  # columns of a file or a pipe
EXTRAS = ("by round", "compute", "up", "down", "in all", "all classes", "unseen classes")  # the least needed first
LAST = 5  # rounds whose mean a table shows where the accuracy of one swings: networks with batch normalisation
CURVE_WIDTH = 8  # characters, as its heading has
OWN_MIX = [  # columns where clients' classes differ
    "own mix    each client tested with classes as frequent as in its own data",
    "worst      the lowest own mix of a client; unseen: classes that a client lacks",
]


def comparison_tables(
    lines: Sequence[Line],
    setting: Mapping[str, Any],
    about: str,
    titles: Mapping[str, str],
) -> list[Table | str]:
    """Return the tables of the methods that were tested, and a legend."""
    tested = group((line for line in lines if line["test_accuracy"] is not None), "method")
    if not tested:
        return [f"{escape(about)}: not tested yet"]
    lines = [line for line in lines if line["method"] in tested]
    summaries = {method: summarise(own) for method, own in group(lines, "method").items()}
    rounds, differ = max(line["round"] for line in lines), clients_differ(setting, lines)
    tables: list[Table | str] = [comparison(summaries, lines, f"{about}, {rounds} rounds: test accuracy at the end")]
    tables += [own_mixes(summaries, lines)] if differ else []
    tables.append(legend(titles, len(group(lines, "seed")), differ=differ))
    if rising := still_improving(lines):
        tables.append(f"still improving at the end: more --rounds would help {escape(', '.join(map(str, rising)))}\n")
    if {"RS", "IL"} <= summaries.keys() and summaries["RS"].accuracy < summaries["IL"].accuracy:
        tables.append("RS is below IL: try another --lambda-kd; 10 is what suits the paper's networks and data\n")
    return tables


def fit(table: Table | str, console: Console) -> Table | str:
    """Leave out columns for which a narrow terminal has no room, rather than digits."""
    for head in EXTRAS if console.is_terminal else ():
        wide = console.options.update(width=UNLIMITED)
        if isinstance(table, Table) and Measurement.get(console, wide, table).maximum > console.width:
            table.columns = [column for column in table.columns if column.header != head]
    return table


def comparison(summaries: Mapping[str, Summary], lines: Sequence[Line], title: str) -> Table:
    """Make a table with one row for each method."""
    table = make_table("<method|accuracy|±|<by round|up|down|in all|compute", title=escape(title))
    best, by_method = find_best(summaries), group(lines, "method")
    for method, summary in summaries.items():
        both = (summary.bytes_up + summary.bytes_down) / len(group(by_method[method], "client"))
        table.add_row(
            f"[bold]{escape(method)}[/]",
            plus_minus(summary.accuracy, summary.std_over_seeds),
            f"{summary.std_over_clients:.2f}",
            curve(by_method[method]),
            *map(traffic, (summary.bytes_up / summary.client_rounds, summary.bytes_down / summary.client_rounds, both)),
            f"{summary.seconds:.0f} s",
            style="bold" if method == best else "",
        )
    return table


def own_mixes(summaries: Mapping[str, Summary], lines: Sequence[Line]) -> Table:
    """Make a table of tests that suit each client, with one row for each method: for clients whose classes differ."""
    table = make_table("<method|all classes|own mix|worst client|unseen classes", title="accuracy by clients' classes")
    for method, own in group(lines, "method").items():
        summary, mix = summaries[method], summarise_own(own)
        shown = [plus_minus(summary.accuracy, summary.std_over_seeds)]
        shown += [entry(each) or "–" for each in (mix.own, mix.worst, mix.unseen)]
        table.add_row(f"[bold]{escape(method)}[/]", *shown)
    return table


def legend(titles: Mapping[str, str], seeds: int, *, differ: bool = False) -> str:
    """The meaning of the rows and columns of a comparison."""
    width = max(map(len, titles), default=0)
    rows = [f"  [bold]{escape(name):<{width}}[/]  {escape(title)}" for name, title in titles.items()]
    several = f", mean over clients ± seeds (standard deviation over {seeds})" if seeds > 1 else ""
    columns = [
        f"accuracy   in percent{several}",
        "±          ± clients (standard deviation over them)",
        *(OWN_MIX if differ else []),
        "up, down   what a client sends and receives in a round",
        "in all     both, in all its rounds",
        "compute    seconds of one core, all clients together",
    ]
    return "\n".join([*rows, "", *columns, ""])


def curve(lines: Sequence[Line]) -> str:
    """Return the mean test accuracy over the rounds as a row of blocks, from 0 to 100 %."""
    tested = group((line for line in lines if line["test_accuracy"] is not None), "round")
    means = [statistics.fmean(find(at, "test_accuracy")) for _, at in sorted(tested.items())]
    step = max(1, -(-len(means) // CURVE_WIDTH))
    return "".join(BLOCKS[min(int(mean * len(BLOCKS)), len(BLOCKS) - 1)] for mean in means[::-step][::-1])


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as Markdown. As in `make_table`, the heading of a column of words begins with <."""
    head = f"| {' | '.join(head.removeprefix('<') for head in heads)} |".replace("|  |", "| |", 1)
    rule = "|" + "".join("---|" if head.startswith("<") else "---:|" for head in heads)
    return "\n".join([head, rule, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


Published = Mapping[str, Mapping[int, float]]  # by row and number of clients


def table_markdown(dataset: str, lines: Sequence[Line], published: Published) -> str:
    """Return the paper's table for one data set, the published numbers next to ours, as Markdown."""
    sizes = sorted(group(lines, "clients"))
    counts = Counter((line["row"], line["clients"]) for line in lines)
    fewest, most = min(counts.values()), max(counts.values())
    over = f"{most}" if fewest == most else f"{fewest} to {most}"
    coarse = {(line["row"], line["clients"]) for line in lines if line.get("compute") == "bf16"}
    rows = []
    for title in group(lines, "row"):
        shown = {size: entry(find(lines, "accuracy", row=title, clients=size)) for size in sizes}
        for size in filter(shown.get, sizes):
            shown[size] += " †" if (title, size) in coarse else ""
            shown[size] += f" ({published[title][size]:.2f})" if size in published.get(title, {}) else ""
        rows.append([title, *shown.values()])
        steady = [entry(find(lines, "last_rounds", row=title, clients=size)) for size in sizes]
        rows += [[f"… mean of the last {LAST} rounds", *steady]] if any(steady) else []
    return (
        f"{dataset}: mean test accuracy over clients after the last round [%], "
        + (f"± standard deviation over {over}\nseeds" if most > 1 else "one seed")
        + "; in brackets the published number. CL is one client with all the data."
        + (" †: computed in bf16." if coarse else "")
        + "\n\n"
        + markdown(["<", *(f"N = {size}" for size in sizes)], rows)
    )
