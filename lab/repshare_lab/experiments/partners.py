"""The effect of partners: the same honest clients with partners that are honest or lie, and alone."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.patches import Patch

from repshare.records import Line
from repshare_lab.config import ResolvedSetting
from repshare_lab.experiments.experiment import EXPOSED, drawn
from repshare_lab.results.plots import STYLES, panels, save, tidy
from repshare_lab.results.records import entry, find, group
from repshare_lab.results.terminal import markdown

SIZES = (2, 10)
KINDS = ("honest", "one fed noise", "all fed noise", "one, labels permuted", "all, labels permuted")
NOBODY, PENALTY = "nobody", "nobody, short features"  # as committed records have it
WAYS = ("RS", "FD", "FL", "CS", "CS, keep_to_self")  # the last one doubts other clients
ALONE = {"RS": "IL", "FD": "IL", "FL": "IL", "CS": "CA"}  # the same learner without partners


def write_table(lines: Sequence[Line], dataset: str) -> str:
    """Write the accuracy of the honest clients by method and partners, for each number of clients."""
    seeds = len(group(lines, "seed"))
    text = (
        f"{dataset}: test accuracy of the honest clients after the last round [%], mean ± standard deviation over\n"
        f"{seeds} seeds. Alone, RS, FD and FL are IL, and CS is CA.\n\n"
    )
    for size, here in _by_size(lines).items():
        shown = [kind for kind in KINDS if find(here, "accuracy", partners=kind)]
        rows = []
        for way in WAYS:
            entries = [entry(_find(here, way, kind)) for kind in shown]
            alone = [entry(_find(here, ALONE[way[:2]], title)) for title in (NOBODY, PENALTY)]
            rows.append([way, *entries, *alone])
        text += markdown([f"<N = {size}", *shown, NOBODY, PENALTY], rows) + "\n"
    told, size = WAYS[-1], SIZES[-1]
    for kind in KINDS:
        if found := find(lines, "doubting", row=told, clients=size, partners=kind):
            share = statistics.fmean(found)
            text += f"- {told}, N = {size}, {kind}: {share:.0%} of the honest doubt the others.\n"
    return text


def _by_size(lines: Sequence[Line]) -> dict[int, list[Line]]:
    return {size: [line for line in lines if line["clients"] == size] for size in SIZES}


def _find(lines: Sequence[Line], row: str, partners: str) -> list[float]:
    return find(lines, "accuracy", row=row, partners=partners)


def show(lines: Sequence[Line], folder: Path, setting: ResolvedSetting) -> list[Path]:
    """Draw a group of bars for each method, paler for worse partners; a black line for learning alone."""
    figure, systems = panels(11, 4.6, 1, len(SIZES), sharey=True)
    fades = {kind: 1 - 0.8 * turn / (len(KINDS) - 1) for turn, kind in enumerate(KINDS)}
    for axes, (size, here) in zip(systems, _by_size(lines).items(), strict=True):
        ways = [way for way in WAYS if _find(here, way, "honest")]
        kinds = [kind for kind in KINDS if find(here, "accuracy", partners=kind)]
        for place, way in enumerate(ways):
            for turn, kind in enumerate(kinds):
                if values := _find(here, way, kind):
                    at = place + 0.8 * ((turn + 0.5) / len(kinds) - 0.5)
                    style: dict[str, Any] = {"color": STYLES[way[:2]].colour, "alpha": fades[kind], "capsize": 2}
                    axes.bar(at, statistics.fmean(values), 0.8 / len(kinds), yerr=statistics.pstdev(values), **style)
            if alone := _find(here, ALONE[way[:2]], NOBODY):
                axes.hlines(statistics.fmean(alone), place - 0.42, place + 0.42, color="black", linewidth=1.5)
        tidy(axes, f"N = {size}", "", "")
        axes.set_xticks(range(len(ways)), [way.replace(", ", ",\n") for way in ways])
    systems[0].set_ylabel(f"{setting.dataset}: test accuracy\nof honest clients [%]; black: alone")
    handles = [Patch(facecolor="black", alpha=fade, label=title) for title, fade in fades.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, title="partners")
    return save(figure, folder, write_table(lines, setting.dataset) + f"\n{EXPOSED}\n")


PARTNERS = drawn("partners", show)
