"""Studies that the paper does not show: its setting with one thing changed, ten clients unless said otherwise.

Records only: each is a figure of panels and a table.
"""

import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes

from repshare.records import Line
from repshare_lab.config import ResolvedSetting, Setting
from repshare_lab.experiments.experiment import EXPOSED, Experiment, drawn
from repshare_lab.results.plots import STYLES, draw_points, panels, save, tidy
from repshare_lab.results.records import entry, find, group, mean_std
from repshare_lab.results.terminal import markdown

ORDER = ("CL", "IL", "FL", "FD", "RS", "FC", "CA", "CS")
APART = 0.06  # keeps error bars apart, as a share of the space between two variants
EXTERNAL = [f"external, λ_disc = {weight:g}" for weight in (0.1, 1.0, 10.0)]
KINDS = ("lenet5", "convnet", "mlp")


class Panel(NamedTuple):
    """One system of axes."""

    title: str
    x: str
    ticks: Mapping[str, str]
    """The names of its variants on the axis, from left to right, by their labels."""
    field: str = "accuracy"
    """The field of a line to show: accuracy, own or unseen."""


class Study(NamedTuple):
    """A study: what is varied, and how it is shown."""

    name: str
    variants: Sequence[str]
    """The values of what is varied, in the order of the table."""
    panels: Sequence[Panel]
    ordered: bool = True
    """Join the points: there is something between two of them."""
    kinds: tuple[str, ...] = ()
    """Networks that were dealt out in turn where all are together: each is shown at the variant of its own, by the same
    clients, that is, the same data."""

    def experiment(self) -> Experiment:
        """Return the study as an experiment."""
        return drawn(self.name, partial(show, self))


def apart(lines: Sequence[Line], kinds: Sequence[str]) -> list[Line]:
    """Return lines where kinds are together as lines of each kind; of one alone, as lines of the clients with it."""
    if not kinds:
        return list(lines)
    found = []
    for line in lines:
        alone = line["variant"] in kinds
        for turn, kind in enumerate(kinds):
            if not alone or kind == line["variant"]:
                accuracy = statistics.fmean(line["accuracies"][turn :: len(kinds)])
                method = line["method"] if alone else f"{line['method']} {line['variant']}"
                found.append({**line, "variant": kind, "method": method, "accuracy": accuracy})
    return found


def show(study: Study, lines: Sequence[Line], folder: Path, setting: ResolvedSetting) -> list[Path]:
    """Draw the panels next to each other, and put all numbers in a table."""
    figure, systems = panels(3.4 + 3.6 * len(study.panels), 4.2, 1, len(study.panels))
    for axes, panel in zip(systems, study.panels, strict=True):
        draw(axes, study, panel, apart(lines, study.kinds))
    systems[0].set_ylabel(f"{setting.dataset}: test accuracy [%],\n{_over_seeds(lines)}")
    figure.legend(*systems[0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    told = f"\n{EXPOSED}\n" if find(lines, "accuracy", method="CS") else ""
    return save(figure, folder, write_table(study, lines, setting) + told)


def draw(axes: Axes, study: Study, panel: Panel, lines: Sequence[Line]) -> None:
    """Draw a line for each method; a level one for a method that does not depend on what is varied here."""
    by_method, places = group(lines, "method"), list(panel.ticks)
    methods = sorted(by_method, key=lambda method: (ORDER.index(method.partition(" ")[0]), method))
    shown = {method: panel.ticks.keys() & group(by_method[method], "variant") for method in methods}
    varied = [method for method in methods if len(shown[method]) > 1] or methods
    for method in methods:
        own, (letters, _, rest) = by_method[method], method.partition(" ")
        colour, dashes, marker = STYLES[letters]
        if method not in varied:
            here = [line for line in own if not shown[method] or line["variant"] in shown[method]]
            mean, spread = mean_std(find(here, panel.field))
            axes.axhline(mean, linestyle=dashes, linewidth=1.6, color=colour, label=method)
            axes.axhspan(mean - spread, mean + spread, color=colour, alpha=0.12, linewidth=0)
            continue
        shift = APART * (varied.index(method) - (len(varied) - 1) / 2)
        found = [find(own, panel.field, variant=label) for label in places]
        draw_points(
            axes,
            {place + shift: values for place, values in enumerate(found) if values},
            linestyle=dashes if study.ordered else "none",
            marker=marker,
            markerfacecolor="white" if rest else None,
            markersize=8,
            capsize=4,
            color=colour,
            label=method,
        )
    tidy(axes, panel.title, panel.x, "")
    axes.set_xticks(range(len(places)), list(panel.ticks.values()))
    axes.set_xlim(-0.4, len(places) - 0.6)


def write_table(study: Study, lines: Sequence[Line], setting: Setting) -> str:
    """Return all numbers as Markdown: a row for each variant and method."""
    fields = list(dict.fromkeys(["accuracy", *(panel.field for panel in study.panels)]))
    heads = {"accuracy": "on all classes", "own": "on what a client has", "unseen": "on what it lacks"}
    by_variant, rows = group(apart(lines, study.kinds), "variant"), []
    for label in study.variants:
        for method, own in group(by_variant.get(label, []), "method").items():
            numbers = [entry(find(own, field)) or "–" for field in fields]
            for way in ("bytes_up", "bytes_down"):
                moved = statistics.fmean(line[way] / line["client_rounds"] for line in own)
                numbers.append(f"{moved / 1000:.1f} kB" if moved else "–")
            rows.append([label, method, *numbers, str(len(own))])
    return (
        f"{setting.dataset}: test accuracy after the last round [%], mean over clients, "
        f"{_over_seeds(lines)}; what a client sends and receives in a round.\n\n"
        + markdown(["<", "<method", *(heads[field] for field in fields), "up", "down", "seeds"], rows)
    )


def _over_seeds(lines: Sequence[Line]) -> str:
    seeds = len(group(lines, "seed"))
    return "one seed" if seeds == 1 else f"mean ± std over {seeds} seeds"


def skew() -> Study:
    """Clients whose classes differ, more and less."""
    skews = {f"α = {alpha}": alpha for alpha in ("0.1", "0.5", "1")} | {"uniform": "∞\n(uniform)"}
    return Study(
        "skew",
        [*skews],
        [
            Panel("tested on all classes", "Dirichlet α: the smaller, the more one-sided", skews),
            Panel("tested on the client's own mix of classes", "Dirichlet α", skews, "own"),
        ],
    )


def absence() -> Study:
    """Half of the clients absent in each round."""
    present = {"all there": "all in each round", "half absent": "half absent\nin each round"}
    return Study("absence", [*present], [Panel("clients that come and go", "", present)], ordered=False)


def precision() -> Study:
    """Fewer bits on the wire."""
    bits = {"fp32": "fp32", "fp16": "fp16", "int8": "int8"}
    panel = Panel("representations written with fewer bits", "numbers of a release", bits)
    return Study("precision", [*bits], [panel])


def compute() -> Study:
    """A ResNet9 that computes with fewer bits."""
    bits = {"fp32": "fp32", "bf16": "bf16"}
    panel = Panel("a ResNet9 that computes with fewer bits", "numbers of training and test", bits)
    return Study("compute", [*bits], [panel], ordered=False)


def unseen() -> Study:
    """Classes that a client lacks."""
    classes = {f"{held} of 10 classes": str(held) for held in (5, 8)}
    return Study(
        "unseen",
        [*classes],
        [
            Panel("tested on classes the client has", "classes that a client has, of 10", classes, "own"),
            Panel("tested on classes it has no sample of", "classes that a client has", classes, "unseen"),
        ],
    )


def discriminator() -> Study:
    """What tells classes apart: the classifier, a discriminator of its own, or nothing."""
    shown = {"none": "none", "classifier": "classifier\nλ_disc = 1"} | {
        label: label.replace(", ", "\n") for label in EXTERNAL
    }
    panel = Panel("what tells classes apart", "discriminator", shown)
    return Study("discriminator", ["classifier", "none", *EXTERNAL], [panel], ordered=False)


def averages() -> Study:
    """n_avg, M↑ and M↓."""
    counts = {"n_avg = 1": "1", "n_avg = 3": "3", "n_avg = 10": "10", "n_avg = 1000": "all"}
    pairs = {f"n_avg = 3, M↑ = {up}, M↓ = {down}": f"{up}, {down}" for up, down in ((1, 9), (9, 1), (9, 9))}
    return Study(
        "averages",
        ["n_avg = 10", *(label for label in counts if label != "n_avg = 10"), *pairs],
        [
            Panel("one observation a class (M↑ = M↓ = 1)", "n_avg, of about 12 samples a class", counts),
            Panel("n_avg = 3", "M↑, M↓", {"n_avg = 3": "1, 1"} | pairs),
        ],
        ordered=False,
    )


def codes() -> Study:
    """Targets that no client shared."""
    crowds = {
        clients: {f"N = {clients}, codes ±{size:g}": f"±{size:g}" for size in (0.0, 0.1, 0.3, 0.9)}
        for clients in (10, 5)
    }
    return Study(
        "codes",
        [label for ticks in crowds.values() for label in ticks],
        [
            Panel(f"{clients} clients, codes that no client shared", "how far a code is from zero", ticks)
            for clients, ticks in crowds.items()
        ],
    )


def length() -> Study:
    """Features kept short by a penalty."""
    ticks = {f"λ_length = {weight:g}": f"{weight:g}" for weight in (0.0, 1.0, 10.0, 100.0)}
    return Study("length", [*ticks], [Panel("features kept short by a penalty", "λ_length", ticks)])


def models() -> Study:
    """Three kinds of network together; each alone beside it."""
    networks = {"lenet5": "LeNet5", "convnet": "ConvNet", "mlp": "MLP"}
    panel = Panel("nine clients of one kind, and three of each kind together", "network", networks)
    return Study("models", [*KINDS, "together"], [panel], ordered=False, kinds=KINDS)


def clients() -> Study:
    """Up to 10,000 clients."""
    sizes = (5, 10, 30, 100)
    all_there = {f"N = {size}": str(size) for size in (*sizes, 300, 1000)}
    each = {"N = 10" if size == 10 else f"N = {size}, 120 samples each": str(size) for size in sizes}  # ten have 1,200
    each |= {"N = 10000, 6 samples each": "10,000\n(6 each)"}
    return Study(
        "clients",
        [*dict.fromkeys([*all_there, *each])],
        [Panel("1,200 samples in all", "clients N", all_there), Panel("120 samples each", "clients N", each)],
    )


def space() -> Study:
    """The common space by its dimension, and by rounds."""
    filters = {f"{count} filters of each size": str(54 * count) for count in (4, 8, 16, 32, 64)}
    by_clients = {
        size: {f"N = {size}, {count} rounds": str(count) for count in (1, 2, 3, 5, 10, 20)} for size in (10, 100)
    }
    return Study(
        "space",
        [*filters, *(label for ticks in by_clients.values() for label in ticks)],
        [
            Panel("dimension, 10 rounds", "d", filters),
            *(Panel(f"{size} clients", "rounds", ticks) for size, ticks in by_clients.items()),
        ],
    )


STUDIES = tuple(
    study().experiment()
    for study in (
        *(skew, absence, precision, unseen, discriminator, averages),
        *(codes, length, models, clients, space, compute),
    )
)
