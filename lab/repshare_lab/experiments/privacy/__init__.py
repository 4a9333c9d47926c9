"""Accuracy against ε: what differentially private releases still teach."""

from collections.abc import Sequence
from pathlib import Path

from repshare.records import Line
from repshare_lab.config import ResolvedSetting
from repshare_lab.experiments import partners
from repshare_lab.experiments.experiment import Cell, Experiment, at_the_end
from repshare_lab.experiments.privacy import features, space


def plan(setting: ResolvedSetting, seeds: int) -> list[Cell]:
    """Plan releases in a common space. Of those of networks' features there are records only."""
    return space.plan(setting, seeds)


def show(lines: Sequence[Line], folder: Path, setting: ResolvedSetting) -> list[Path]:
    """Make a table and a figure of each."""
    of_features = [line for line in lines if line["row"] in features.TITLES]
    in_space = [line for line in lines if line["row"] not in features.TITLES]
    shown = features.show(of_features, folder, setting) if of_features else []
    return [*shown, *(space.show(in_space, folder, setting) if in_space else [])]


def condense(cell: Cell, lines: Sequence[Line]) -> list[Line]:
    """Return the run's summary: of the honest clients, where others send noise."""
    return (partners.condense if cell.run.setting.attackers else at_the_end)(cell, lines)


PRIVACY = Experiment("privacy", plan, show, condense, seeds=5, datasets=tuple({**features.CLIENTS, **space.AMOUNTS}))
