"""`compare` and `run` as lists of runs, each carried out round by round, and resumed where it was interrupted."""

import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from repshare.errors import ConfigError
from repshare.imports import describe_code, is_reference
from repshare.methods import METHODS, Method
from repshare.randomness import numpy_stream
from repshare.records import Journal, Line
from repshare.space.exposure import PROMISED, Exposure
from repshare.space.space import Space
from repshare_lab.config import METHODS as USUAL
from repshare_lab.config import ResolvedSetting, Run, Setting
from repshare_lab.data import Splits, histogram, load
from repshare_lab.data.arrays import Inputs
from repshare_lab.methods import find_method
from repshare_lab.results.findings import clients_differ, summarise_own
from repshare_lab.results.records import RunFolder, group, read_run, summarise
from repshare_lab.simulation import Checkpoint, Workers, following, resolve, simulate
from repshare_lab.simulation.checkpoint import States
from repshare_lab.simulation.embedding import embed
from repshare_lab.simulation.plan import deal, has_space, make_agreement, make_plan, make_run, make_task
from repshare_lab.simulation.pools import choose_workers
from repshare_lab.simulation.schedule import is_ever_tested

AnySetting = TypeVar("AnySetting", bound=Setting)
Step = tuple[str, int, int]  # a run's title, the round that is over, and the number of its rounds


def plan_comparison(setting: Setting, methods: Sequence[str], seeds: int, splits: Splits) -> list[Run[ResolvedSetting]]:
    """Plan every method on the same splits and seeds. Raises on anything that could not be carried out."""
    resolved, chosen = resolve(setting, splits), choose_methods(methods, setting)
    runs = [make_run(name, seed, resolved) for seed in range(seeds) for name in chosen]
    for run in runs[: len(chosen)]:
        make_task(make_plan(run, splits))
    for run in runs:
        if find_method(run.method).models != "pooled" and not is_ever_tested(run.setting, run.seed):
            why = f"seed {run.seed}: no client is present in any round that is tested"
            raise ConfigError(f"{why}: use more clients, more tests or fewer absences")
    return runs


def choose_methods(methods: Sequence[str], setting: Setting) -> dict[str, Method]:
    """Return the methods, by their names in a run, with their options. Raises if one is unknown or named twice."""
    found = {each if is_reference(each) else each.upper(): find_method(each, setting) for each in methods}
    if not found:
        raise ConfigError(f"methods are missing: choose from {', '.join(METHODS)}, or your own as file.py:NAME")
    names = [method.name.upper() for method in found.values()]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"two methods are called {twice[0]}: give one of them another name")
    for option in setting.method_options:
        name, dot, _ = option.partition(".")
        if not dot or name.upper() not in names:
            told = ", ".join(method.name for method in found.values())
            raise ConfigError(f"{option!r} is no METHOD.option=value: the methods of this comparison are {told}")
    return found


def keep_begun(setting: AnySetting, path: Path) -> AnySetting:
    """Return the setting without a teacher in round 1 where the runs that a folder holds had none."""
    begun = read_run(path)
    late = begun is not None and begun[0].policy.start == "none"
    return replace(setting, policy=replace(setting.policy, start="none")) if late else setting


def name_of(run: Run[Setting]) -> str:
    """Return the name of the run's method in records, tables and figures."""
    return find_method(run.method).name


def who_has_what(run: Run[Setting], splits: Splits) -> NDArray[np.int64]:
    """Count samples by client and class (clients, classes)."""
    labels = splits.train.labels[: run.setting.samples]
    parts = deal(run.setting, labels, numpy_stream(run.seed, "partition"))
    return histogram(labels, parts, splits.classes)


def describe(runs: Sequence[Run[Setting]], setting: ResolvedSetting) -> dict[str, Any]:
    """Return the contents of run.json."""
    methods = list(dict.fromkeys(run.method for run in runs))
    described = {"methods": methods, "seeds": sorted({run.seed for run in runs}), "setting": asdict(setting)}
    own = map(find_method, filter(is_reference, methods))
    described["titles"] = {method.name: method.title for method in own}
    return described | describe_code([*methods, setting.dataset, *setting.model, *setting.space])


def carry_out(
    runs: Sequence[Run[ResolvedSetting]],
    splits: Splits,
    folder: RunFolder,
    workers: Workers,
    *,
    checkpoint_every: int | None = None,
    keep_models: bool = False,
) -> Generator[Step]:
    """Carry out the runs that the folder does not hold yet, writing each round's records as it ends.

    A run that was interrupted resumes from its last checkpoint, and what was recorded after that is recorded again.
    """
    finished = folder.finished()
    for run in runs:
        called, last = name_of(run), run.setting.rounds
        if (called, run.seed) in finished:
            yield f"{called}, seed {run.seed}", last, last
            continue
        name = f"{called}-{run.seed}"
        models = _models(folder, called, run.seed) if keep_models else None
        yield from resume_run(run, splits, folder, name, folder.records, workers, checkpoint_every, models)
        folder.finish(called, run.seed)
        checkpoints(folder, name).clear()
    _arrange(folder.records, runs)


def _models(folder: RunFolder, method: str, seed: int) -> Path:
    """Return the folder of a run's models."""
    return folder.path / "models" / f"{method}-{seed}"


def _arrange(journal: Journal, runs: Sequence[Run[Setting]]) -> None:
    """Bring the records into the order of the runs, in whatever order these were carried out."""
    lines, places = journal.read(), {(name_of(run), run.seed): place for place, run in enumerate(runs)}
    ordered = sorted(lines, key=lambda line: places[line["method"], line["seed"]])
    if ordered != lines:
        journal.keep_only(ordered)


def resume_run(
    run: Run[ResolvedSetting],
    splits: Splits,
    folder: RunFolder,
    name: str,
    journal: Journal,
    workers: Workers,
    checkpoint_every: int | None = None,
    models: Path | None = None,
) -> Generator[Step]:
    """Simulate from the last checkpoint, with the journal holding this run's records up to there."""
    checkpoint = Checkpoint(checkpoints(folder, name).folder, run)
    own, done = (name_of(run), run.seed), checkpoint.manifest.round
    lines = journal.read()
    journal.keep_only(line for line in lines if (line["method"], line["seed"]) != own or line["round"] <= done)
    steps = simulate(run, splits, workers, checkpoint, checkpoint_every=checkpoint_every, models=models)
    with following(steps) as rounds:
        for number, records in enumerate(rounds, start=done + 1):
            journal.add({"method": own[0], "seed": run.seed, **asdict(record)} for record in records)
            yield f"{own[0]}, seed {run.seed}", number, run.setting.rounds


def checkpoints(folder: RunFolder, name: str) -> States:
    """Return the folder with the states of an unfinished run."""
    return States(folder.path / "checkpoints" / name)


def tell_exposure(
    runs: Sequence[Run[ResolvedSetting]], example: Inputs, classes: int, space: Space | None = None
) -> str:
    """The exposure of single samples by a client's release of CS, in words; empty without such runs.

    Args:
        runs: The runs; only those of CS without noise count.
        example: A batch of inputs.
        classes: The number of classes.
        space: The space, if it is a backbone.
    """
    areas = []
    for run in runs:
        if run.method == "CS" and run.setting.policy.epsilon is None:
            own = run.setting.samples // run.setting.clients
            behind = own - int(run.setting.policy.held_out * own)
            dimension = (space or make_agreement(run, example).space).dimension
            areas.append(Exposure(dimension, classes, behind, sums=False).auc)
    if not areas:
        return ""
    told = " to ".join(dict.fromkeys(f"{area:.2f}" for area in (min(areas), max(areas))))
    return (
        f"A release of CS tells who is among a client's samples with AUC {told}, by the exposure rule (0.50 is a "
        f"guess, {PROMISED:.2f} is allowed). CA releases nothing."
    )


def list_results(lines: Sequence[Line], setting: Setting) -> list[Line]:
    """Return a row for each method: its summary, and, where clients' classes differ, its accuracies by own mix."""
    differ, rows = clients_differ(asdict(setting), lines), []
    for method, own in group(lines, "method").items():
        summary = summarise(own)
        std = summary.std_over_clients if summary.std_over_seeds is None else summary.std_over_seeds
        rows.append({"method": method, "std": std, **summary._asdict()})
        rows[-1] |= summarise_own(own).means() if differ else {}
    return rows


@dataclass(frozen=True)
class Comparison:
    """The results of `compare`: `pandas.DataFrame(result.rows)` is its table."""

    rows: list[Line]
    """A row for each method: accuracy in percent, its spread over seeds and over clients, bytes, seconds."""
    records: list[Line]
    """A row for each method, seed, round and client: the fields of `Record`."""
    setting: ResolvedSetting
    """The setting, with all that was left open filled in."""
    folder: Path | None
    """Where all of this is kept, if anywhere."""
    runs: list[Run[ResolvedSetting]]
    """What was carried out: every method with every seed."""


def exhaust(steps: Generator[Step], rounds: int) -> None:
    """Carry all steps out. A progress bar does the same, and shows them."""
    for _ in steps:
        pass


def compare(
    dataset: str = "mnist",
    methods: Sequence[str] = USUAL,
    *,
    seeds: int = 1,
    splits: Splits | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    keep_models: bool = False,
    workers: Workers | int | None = None,
    checkpoint_every: int | None = None,
    follow: Callable[[Generator[Step], int], None] = exhaust,
    tell: Callable[[str], object] = warnings.warn,
    **options: Any,
) -> Comparison:
    """Compare methods on the same splits and seeds: `repshare compare` calls this.

    Worker processes run your script again: call this under `if __name__ == "__main__":`, or with `workers=0`.

    Args:
        dataset: Name of the data set, or your own as file.py:function.
        methods: Methods to compare, by their letters, or your own as file.py:NAME.
        seeds: Number of seeds. Each has its own split and starting weights.
        splits: The data, if you have them already. The name of the data set is then only a name.
        folder: Folder for run.json and the records. Default: none is kept.
        resume: Continue what the folder holds. There may be more methods or seeds than it has.
        keep_models: Keep the final models in the folder.
        workers: Number of worker processes; 0 uses none. Or workers of your own, already entered. Default: one for
            each core, at most one for each client.
        checkpoint_every: Number of rounds between checkpoints. Default: as many as take about a minute.
        follow: Carries out the steps, each the end of a round; it also gets their number. Default: without a word.
        tell: Gets each note about what is left out.
        options: Any field of `Setting`, such as clients, rounds, partition or policy.
    """
    if seeds < 1:
        raise ConfigError(f"seeds must be at least 1, not {seeds}")
    if folder is None and (resume or keep_models):
        raise ConfigError("resume and keep_models need a folder")
    found = splits or load(dataset)
    wanted = Setting(dataset=dataset, **options)
    setting = resolve(wanted if folder is None else keep_begun(wanted, Path(folder)), found)
    if any(method.in_space for method in choose_methods(methods, setting).values()):
        found = embed(found, setting, setting.samples)
    runs = plan_comparison(setting, _choose_usual(methods, setting, found, tell), seeds, found)
    with ExitStack() as stack:
        path = stack.enter_context(TemporaryDirectory()) if folder is None else folder
        grows = RunFolder(Path(path), describe(runs, setting), resume=resume or folder is None, grows=True)
        held = stack.enter_context(grows)
        held.grow(describe(runs, setting))
        if keep_models and (gone := [each for each in held.finished() if not _models(held, *each).is_dir()]):
            raise ConfigError(f"models were not kept: {gone[0][0]}, seed {gone[0][1]}. Choose another folder")
        if not isinstance(workers, Workers):
            workers = stack.enter_context(choose_workers(workers, setting.clients))
        steps = carry_out(runs, found, held, workers, checkpoint_every=checkpoint_every, keep_models=keep_models)
        follow(steps, sum(run.setting.rounds for run in runs))
        lines = held.records.read()
    rows = list_results(lines, setting)
    return Comparison(rows, lines, setting, None if folder is None else Path(folder), runs)


def _choose_usual(
    methods: Sequence[str], setting: ResolvedSetting, splits: Splits, tell: Callable[[str], object]
) -> Sequence[str]:
    """Leave those of the usual methods out that the models or the data do not suit. Methods that were chosen stay."""
    if tuple(methods) != USUAL:
        return methods
    if len(set(setting.model)) > 1:
        methods = [each for each in methods if each != "FL"]
        tell(f"FL averages weights, so it needs one model: left out with {', '.join(setting.model)}.")
    if not has_space(setting, splits.train.inputs):
        methods = [each for each in methods if not find_method(each).in_space]
        tell("CA and CS are left out: no common space suits these inputs (see --space)")
    return methods
