"""Does the partner matter? The same honest clients with partners that are honest, that lie, or that are not there."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from repshare.config import Attack, Policy, ResolvedSetting, Setting
from repshare.experiments.experiment import Cell, Experiment
from repshare.files import write_atomically
from repshare.results.plots import COLOURS, panels, save, tidy
from repshare.results.records import Line, entry, find, summarise
from repshare.results.terminal import markdown
from repshare.simulation.attacks import choose_attackers
from repshare.simulation.plan import make_run

SIZES = (2, 10)
SEEDS = 5
LENGTH = 10.0  # λ_length of those who learn alone with short features


class Partners(NamedTuple):
    """The partners of the honest clients."""

    title: str
    liars: int  # of N clients; negative: all but so many
    attack: Attack = "flip"

    def change(self, setting: ResolvedSetting) -> ResolvedSetting:
        """Return the setting with these partners."""
        count = self.liars if self.liars >= 0 else setting.clients + self.liars
        return replace(setting, attackers=count / setting.clients, attack=self.attack)


HONEST = Partners("honest", 0)
KINDS = (
    HONEST,
    Partners("one fed noise", 1, "noise"),
    Partners("all fed noise", -1, "noise"),
    Partners("one, labels permuted", 1, "permuted"),
    Partners("all, labels permuted", -1, "permuted"),
)
NOBODY, PENALTY = "nobody", "nobody, short features"


class PartnerRow(NamedTuple):
    """A method as a row."""

    title: str
    method: str
    alone: str
    """The same learner without partners."""
    policy: Policy = Policy()


WAYS = (
    PartnerRow("RS", "RS", "IL"),
    PartnerRow("FD", "FD", "IL"),
    PartnerRow("FL", "FL", "IL"),
    PartnerRow("CS", "CS", "CA"),
    PartnerRow("CS, keep_to_self", "CS", "CA", Policy(keep_to_self=True, held_out=0.2)),
)


def plan(setting: ResolvedSetting, seeds: int) -> list[Cell]:
    """Plan every method with every kind of partners, and alone; seed by seed, so that an interrupted study is even."""
    cells = []
    for seed in range(seeds):
        for size in SIZES:
            usual = replace(setting, clients=size, eval_every=setting.rounds)
            short = replace(usual, policy=replace(usual.policy, lambda_length=LENGTH))
            alone = {("IL", NOBODY): usual, ("IL", PENALTY): short, ("CA", NOBODY): usual}
            for (method, title), own in alone.items():
                cells.append(_cell(method, title, size, seed, method, own))
            for way in WAYS:
                for kind in KINDS if size > 2 else (KINDS[0], KINDS[2], KINDS[4]):
                    own = kind.change(replace(usual, policy=way.policy))
                    cells.append(_cell(way.title, kind.title, size, seed, way.method, own))
    return cells


def _cell(row: str, partners: str, clients: int, seed: int, method: str, setting: ResolvedSetting) -> Cell:
    key = {"row": row, "partners": partners, "clients": clients, "seed": seed}
    return Cell(key, make_run(method, seed, setting), condense=partial(condense_honest, setting, seed))


def condense_honest(setting: Setting, seed: int, lines: Sequence[Line]) -> list[Line]:
    """Return the summary of the honest clients, and how many of them had a doubt about the others in the end."""
    liars = {f"client {client + 1}" for client in choose_attackers(setting, seed, setting.clients)}
    honest = [line for line in lines if line["client"] not in liars]
    last = [line for line in honest if line["round"] == max(each["round"] for each in honest)]
    doubting = statistics.fmean(line["doubt"] is not None for line in last)
    return [{**summarise(honest)._asdict(), "doubting": doubting}]


def show(lines: Sequence[Line], folder: Path, setting: Setting) -> list[Path]:
    """Make a table, and draw a bar for each method and kind of partner."""
    write_atomically(folder / "table.md", write_table(lines, setting.dataset))
    return [folder / "table.md", *draw(lines, folder, setting.dataset)]


def write_table(lines: Sequence[Line], dataset: str) -> str:
    """Write the accuracy of the honest clients by method and partners, for each number of clients."""
    seeds = len({line["seed"] for line in lines})
    text = (
        f"{dataset}: test accuracy of the honest clients after the last round [%], mean ± standard deviation over\n"
        f"{seeds} seeds. Alone, RS, FD and FL are IL, and CS is CA.\n\n"
    )
    for size in SIZES:
        here = [line for line in lines if line["clients"] == size]
        shown = [kind.title for kind in KINDS if any(_find(here, way.title, kind.title) for way in WAYS)]
        rows = []
        for way in WAYS:
            entries = [entry(_find(here, way.title, title)) for title in shown]
            rows.append([way.title, *entries, *(entry(_find(here, way.alone, title)) for title in (NOBODY, PENALTY))])
        text += markdown([f"N = {size}", *shown, NOBODY, PENALTY], rows) + "\n"
    told = WAYS[-1].title, SIZES[-1]
    for kind in KINDS:
        if found := find(lines, "doubting", row=told[0], clients=told[1], partners=kind.title):
            share = statistics.fmean(found)
            text += f"- {told[0]}, N = {told[1]}, {kind.title}: {share:.0%} of the honest doubt the others.\n"
    return text


def _find(lines: Sequence[Line], row: str, partners: str) -> list[float]:
    return find(lines, "accuracy", row=row, partners=partners)


def draw(lines: Sequence[Line], folder: Path, dataset: str) -> list[Path]:
    """Draw a group of bars for each method, the paler the worse the partners; a line where it is without any."""
    from matplotlib.patches import Patch

    figure, systems = panels(11, 4.6, 1, len(SIZES), sharey=True)
    fades = {kind.title: 1 - 0.8 * turn / (len(KINDS) - 1) for turn, kind in enumerate(KINDS)}
    for axes, size in zip(systems, SIZES, strict=True):
        here = [line for line in lines if line["clients"] == size]
        ways = [way for way in WAYS if _find(here, way.title, HONEST.title)]
        kinds = [title for title in fades if any(_find(here, way.title, title) for way in ways)]
        wide = 0.8 / max(1, len(kinds))
        for place, way in enumerate(ways):
            for turn, title in enumerate(kinds):
                if values := _find(here, way.title, title):
                    at = place + 0.8 * ((turn + 0.5) / len(kinds) - 0.5)
                    mean, spread, colour = statistics.fmean(values), statistics.pstdev(values), COLOURS[way.method]
                    axes.bar(at, mean, wide, yerr=spread, color=colour, alpha=fades[title], capsize=2)
            if alone := _find(here, way.alone, NOBODY):
                axes.hlines(statistics.fmean(alone), place - 0.42, place + 0.42, color="black", linewidth=1.5)
        tidy(axes, f"N = {size}", "", "")
        axes.set_xticks(range(len(ways)), [way.title.replace(", ", ",\n") for way in ways])
    systems[0].set_ylabel(f"{dataset}: test accuracy\nof honest clients [%]; black: alone")
    handles = [Patch(facecolor="black", alpha=fade, label=title) for title, fade in fades.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, title="partners")
    return save(figure, folder)


PARTNERS = Experiment("partners", "whether it matters what partners share", plan, show, seeds=SEEDS)
