"""`repshare reproduce`: the evidence, one table or figure at a time."""

import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from repshare.cli import terminal
from repshare.cli.parsing import Json, print_json
from repshare.config import Compute
from repshare.errors import ConfigError
from repshare.records import Journal
from repshare_lab.cli.learning import load, show_progress
from repshare_lab.config import Setting
from repshare_lab.results.records import RunFolder

if TYPE_CHECKING:
    from repshare.records import Line
    from repshare_lab.config import ResolvedSetting
    from repshare_lab.data import Splits
    from repshare_lab.experiments.experiment import Experiment

What = Literal[
    "table", "start", "ablation", "curves", "tsne", "traffic", "bound", "topologies", "privacy", "partners",
    "skew", "absence", "precision", "unseen", "discriminator", "averages", "codes", "length", "models", "clients",
    "space", "compute", "rates", "field",
    "leakage", "faults", "backbone",
]  # fmt: skip


def reproduce(
    what: What,
    /,
    dataset: str = "mnist",
    seeds: int | None = None,
    only: tuple[str, ...] = (),
    rounds: int | None = None,
    output: Path = Path("docs/results"),
    workers: int | None = None,
    compute: Compute = "fp32",
    json: Json = False,
) -> None:
    """Reproduce a table or figure: compute the missing cells one by one.

    table: the paper's table next to the published numbers. start: accuracy by round with and without a teacher in
    round 1. ablation: gain over learning alone for a grid of λ_KD and λ_disc. curves: train and test accuracy by
    round. tsne: the feature spaces of two clients by round. traffic: bytes per client and round next to the paper's
    formulas. bound: the mutual-information bound by round. privacy:
    accuracy against ε of differentially private releases (mnist, digits).

    partners: whether it matters what partners share: honest ones, some or all fed noise or permuted labels, none.

    Studies beyond the paper, each with IL and FL. skew: clients whose classes differ. absence: half of them absent in
    each round. precision: fewer bits on the wire. unseen: classes that a client lacks. discriminator: the
    classifier, an external one, none. averages: n_avg, M↑ and M↓. codes: targets that no client shared. length:
    features kept short. models: three kinds of network together. clients: up to 10,000. space: the common
    space by its dimension, and by rounds. compute: a ResNet9 that computes with fewer bits.

    leakage: attacks on what a relay sees of a common space (also digits, breast_cancer; cifar10: in a pretrained
    network's features, extra backbone). faults: clients with wrong labels, counts or rows, and what votes on parts do
    about them. backbone: CS in a pretrained network's features, beside AFL and FedAvg of a linear head (cifar10, extra
    backbone).

    field: thirty methods, each beside its controls, and rates, chosen for them. topologies: RS without a relay.

    table, start, curves, leakage and faults are computed. All others are drawn from their records alone.

    Each has its own folder, with its description (run.json), a line or more for each cell (records.jsonl), and what is
    made from these alone: a figure (PNG and SVG), a table (Markdown). If interrupted, it continues where it stopped;
    finished cells are never repeated, so that seeds may be added later.

    repshare reproduce table --dataset mnist --seeds 5

    repshare reproduce table --dataset cifar10 --seeds 1 --only RS clients=10

    Args:
        what: One of the tables, figures and studies above.
        dataset: mnist, fashion_mnist or cifar10; leakage: also digits and breast_cancer.
        seeds: Number of seeds. Each has its own split and starting weights. Default: as published here.
        only: Compute only the cells whose records have all of these, such as RS or clients=10.
        rounds: Number of communication rounds. Default: the paper's.
        output: Folder in which results are kept.
        workers: Number of worker processes. Default: one for each core.
        compute: Number format that networks compute with. bf16 is faster, and is noted in the records.
    """
    from repshare_lab.experiments.catalogue import EXPERIMENTS
    from repshare_lab.experiments.experiment import usual_setting

    experiment, console = EXPERIMENTS[what], Console(stderr=json)
    if experiment.datasets and dataset not in experiment.datasets:
        raise ConfigError(f"the paper has no {dataset!r}: choose {', '.join(experiment.datasets)}")
    seeds = experiment.seeds if seeds is None else seeds
    if seeds < 1:
        raise ConfigError(f"seeds must be at least 1, not {seeds}")
    path = output / experiment.folder(dataset)
    if experiment.computed_by:
        setting, held = usual_setting(dataset, sys.maxsize), Journal(path / "records.jsonl").read()
        if not held:
            last = f"{experiment.computed_by} is the last commit that computes them"
            raise ConfigError(f"{what} is drawn from its records, and {path} has none: {last}")
    else:
        setting, held = _compute(experiment, path, dataset, seeds, only, rounds, workers, compute, console)
    lines = [line for line in held if line.get("seed", 0) < seeds]
    files = experiment.show(lines, path, setting)
    if json:
        print_json({"experiment": what, "setting": experiment.describe(setting)["setting"], "lines": lines})
    for file in files:
        if file.suffix == ".md" and not json:
            console.print(file.read_text("utf-8"), highlight=False, markup=False)
        terminal.say(console, str(file))


def _compute(
    experiment: "Experiment", path: Path, dataset: str, seeds: int, only: tuple[str, ...], rounds: int | None,
    workers: int | None, compute: Compute, console: Console,
) -> "tuple[ResolvedSetting, list[Line]]":  # fmt: skip
    """Compute the cells that the folder lacks. Returns the setting, and all lines that the folder holds."""
    from repshare_lab.experiments.comparison import keep_begun
    from repshare_lab.experiments.experiment import arrange, choose, fill, missing, usual_setting
    from repshare_lab.simulation.pools import choose_workers

    @lru_cache
    def fetch(name: str) -> "Splits":
        splits, _ = load(Setting(dataset=name), None, console)
        return splits.first(test=experiment.tests)

    available = sys.maxsize if experiment.datasets == () else len(fetch(dataset).train.labels)  # () chooses its own
    setting = keep_begun(usual_setting(dataset, available, rounds or experiment.rounds), path)
    cells = [cell.computed_in(compute) for cell in choose(experiment.plan(setting, seeds), only)]
    with RunFolder(path, experiment.describe(setting), resume=True, option="--output") as folder:
        left = missing(cells, folder.records.read())
        if left:
            clients = max(cell.run.setting.clients for cell in left)
            terminal.say(console, f"{len(left)} of {len(cells)} cells to do")
            total, hint = sum(cell.run.setting.rounds for cell in left), "the same command continues from here"
            with choose_workers(workers and min(workers, clients), clients) as pool:
                show_progress(fill(experiment, left, fetch, folder, pool), total, console=console, hint=hint)
        held = folder.records.read()
        most = max([seeds, *(line.get("seed", 0) + 1 for line in held)])
        held = arrange(experiment.plan(setting, most), held)
        folder.records.keep_only(held)
    return setting, held
