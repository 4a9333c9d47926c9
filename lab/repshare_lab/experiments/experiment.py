"""A table or a figure as a list of cells: runs that are carried out one by one, each leaving its lines behind."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from repshare.config import Compute
from repshare.errors import ConfigError
from repshare.imports import describe_code
from repshare.measures import View
from repshare.records import Journal, Line
from repshare_lab.config import ResolvedSetting, Run, Setting
from repshare_lab.data import Splits
from repshare_lab.data.contents import DATASETS
from repshare_lab.experiments import comparison
from repshare_lab.experiments.comparison import Step, checkpoints, resume_run
from repshare_lab.results.records import RunFolder, summarise
from repshare_lab.simulation import Workers, following
from repshare_lab.simulation.plan import OTHER_DATA, PAPER, make_run, resolve

EVERY = 1000  # seeds: more than any record has


class Cell(NamedTuple):
    """One run of an experiment."""

    key: Line
    """The first fields of each of its lines: no other cell has the same."""
    run: Run[ResolvedSetting]
    looks: tuple[int, ...] = ()
    """Rounds after which its clients are looked at."""

    def computed_in(self, compute: Compute) -> "Cell":
        """This cell with networks of another precision. Its key stays: it is computed once, in either.

        A cell that says its own precision keeps it.
        """
        if self.run.setting.policy.compute != "fp32":
            return self
        setting = self.run.setting
        setting = replace(setting, policy=replace(setting.policy, compute=compute))
        return self._replace(run=replace(self.run, setting=setting))

    @property
    def title(self) -> str:
        """Its title in a progress bar."""
        return ", ".join(f"{name} {value}" for name, value in self.key.items())

    @property
    def words(self) -> set[str]:
        """The words by which it can be chosen."""
        return {word for name, value in self.key.items() for word in (str(value), f"{name}={value}")}

    @property
    def file_name(self) -> str:
        """Its name on disk while it is not finished."""
        return "-".join(str(value) for value in self.key.values()).replace(" ", "-").replace("/", "-")


class Row(NamedTuple):
    """One kind of run: a row of a table, or a curve."""

    title: str
    method: str
    setting: Mapping[str, Any] = {}
    """The differences from the experiment's setting."""
    policy: Mapping[str, Any] = {}
    """The differences from its policy."""


def make_cell(key: Line, row: Row, setting: ResolvedSetting, looks: tuple[int, ...] = ()) -> Cell:
    """Return the cell of a row with this setting, and the key's seed."""
    own = replace(setting, policy=replace(setting.policy, **row.policy), **row.setting)
    return Cell(key, make_run(row.method, key["seed"], own), looks)


def at_the_end(_: Cell, lines: Sequence[Line]) -> list[Line]:
    """Return the run's summary: one line."""
    return [summarise(lines)._asdict()]


class Experiment(NamedTuple):
    """A table or a figure: which runs, what is kept of each, and how it is shown."""

    name: str
    """Also of its folder."""
    plan: Callable[[ResolvedSetting, int], list[Cell]]
    """All cells for a setting and a number of seeds; more may be added later, to the same folder."""
    show: Callable[[Sequence[Line], Path, ResolvedSetting], list[Path]]
    """Write figures and tables into the folder, from its lines alone; which files these are."""
    condense: Callable[[Cell, Sequence[Line]], list[Line]] = at_the_end
    """Reduce a cell's records, and what was seen of its clients, to what is kept."""
    look: Callable[[Cell, Mapping[int, View], Splits], Line] | None = None
    """Reduce a look at the clients (each client's view of the first test samples) to what is kept."""
    seeds: int = 1
    """The number of seeds, unless given."""
    datasets: tuple[str, ...] | None = None
    """Data sets that make sense. Default: any. None at all: the experiment chooses its own."""
    rounds: int | None = None
    """The number of rounds, unless given. Default: the paper's."""
    tests: int | None = None
    """Test samples that are used. Default: all."""
    carry_out: Callable[[Cell, Splits], list[Line]] | None = None
    """Carry out a cell that is more than one run, and return what is kept of it."""
    computed_by: str = ""
    """The last commit that computes its records, where here they are only drawn."""

    def folder(self, dataset: str) -> str:
        """Return the name of its folder for a data set."""
        return self.name if self.datasets == () else f"{self.name}-{Path(dataset.partition(':')[0]).stem}"

    def describe(self, setting: Setting) -> dict[str, Any]:
        """Return the contents of its run.json: what all cells, those to be added later too, have in common."""
        described = {"experiment": self.name, "setting": {} if self.datasets == () else asdict(setting)}
        return described | describe_code([setting.dataset])


LAST = "38a6b14d"  # the last commit that computes the records that are only drawn here, unless said otherwise
# Below a table that has CS: what `tell_exposure` told of the runs whose records these are.
EXPOSED = (
    "A release of CS tells who is among a client's samples with AUC 1.00, by the exposure rule (0.50 is a guess, 0.60 "
    "is allowed). CA releases nothing."
)


def drawn(
    name: str,
    show: Callable[[Sequence[Line], Path, ResolvedSetting], list[Path]],
    datasets: tuple[str, ...] | None = None,
    computed_by: str = LAST,
) -> Experiment:
    """Return an experiment of which there are records only."""
    return Experiment(name, lambda setting, seeds: [], show, seeds=EVERY, datasets=datasets, computed_by=computed_by)


Load = Callable[[str], Splits]


def usual_setting(dataset: str, available: int, rounds: int | None = None) -> ResolvedSetting:
    """Return the setting that experiments change. Their folders hold it: it stays, whatever defaults become."""
    rounds = rounds or PAPER.get(dataset, OTHER_DATA).rounds
    usual = Setting(dataset=dataset, rounds=rounds, eval_every=10)
    return resolve(usual, available)


def fill(
    experiment: Experiment, cells: Sequence[Cell], load: Load, folder: RunFolder, workers: Workers
) -> Generator[Step]:
    """Compute the cells that the folder does not hold yet. A cell's lines are all there, or none."""
    for cell in cells:
        held, last = folder.records.read(), cell.run.setting.rounds
        if _holds(held, cell):
            yield cell.title, last, last
            continue
        if experiment.carry_out is not None:
            kept = experiment.carry_out(cell, load(cell.run.setting.dataset))
            folder.records.keep_only([*held, *({**cell.key, **line} for line in kept)])
            yield cell.title, last, last
            continue
        part = Journal(folder.path / "checkpoints" / f"{cell.file_name}.jsonl")
        part.path.parent.mkdir(exist_ok=True)
        splits = load(cell.run.setting.dataset)
        with following(resume_run(cell.run, splits, folder, cell.file_name, part, workers, None)) as rounds:
            for _, number, _ in rounds:
                if number in cell.looks and experiment.look is not None:
                    seen = experiment.look(cell, workers.look(), splits)
                    part.add([{"method": cell.run.method, "seed": cell.run.seed, "round": number, "seen": seen}])
                yield cell.title, number, last
        compute = cell.run.setting.policy.compute
        marked: Line = {} if compute == "fp32" else {"compute": compute}
        kept = [{**cell.key, **line, **marked} for line in experiment.condense(cell, part.read())]
        folder.records.keep_only([*held, *kept])
        part.path.unlink()
        checkpoints(folder, cell.file_name).clear()


def tell_exposure(cells: Sequence[Cell]) -> str:
    """Return the last line of a table: what releases of CS show of single samples, where the data set is known."""
    known = DATASETS.get(cells[0].run.setting.dataset)
    if known is None:
        return ""
    example = np.zeros((1, *known.shape), np.float32)
    told = comparison.tell_exposure([cell.run for cell in cells], example, known.classes)
    return told and f"\n{told}\n"


def choose(cells: Sequence[Cell], words: Sequence[str]) -> list[Cell]:
    """Return the cells that have all these words in their keys, letter for letter: a value, or name=value."""
    chosen = [cell for cell in cells if set(words) <= cell.words]
    if cells and not chosen:
        known = dict.fromkeys(str(value) for cell in cells for value in cell.key.values())
        raise ConfigError(f"no cell has all of {', '.join(words)}: there are {', '.join(known)}")
    return chosen


def missing(cells: Sequence[Cell], lines: Sequence[Line]) -> list[Cell]:
    """Return the cells that have no line yet."""
    return [cell for cell in cells if not _holds(lines, cell)]


def arrange(cells: Sequence[Cell], lines: Sequence[Line]) -> list[Line]:
    """Return the lines in the order of the cells, in whatever order these were done. Others stay where they are."""
    places = [next((place for place, cell in enumerate(cells) if _holds([line], cell)), None) for line in lines]
    ordered = iter(sorted((place, index) for index, place in enumerate(places) if place is not None))
    return [line if place is None else lines[next(ordered)[1]] for line, place in zip(lines, places, strict=True)]


def _holds(lines: Sequence[Line], cell: Cell) -> bool:
    return any(cell.key.items() <= line.items() for line in lines)


def what_was_seen(_: Cell, lines: Sequence[Line]) -> list[Line]:
    """Keep the lines of looks at the clients."""
    return [{"round": line["round"], **line["seen"]} for line in lines if "seen" in line]
