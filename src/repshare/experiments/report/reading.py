"""Folders -> runs to report on: comparisons, experiments, and clients' own. Nothing that stands in them is executed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repshare.errors import ConfigError
from repshare.experiments.table import ROWS, sizes
from repshare.imports import is_reference
from repshare.results.findings import clients_differ, name_partition
from repshare.results.records import Journal, Line, group

TWINS = "twins.jsonl"  # the rounds of a client's twins: see `join --compare`
MEASURES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "auroc": "AUROC",
    "calibration_error": "calibration error",
}
NEEDED = {"method", "seed", "round", "client", "test_accuracy", "bytes_up", "bytes_down", "seconds"}  # in a record


@dataclass(frozen=True)
class Recorded:
    """One run as it was recorded."""

    path: Path
    experiment: str | None  # None: a comparison, or a client's own run
    setting: Mapping[str, Any]
    made_with: Mapping[str, Any]
    lines: Sequence[Line]
    unfinished: Sequence[str]  # what is missing, in words
    measures: Sequence[Sequence[str]] | None = None  # of a client's own run: a table of its last test, headings first

    @property
    def clients_differ(self) -> bool:
        """Return whether clients' classes differ."""
        return clients_differ(self.setting, self.lines)

    @property
    def title(self) -> str:
        """Its title, in a few words."""
        if self.measures is not None:
            return f"client {self.setting['client']} in task {self.setting['task']}"
        dataset = str(self.setting.get("dataset", self.path.name))
        about = [self.experiment] if self.experiment else []
        about.append(Path(dataset).name if is_reference(dataset) else dataset)
        if not self.experiment and self.setting.get("clients"):
            about.append(f"{self.setting['clients']} clients")
            about += filter(None, [name_partition(self.setting)])
        return ", ".join([*about, *([f"{self.setting['rounds']} rounds"] if self.setting.get("rounds") else [])])


def read_run(path: Path) -> Recorded:
    """Read what a run has left. Raises ConfigError if it is no run, or has no records."""
    described = _describe(path)
    lines = Journal(path / "records.jsonl").read()
    if not lines:
        raise ConfigError(f"{path} has no records: nothing was done there yet")
    made_with = described.pop("made_with", {})
    measures = None
    if "client" in described and "task" in described:
        twins = [{**line, "method": line.get("twin")} for line in Journal(path / TWINS).read()]
        described, lines = _as_comparison(described, [*lines, *twins])
        measures = _measures(lines)
    experiment = described.get("experiment")
    for number, line in enumerate(lines, start=1):
        if not isinstance(line, dict) or (experiment is None and NEEDED - line.keys()):
            what = f"has no {min(NEEDED - line.keys())}" if isinstance(line, dict) else "is no record"
            raise ConfigError(f"{path / 'records.jsonl'}: line {number} {what}")
    missing = _missing_rounds(path, described, lines) if experiment is None else _missing_cells(experiment, lines)
    return Recorded(path, experiment, described.get("setting", {}), made_with, lines, missing, measures)


def _describe(path: Path) -> dict[str, Any]:
    file = path / "run.json"
    try:
        described = json.loads(file.read_text())
    except FileNotFoundError as error:
        raise ConfigError(f"{path} is no run: there is no {file}") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    kinds = ({"methods", "seeds"}, {"experiment"}, {"client", "task"})
    if not isinstance(described, dict) or not any(kind <= described.keys() for kind in kinds):
        raise ConfigError(f"{file} describes no run: neither of a comparison, nor of an experiment, nor of a client")
    return described


def _as_comparison(described: Mapping[str, Any], lines: Sequence[Line]) -> tuple[dict[str, Any], list[Line]]:
    """Return what `repshare join` leaves, as a comparison of the client with its twins, if it has any."""
    seed, own = described.get("seed", 0), "alone" if described["task"] == "alone" else "together"
    marked = [{"method": own, **line, "seed": seed} for line in lines]
    return {"methods": list(group(marked, "method")), "seeds": [seed], "setting": dict(described)}, marked


def _measures(lines: Sequence[Line]) -> list[list[str]]:
    """Return a table of each model's last test: a row for each measure, the recalls by class."""
    last = {line["method"]: line["metrics"] for line in lines if line.get("metrics")}
    if not last:
        return []
    rows = [["", *last]]
    for name, title in MEASURES.items():
        rows.append([title, *("" if each[name] is None else f"{each[name]:.3f}" for each in last.values())])
    for label in range(max(len(each["recalls"]) for each in last.values())):
        recalls = [each["recalls"][label] for each in last.values()]
        rows.append([f"recall of class {label}", *("" if each is None else f"{each:.3f}" for each in recalls)])
    return rows


def _missing_rounds(path: Path, described: Mapping[str, Any], lines: Sequence[Line]) -> list[str]:
    rounds = described.get("setting", {}).get("rounds")
    if not rounds:
        return []
    kept = path / "finished.json"
    done = {tuple(pair) for pair in json.loads(kept.read_text())} if kept.exists() else set()
    last = dict[tuple[str, int], int]()
    for line in lines:
        key = (line["method"], line["seed"])
        last[key] = max(last.get(key, 0), line["round"])
    return [
        f"{method}, seed {seed}: "
        + (f"round {last[method, seed]} of {rounds}" if (method, seed) in last else "not begun")
        for method in described["methods"]
        for seed in described["seeds"]
        if (method, seed) not in done and last.get((method, seed), 0) < rounds
    ]


def _missing_cells(experiment: str, lines: Sequence[Line]) -> list[str]:
    """Return the entries that the paper's table lacks; a study's own table says what it lacks."""
    if experiment != "table":
        return []
    held = {(line["row"], line["clients"], line["seed"]) for line in lines}
    return [
        f"{row.title}, N = {size}, seed {seed}"
        for seed in sorted({line["seed"] for line in lines})
        for row in ROWS
        for size in sizes(row)
        if (row.title, size, seed) not in held
    ]
