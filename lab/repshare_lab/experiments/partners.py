"""The effect of partners: the same honest clients with partners that are honest or lie, and alone."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.patches import Patch

from repshare.records import Line
from repshare_lab.config import Attack, ResolvedSetting
from repshare_lab.experiments.experiment import Cell, Experiment, Row, make_cell, tell_exposure
from repshare_lab.results.plots import STYLES, panels, save, tidy
from repshare_lab.results.records import entry, find, group, summarise
from repshare_lab.results.terminal import markdown
from repshare_lab.simulation.attacks import choose_attackers

SIZES = (2, 10)
SEEDS = 5
LENGTH = 10.0  # λ_length of those who learn alone with short features
KINDS: dict[str, tuple[int, Attack]] = {  # how many of N clients are liars (-1: all but one), and what they do
    "honest": (0, "flip"),
    "one fed noise": (1, "noise"),
    "all fed noise": (-1, "noise"),
    "one, labels permuted": (1, "permuted"),
    "all, labels permuted": (-1, "permuted"),
}
NOBODY, PENALTY = "nobody", "nobody, short features"  # as committed records have it
WAYS = (
    Row("RS", "RS"),
    Row("FD", "FD"),
    Row("FL", "FL"),
    Row("CS", "CS"),
    Row("CS, keep_to_self", "CS", policy={"prefer_own": True, "held_out": 0.2}),
)
ALONE = {"RS": "IL", "FD": "IL", "FL": "IL", "CS": "CA"}  # the same learner without partners


def plan(setting: ResolvedSetting, seeds: int) -> list[Cell]:
    """Plan every method with every kind of partners, and alone; seed by seed, so that an interrupted study is even."""
    cells = []
    for seed in range(seeds):
        for size in SIZES:
            usual = replace(setting, clients=size, eval_every=setting.rounds)
            cells += [
                _cell(Row("IL", "IL"), NOBODY, seed, usual),
                _cell(Row("IL", "IL", policy={"lambda_length": LENGTH}), PENALTY, seed, usual),
                _cell(Row("CA", "CA"), NOBODY, seed, usual),
            ]
            for way in WAYS:
                for kind, (liars, attack) in KINDS.items():
                    if size > 2 or liars != 1:  # of two clients, all partners are one
                        own = replace(usual, attackers=liars % size / size, attack=attack)
                        cells.append(_cell(way, kind, seed, own))
    return cells


def _cell(row: Row, partners: str, seed: int, setting: ResolvedSetting) -> Cell:
    key = {"row": row.title, "partners": partners, "clients": setting.clients, "seed": seed}
    return make_cell(key, row, setting)


def condense(cell: Cell, lines: Sequence[Line]) -> list[Line]:
    """Return the summary of the honest clients, and the share of them that doubted other clients in the end."""
    setting, seed = cell.run.setting, cell.run.seed
    liars = {f"client {client + 1}" for client in choose_attackers(setting, seed, setting.clients)}
    honest = [line for line in lines if line["client"] not in liars]
    last = group(honest, "round")[max(line["round"] for line in honest)]
    doubting = statistics.fmean(line["doubt"] is not None for line in last)
    return [{**summarise(honest)._asdict(), "doubting": doubting}]


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
            entries = [entry(_find(here, way.title, kind)) for kind in shown]
            alone = [entry(_find(here, ALONE[way.method], title)) for title in (NOBODY, PENALTY)]
            rows.append([way.title, *entries, *alone])
        text += markdown([f"<N = {size}", *shown, NOBODY, PENALTY], rows) + "\n"
    told, size = WAYS[-1].title, SIZES[-1]
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
        ways = [way for way in WAYS if _find(here, way.title, "honest")]
        kinds = [kind for kind in KINDS if find(here, "accuracy", partners=kind)]
        for place, way in enumerate(ways):
            for turn, kind in enumerate(kinds):
                if values := _find(here, way.title, kind):
                    at = place + 0.8 * ((turn + 0.5) / len(kinds) - 0.5)
                    style: dict[str, Any] = {"color": STYLES[way.method].colour, "alpha": fades[kind], "capsize": 2}
                    axes.bar(at, statistics.fmean(values), 0.8 / len(kinds), yerr=statistics.pstdev(values), **style)
            if alone := _find(here, ALONE[way.method], NOBODY):
                axes.hlines(statistics.fmean(alone), place - 0.42, place + 0.42, color="black", linewidth=1.5)
        tidy(axes, f"N = {size}", "", "")
        axes.set_xticks(range(len(ways)), [way.title.replace(", ", ",\n") for way in ways])
    systems[0].set_ylabel(f"{setting.dataset}: test accuracy\nof honest clients [%]; black: alone")
    handles = [Patch(facecolor="black", alpha=fade, label=title) for title, fade in fades.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, title="partners")
    return save(figure, folder, write_table(lines, setting.dataset) + tell_exposure(plan(setting, 1)))


PARTNERS = Experiment("partners", plan, show, condense, seeds=SEEDS)
