"""What it costs to have no server: RS over several topologies beside a relay and independent learning, as a list of runs."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from repshare.config import Policy, Run, Setting
from repshare.data import Splits
from repshare.experiments import Cell, Row
from repshare.results import Line
from repshare.screen import traffic
from repshare.simulation import resolve
from repshare.topology import Topology


class Way(NamedTuple):
    """A row of the study: whom a client learns from. `m_down` is how many peers, or with a relay how many observations."""

    title: str
    method: str = "RS"
    m_down: int = 1
    topology: Topology | None = None


WAYS = [
    Way("alone (IL)", "IL"),
    Way("relay"),
    Way("complete, 1 peer", m_down=1, topology="complete"),
    Way("complete, 2 peers", m_down=2, topology="complete"),
    Way("complete, 5 peers", m_down=5, topology="complete"),
    Way("ring, 2 peers", m_down=2, topology="ring"),
    Way("regular, 2 peers", m_down=2, topology="regular"),
    Way("random, 2 peers", m_down=2, topology="random"),
    Way("star, 2 peers", m_down=2, topology="star"),
    Way("small world, 2 peers", m_down=2, topology="small_world"),
]
SEEDS = 5
SIZE = 10  # clients, of the whole study
OTHER_SIZES = (5, 20)  # at which only a part of it is done
AT_OTHER_SIZES = {"alone (IL)", "relay", "complete, 1 peer", "complete, 2 peers", "complete, 5 peers", "ring, 2 peers"}


def plan_study(setting: Setting, seeds: int, splits: Splits) -> list[Cell]:
    """All ways at one size, then some of them at others; seed by seed. Tested after the last round."""
    setting = resolve(setting, len(splits.train.labels))
    setting = replace(setting, eval_every=setting.rounds or 1)
    whole = [_cell(way, SIZE, seed, setting) for seed in range(seeds) for way in WAYS]
    part = [
        _cell(way, clients, seed, setting)
        for seed in range(seeds)
        for clients in OTHER_SIZES
        for way in WAYS
        if way.title in AT_OTHER_SIZES
    ]
    return whole + part


def _cell(way: Way, clients: int, seed: int, setting: Setting) -> Cell:
    own = replace(setting, clients=clients, topology=way.topology, policy=Policy(m_down=way.m_down))
    return Cell(Row(way.title, way.method), Run(way.method, seed, own))


def describe_study(cells: Sequence[Cell]) -> dict[str, Any]:
    """What its run.json says: all that the cells have in common."""
    setting = asdict(cells[0].run.setting)
    setting["policy"].pop("m_down")
    common = {key: value for key, value in setting.items() if key not in ("clients", "topology", "data_folder")}
    return {"ways": [way._asdict() for way in WAYS], "setting": common}


def study_markdown(dataset: str, lines: Sequence[Line]) -> str:
    """Accuracy, and what a client downloads in a round, by way and number of clients."""
    sizes = sorted({line["clients"] for line in lines})
    heads = [f"N = {size}" for size in sizes] + [f"down, N = {size}" for size in sizes]
    parts = [
        f"{dataset}: mean test accuracy over clients after the last round [%], ± standard deviation over seeds (how many,",
        "where not 5, in brackets), and what a client downloads in a round.",
        "",
        "| | " + " | ".join(heads) + " |",
        "|---|" + "---:|" * len(heads),
    ]
    for way in WAYS:
        cells = [[line for line in lines if (line["row"], line["clients"]) == (way.title, size)] for size in sizes]
        entries = [_accuracy(cell) for cell in cells] + [_down(cell) for cell in cells]
        parts.append(f"| {way.title} | " + " | ".join(entries) + " |")
    return "\n".join(parts) + "\n"


def _accuracy(cell: Sequence[Line]) -> str:
    accuracies = [line["accuracy"] for line in cell]
    if not cell:
        return ""
    spread = f" ± {statistics.stdev(accuracies):.2f}" if len(cell) > 1 else ""
    return f"{statistics.fmean(accuracies):.2f}{spread}" + (f" ({len(cell)})" if len(cell) != SEEDS else "")


def _down(cell: Sequence[Line]) -> str:
    return traffic(statistics.fmean(map(down, cell))) if cell else ""


def down(line: Line) -> float:
    """Bytes that a client downloads in a round."""
    return float(line["bytes_down"] / line["client_rounds"])


def draw_study(dataset: str, lines: Sequence[Line], path: Path) -> None:
    """."""
