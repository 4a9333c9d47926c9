"""`repshare compare`: learning, simulated on one machine."""

import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from repshare.cli import terminal
from repshare.cli.interrupts import interruptible
from repshare.cli.parsing import Json, print_json
from repshare.errors import ConfigError, DataError
from repshare.fields import check_least
from repshare.imports import check_installed
from repshare_lab.cli.progress import progress
from repshare_lab.config import METHODS, Setting

if TYPE_CHECKING:
    from repshare_lab.data import Splits
    from repshare_lab.experiments.comparison import Step

RUNS = Path("runs")


@dataclass(frozen=True)
class Output:
    """The place of results, and how the work is done: nothing here changes a result."""

    name: str | None = None
    """Name of the run: its folder in runs/. Default: the dataset and the time."""
    resume: bool = False
    """Continue the run with this --name: as it was begun, or with the same options and more methods or seeds."""
    keep_models: bool = False
    """Keep the final models in the run's folder."""
    keep_vectors: Path | None = None
    """Folder that keeps the vectors of a backbone, so that no run maps a sample again."""
    json: Json = False
    workers: int | None = None
    """Number of worker processes; 0 for none, which is slower and easier to debug.
    Default: one for each core, at most one a client."""
    checkpoint_every: int | None = None
    """Number of rounds between checkpoints. Default: as many as take about a minute."""

    def __post_init__(self) -> None:
        check_least(self, workers=0, checkpoint_every=1)
        if self.resume and self.name is None:
            raise ConfigError("--resume needs --name: which run should be continued?")
        if self.name is not None and (Path(self.name).is_absolute() or ".." in Path(self.name).parts):
            raise ConfigError(f"--name {self.name} leads out of {RUNS}/: give a name in it")


def compare(
    setting: Setting,
    output: Output,
    methods: tuple[str, ...] = METHODS,
    seeds: int = 1,
    fallback: str | None = None,
) -> None:
    """Compare methods on the same split and seeds: a table, a figure, and all records.

    CL trains one model on all data, and IL each client alone. FL averages weights, FD averages logits. RS shares
    class means of each client's own representations, CS and CA class sums in a common space. `repshare methods` has
    all, with their options.

    repshare compare --dataset digits --clients 3 --rounds 10

    repshare compare --methods IL RS --partition dirichlet --alpha 0.5 --seeds 3

    repshare compare --methods FL examples/fedprox.py:PROX --method-options PROX.mu=0.1

    Args:
        methods: Methods to compare: any of `repshare methods`, or your own as file.py:NAME.
        seeds: Number of seeds. Each has its own split and starting weights.
        fallback: Dataset to use, with a warning, if the first cannot be downloaded.
    """
    check_installed("torch", "matplotlib")
    from repshare.cli.party.preview import policy_warnings
    from repshare_lab.data.arrays import take
    from repshare_lab.experiments import comparison
    from repshare_lab.results import findings
    from repshare_lab.results.records import read_run
    from repshare_lab.results.terminal import UNLIMITED, comparison_tables, fit
    from repshare_lab.simulation import resolve
    from repshare_lab.simulation.embedding import embed
    from repshare_lab.simulation.pools import choose_workers

    console = Console(stderr=output.json)
    if output.resume and (setting, methods, seeds) == (Setting(), METHODS, 1):
        setting, methods, seeds = read_run(_folder(output, setting)) or (setting, methods, seeds)
    chosen = comparison.choose_methods(methods, setting).values()
    splits, setting = load(setting, fallback, console)
    simulated = replace(setting.policy, seeded_noise=True)
    for warning in policy_warnings(simulated):
        terminal.say(console, warning, "yellow")
    folder, given = _folder(output, setting), vars(setting)
    if any(each.in_space for each in chosen):
        resolved, cache = resolve(setting, splits), output.keep_vectors
        splits = embed(splits, resolved, resolved.samples, cache=cache, watch=terminal.watch_mapping(console))
    with choose_workers(output.workers, setting.clients) as workers:
        result = comparison.compare(
            methods=methods, seeds=seeds, splits=splits, folder=folder, resume=output.resume,
            keep_models=output.keep_models, workers=workers, checkpoint_every=output.checkpoint_every,
            follow=partial(show_progress, console=console, hint=f"resume with --name {folder.name} --resume"),
            tell=partial(terminal.say, console), **given,
        )  # fmt: skip
    described, lines = comparison.describe(result.runs, result.setting), result.records
    title = findings.name_setting(described["setting"])
    if output.json:
        results = {row.pop("method"): row for row in result.rows}
        print_json({"methods": results, "config": described})
    else:
        titles = {method.name: method.title for method in chosen}
        tables = [fit(table, console) for table in comparison_tables(lines, described["setting"], title, titles)]
        if not console.is_terminal:
            console.width = UNLIMITED
        console.print(*tables, sep="\n", highlight=False)
        example, space = take(splits.normalised().train.inputs, slice(1)), splits.embedded and splits.embedded.space
        if told := comparison.tell_exposure(result.runs, example, splits.classes, space):
            terminal.say(console, told)
    from repshare_lab.results import plots

    most, differ = max(run.setting.rounds for run in result.runs), findings.clients_differ(described["setting"], lines)
    plots.draw_accuracy(lines, folder / "figure.png", f"{title}, {most} rounds", differ=differ)
    plots.draw_partition(comparison.who_has_what(result.runs[0], splits), folder / "partition.png", title)
    files = {"figure": "figure.png", "who has what": "partition.png", "records": "records.jsonl"}
    for what, file in (files | ({"models": "models"} if output.keep_models else {})).items():
        terminal.say(console, f"{what:<13}{folder / file}")


def show_progress(steps: "Generator[Step]", total: int, *, console: Console, hint: str) -> None:
    """Carry out runs, and show how far they are. Ctrl-C ends them after a round, and says `hint`."""
    with progress(console) as bar, interruptible(hint) as until_interrupted:
        task, done = bar.add_task("", total=total), 0
        for title, round, rounds in until_interrupted(steps):
            bar.update(task, completed=done + round, description=title)
            done += round if round == rounds else 0


def _folder(output: Output, setting: Setting) -> Path:
    if output.name is not None:
        return RUNS / output.name
    wanted = RUNS / f"{Path(setting.dataset.partition(':')[0]).stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    paths = chain([wanted], (wanted.with_name(f"{wanted.name}-{number}") for number in count(2)))
    return next(path for path in paths if not path.exists())


def load(setting: Setting, fallback: str | None, console: Console) -> "tuple[Splits, Setting]":
    """Load the data set of a setting. If it cannot be downloaded, say so, and load the fallback instead."""
    from repshare.space.fourier import find_reach
    from repshare_lab.data import load as fetch

    test_file = Path(setting.test_file).expanduser() if setting.test_file else None
    try:
        splits = fetch(setting.dataset, progress=True, label=setting.label, test_file=test_file)
        for note in splits.notes:
            terminal.say(console, note)
        as_they_are = not (setting.standardise or splits.standardise)
        if as_they_are and (reach := find_reach(splits.train.inputs)) is not None:
            told = f"columns reach {reach:,.4g}: networks and the usual space expect -4 to 4; see --standardise"
            terminal.say(console, told, "yellow")
        return splits, setting
    except DataError as error:
        if fallback is None:
            raise
        terminal.say(console, f"{error}\nUsing {fallback} instead of {setting.dataset}.", "yellow")
        return fetch(fallback), replace(setting, dataset=fallback)
