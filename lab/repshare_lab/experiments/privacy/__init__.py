"""Accuracy against ε: what differentially private releases still teach."""

from collections.abc import Sequence
from pathlib import Path

from repshare.records import Line
from repshare_lab.config import ResolvedSetting
from repshare_lab.experiments.experiment import drawn
from repshare_lab.experiments.privacy import features, space


def show(lines: Sequence[Line], folder: Path, setting: ResolvedSetting) -> list[Path]:
    """Make a table and a figure of each."""
    titles = {*features.ROWS, *features.END_TO_END}
    of_features = [line for line in lines if line["row"] in titles]
    in_space = [line for line in lines if line["row"] not in titles]
    shown = features.show(of_features, folder, setting) if of_features else []
    return [*shown, *(space.show(in_space, folder, setting) if in_space else [])]


PRIVACY = drawn("privacy", show, tuple({**features.AMOUNTS, **space.AMOUNTS}))
