"""The field: thirty methods on the same splits, each with rates chosen on held-out training samples. Records only.

Most of these methods are gone, so that the tables cannot be computed again as a whole: the pages are drawn from the
committed records. Every method that trains networks had the same four candidates, Adam and SGD with two rates each
(SCAFFOLD four rates of SGD), once for uniform divisions and once for skewed ones.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from repshare.cli.terminal import traffic
from repshare.records import Line
from repshare_lab.config import ResolvedSetting, Setting
from repshare_lab.experiments.experiment import EXPOSED, drawn
from repshare_lab.results.plots import STYLES, panels, save, tidy
from repshare_lab.results.records import entry, find, group
from repshare_lab.results.terminal import markdown

BEFORE = "d934b08"  # the last commit that computes both
UNIFORM, SKEWED = "uniform", "Dirichlet 0.1"
DIVISIONS = (UNIFORM, SKEWED, "Dirichlet 0.5", "5 of 10 classes", "three networks")
CLIENTS, SAMPLES = 10, 1200
LENGTH = 10.0  # λ_length, where features are kept short
HELD_OUT = 2000  # training samples that stood in for tests while rates were chosen
AS_GOOD = 0.25  # percentage points, which one seed cannot tell apart
CONTROLS = ("CL", "IL", "FC", "CA", "FL")  # above the others in a table
FIELDS = {"accuracy": "all classes", "own": "own mix", "worst": "worst client"}
PANELS = ((UNIFORM, "accuracy"), (SKEWED, "accuracy"), (SKEWED, "own"))
ALONE = ("IL", "FC", "CA")  # they send nothing: lines, not points
OWN_COLOURS = (*ALONE, "FD", "SL")
IN_SPACE = ("CS", "AFL", "FED3R", "FEDCOF")
SHARE_WEIGHTS = (
    "FL", "FEDPER", "FEDPROX", "SCAFFOLD", "CCVR", "FEDADAGRAD", "FEDADAM", "FEDDF", "FEDNOVA", "FEDYOGI", "FINETUNE",
    "GOSSIP", "VRLSGD",
)  # fmt: skip
GAP = 0.03  # of the height of the axes, between two names


def show(lines: Sequence[Line], folder: Path, setting: ResolvedSetting) -> list[Path]:
    """Draw accuracy against bytes, and write a table for each division."""
    figure, systems = panels(6.6 * len(PANELS), 7.2, 1, len(PANELS))
    for axes, (division, field) in zip(systems, PANELS, strict=True):
        _draw_panel(axes, [line for line in lines if line["division"] == division], field)
        tidy(axes, f"{division}: {FIELDS[field]}", "bytes of a client, in all rounds, both ways", "")
    systems[0].set_ylabel(
        f"{setting.dataset}: test accuracy [%], mean over clients and seeds\ndots: features kept short"
    )
    return save(figure, folder, f"{write_tables(lines, setting.dataset)}\n{EXPOSED}\n")


def write_tables(lines: Sequence[Line], dataset: str) -> str:
    """A table for each division, and the methods that are not above learning alone."""
    text = (
        f"{dataset}: test accuracy after the last round [%], mean over clients, ± standard deviation over seeds. own "
        "mix: each client is tested with classes as frequent as in its own data; worst client: the lowest of these. "
        f"short: with λ_length = {LENGTH:g}. bytes: what a client sends and receives in all its rounds. core-s: "
        "seconds of one core for training and exchange, all clients together.\n"
    )
    for division in DIVISIONS:
        if here := [line for line in lines if line["division"] == division]:
            text += f"\n**{division}**\n\n{_table(here)}\n{_below(here)}"
    return text


def order(lines: Sequence[Line]) -> list[str]:
    """The methods of these lines: controls first, then the others as they are listed."""
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
    """Bytes that a client sends and receives in all its rounds."""
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
    """Points over IL with the same penalty, seed by seed: splits differ by more than methods."""
    own, alone = (
        {line["seed"]: line[field] for line in lines if (line["method"], line["penalty"]) == (name, penalty)}
        for name in (method, "IL")
    )
    shared = [seed for seed in own if seed in alone and None not in (own[seed], alone[seed])]
    return [own[seed] - alone[seed] for seed in shared]


def _draw_panel(axes: Axes, lines: Sequence[Line], field: str) -> None:
    axes.set_xscale("log")
    ends = []
    for name in order(lines):
        own = [line for line in lines if line["method"] == name]
        values = [find(own, field, penalty=penalty) for penalty in ("off", "on")]
        means, colour = [statistics.fmean(each) for each in values if each], _colour(name)
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


def _colour(name: str) -> str:
    """Pick the colour of a method's kind: FL's of those that share weights, CS's in a common space, else RS's."""
    kind = name if name in OWN_COLOURS else "CS" if name in IN_SPACE else "FL" if name in SHARE_WEIGHTS else "RS"
    return STYLES[kind].colour


def scores(lines: Sequence[Line]) -> dict[str, dict[str, dict[str, float]]]:
    """The score of each candidate by division and method: the mean of both accuracies, over seeds."""
    return {
        division: {
            method: {
                title: statistics.fmean(find(here, "accuracy") + find(here, "own"))
                for title, here in group(own, "candidate").items()
            }
            for method, own in group(there, "method").items()
        }
        for division, there in group(lines, "division").items()
    }


def best(lines: Sequence[Line]) -> dict[str, dict[str, str]]:
    """The first candidate, by division and method, whose score is the highest, or as good."""
    return {
        division: {
            method: next(title for title, score in scored.items() if score >= max(scored.values()) - AS_GOOD)
            for method, scored in there.items()
        }
        for division, there in scores(lines).items()
    }


def show_rates(lines: Sequence[Line], folder: Path, setting: Setting) -> list[Path]:
    """Draw the score of every candidate, a row for each method, and write them down."""
    scored, chosen = scores(lines), best(lines)
    figure, systems = panels(12, 1.4 + 0.3 * len(group(lines, "method")), 1, 2)
    rows = []
    for axes, division in zip(systems, (UNIFORM, SKEWED), strict=True):
        for place, (method, own) in enumerate(scored.get(division, {}).items()):
            axes.plot(list(own.values()), [place] * len(own), "o", color="#777777", alpha=0.6)
            axes.plot(own[chosen[division][method]], place, "o", color="#D55E00")
            for title in own:
                here = {"method": method, "candidate": title, "division": division}
                numbers = [f"{statistics.fmean(find(lines, field, **here)):.2f}" for field in ("accuracy", "own")]
                marked = f"**{title}**" if title == chosen[division][method] else title
                rows.append([division, method, marked, *numbers])
        tidy(axes, f"{division}: the chosen in orange", "score: accuracy on held-out training samples [%]", "")
        axes.set_yticks(range(len(scored.get(division, {}))), list(scored.get(division, {})))
        axes.invert_yaxis()
    text = (
        f"{setting.dataset}: accuracy on {HELD_OUT:,} held-out training samples after the last round [%]. Chosen, by "
        "the mean of both: bold.\n\n"
    )
    return save(figure, folder, text + markdown(["<division", "<method", "<candidate", "all classes", "own mix"], rows))


FIELD = drawn("field", show, ("mnist",), BEFORE)
RATES = drawn("rates", show_rates, ("mnist",), BEFORE)
