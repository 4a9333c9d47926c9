"""The field's lines as a table for each division, and as a figure of accuracy against bytes."""

import statistics
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from repshare.cli.terminal import traffic
from repshare.methods import METHODS
from repshare.records import Line
from repshare_lab.experiments.field.contenders import DIVISIONS, LENGTH, SKEWED, UNIFORM
from repshare_lab.methods import GONE
from repshare_lab.results.plots import OTHER, STYLES, panels, tidy
from repshare_lab.results.records import entry, find, group
from repshare_lab.results.terminal import markdown

CONTROLS = ("CL", "IL", "FC", "CA", "FL")  # above the others in a table
FIELDS = {"accuracy": "all classes", "own": "own mix", "worst": "worst client"}
PANELS = ((UNIFORM, "accuracy"), (SKEWED, "accuracy"), (SKEWED, "own"))
ALONE = ("IL", "FC", "CA")  # they send nothing: lines, not points
# Of the methods that are gone, those that shared weights.
AVERAGED = ("CCVR", "FEDADAGRAD", "FEDADAM", "FEDDF", "FEDNOVA", "FEDYOGI", "FINETUNE", "GOSSIP", "VRLSGD")
GAP = 0.03  # of the height of the axes, between two names


def write_tables(lines: Sequence[Line], dataset: str) -> str:
    """Return a table for each division, and the methods that are not above learning alone."""
    text = (
        f"{dataset}: test accuracy after the last round [%], mean over clients, ± standard deviation over seeds. own "
        "mix: each client is tested with classes as frequent as in its own data; worst client: the lowest of these. "
        f"short: with λ_length = {LENGTH:g}. bytes: what a client sends and receives in all its rounds. core-s: "
        "seconds of one core for training and exchange, all clients together.\n"
    )
    for division in DIVISIONS:
        if here := [line for line in lines if line["division"] == division.label]:
            text += f"\n**{division.label}**\n\n{_table(here)}\n{_below(here)}"
    return text


def order(lines: Sequence[Line]) -> list[str]:
    """Return the methods of these lines: controls first, then the others as they are listed."""
    there = list(group(lines, "method"))
    return [name for name in CONTROLS if name in there] + [name for name in there if name not in CONTROLS]


def _table(lines: Sequence[Line]) -> str:
    penalised = any(line["penalty"] == "on" for line in lines)
    heads = [*FIELDS.values(), *(f"{head}, short" for head in FIELDS.values() if penalised)]
    rows = []
    for name in order(lines):
        own = [line for line in lines if line["method"] == name]
        off = [line for line in own if line["penalty"] == "off"] or own
        numbers = [
            entry(find(own, field, penalty=penalty)) or "–"
            for penalty in ("off", "on")[: 1 + penalised]
            for field in FIELDS
        ]
        seconds = statistics.fmean(find(off, "seconds"))
        rows.append([name, *numbers, traffic(volume(off)), f"{seconds:.1f}", str(len(group(own, "seed")))])
    return markdown(["<method", *heads, "bytes", "core-s", "seeds"], rows)


def volume(lines: Sequence[Line]) -> float:
    """Return what a client sends and receives in all its rounds."""
    return statistics.fmean((line["bytes_up"] + line["bytes_down"]) / len(line["accuracies"]) for line in lines)


def _below(lines: Sequence[Line]) -> str:
    """Name the methods that are not above IL, each compared with IL under the same penalty."""
    text = ""
    for penalty, name in (("off", "IL"), ("on", "IL with short features")):
        for field in ("accuracy", "own"):
            if not find(lines, field, method="IL", penalty=penalty):
                continue
            gains = {each: gains_over_alone(lines, each, field, penalty) for each in order(lines) if each != "IL"}
            named = [each for each, values in gains.items() if values and statistics.fmean(values) <= 0]
            text += f"- Not above {name} by {FIELDS[field]}: {', '.join(named) or 'none'}.\n"
    return text


def gains_over_alone(lines: Sequence[Line], method: str, field: str, penalty: str) -> list[float]:
    """Return what a method gains over IL with the same penalty, seed by seed: splits differ by more than methods."""
    own, alone = (
        {line["seed"]: line[field] for line in lines if (line["method"], line["penalty"]) == (name, penalty)}
        for name in (method, "IL")
    )
    shared = [seed for seed in own if seed in alone and None not in (own[seed], alone[seed])]
    return [own[seed] - alone[seed] for seed in shared]


def draw(lines: Sequence[Line], dataset: str) -> Figure:
    """Draw accuracy against bytes: a circle for each method, a dot with short features; lines for those alone."""
    figure, systems = panels(6.6 * len(PANELS), 7.2, 1, len(PANELS))
    for axes, (division, field) in zip(systems, PANELS, strict=True):
        _draw_panel(axes, [line for line in lines if line["division"] == division.label], field)
        tidy(axes, f"{division.label}: {FIELDS[field]}", "bytes of a client, in all rounds, both ways", "")
    systems[0].set_ylabel(f"{dataset}: test accuracy [%], mean over clients and seeds\ndots: features kept short")
    return figure


def _draw_panel(axes: Axes, lines: Sequence[Line], field: str) -> None:
    axes.set_xscale("log")
    ends = []
    for name in order(lines):
        own = [line for line in lines if line["method"] == name]
        values = [find(own, field, penalty=penalty) for penalty in ("off", "on")]
        means, colour = [statistics.fmean(each) for each in values if each], colour_of(name)
        if name in ALONE:
            for mean, dashes, title in zip(means, ("--", "-"), (name, f"{name}, short"), strict=False):
                axes.axhline(mean, color=colour, linestyle=dashes, linewidth=1, label=title)
        elif means and (at := volume(own)) > 0:
            axes.plot([at] * len(means), means, color=colour, linewidth=0.8)
            axes.plot(at, means[-1], "o", color=colour, markersize=3)
            axes.plot(at, means[0], "o", color=colour, markerfacecolor="white", markersize=6)
            ends.append((name, colour, at, means[0]))
    _name_points(axes, ends)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, loc="lower left", fontsize=8)


def _name_points(axes: Axes, ends: Sequence[tuple[str, str, float, float]]) -> None:
    """Name points (name, colour, x, y) in a column beside the axes, from top to bottom, with a line to each."""
    low, high = axes.get_ylim()
    place = 1.0 + GAP
    for left, (name, colour, x, y) in zip(range(len(ends), 0, -1), sorted(ends, key=lambda end: -end[3]), strict=True):
        place = max(min(place - GAP, (y - low) / (high - low)), (left - 1) * GAP)  # room for those below
        axes.annotate(
            f"{name} {y:.1f}", (x, y), (1.03, place), textcoords="axes fraction", fontsize=7, color=colour,
            va="center", arrowprops={"arrowstyle": "-", "color": colour, "alpha": 0.3, "linewidth": 0.6},
            annotation_clip=False, parse_math=False,
        )  # fmt: skip


def colour_of(name: str) -> str:
    """Return the colour of a method's kind: FL's of those that share weights, CS's in a common space, else RS's."""
    if name in STYLES and name in (*ALONE, "FD", "SL"):
        return STYLES[name].colour
    if name in GONE:
        return STYLES["FL" if name in AVERAGED else "RS"].colour
    if (method := METHODS.get(name)) is None:
        return OTHER.colour
    kind = "CS" if method.in_space else "FL" if method.shares_weights else "RS"
    return STYLES[kind].colour
