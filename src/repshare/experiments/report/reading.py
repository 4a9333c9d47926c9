"""Folders -> runs to report on: comparisons, tables, and clients' own. Nothing that stands in them is executed."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from repshare.config import Policy, Run, Setting
from repshare.data import DATASETS, cache, load
from repshare.errors import ConfigError, DataError
from repshare.experiments import who_has_what
from repshare.experiments.table import ROWS, sizes
from repshare.imports import is_reference
from repshare.results.records import Journal, Line

NEEDED = {  # what a line must have for each kind of run
    "comparison": {"method", "seed", "round", "client", "test_accuracy", "bytes_up", "bytes_down", "seconds"},
    "table": {"row", "clients", "seed", "accuracy", "bytes_up", "bytes_down", "client_rounds"},
}


@dataclass(frozen=True)
class Recorded:
    """One run as it was recorded."""

    path: Path
    kind: str  # a key of NEEDED
    setting: Mapping[str, Any]
    made_with: Mapping[str, Any]
    lines: Sequence[Line]
    unfinished: Sequence[str]  # what is missing, in words
    counts: Sequence[Sequence[int]] | None  # who has what: samples by client and class
    picture: str | None  # the same as a data: address, where it cannot be computed again

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        dataset = str(self.setting.get("dataset", self.path.name))
        about = [Path(dataset).name if is_reference(dataset) else dataset]
        if self.kind == "comparison" and self.setting.get("clients"):
            about.append(f"{self.setting['clients']} clients")
        return ", ".join([*about, *([f"{self.setting['rounds']} rounds"] if self.setting.get("rounds") else [])])


def read_run(path: Path) -> Recorded:
    """Read what a run has left. Raises ConfigError if it is no run, or has no records."""
    described = _describe(path)
    lines = Journal(path / "records.jsonl").read()
    if not lines:
        raise ConfigError(f"{path} has no records: nothing was done there yet")
    made_with = described.pop("made_with", {})
    if "client" in described and "task" in described:
        described, lines = _as_comparison(described, lines)
    kind = "table" if described.get("experiment") == "table" else "comparison"
    _check_lines(path, kind, lines)
    setting = described.get("setting", {})
    missing = _missing_cells if kind == "table" else _missing_rounds
    counts = _count(described) if kind == "comparison" else None
    picture = _embed(path / "partition.png") if kind == "comparison" and counts is None else None
    return Recorded(path, kind, setting, made_with, lines, missing(path, described, lines), counts, picture)


def _describe(path: Path) -> dict[str, Any]:
    file = path / "run.json"
    try:
        described = json.loads(file.read_text())
    except FileNotFoundError as error:
        raise ConfigError(f"{path} is no run: there is no {file}") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    known = isinstance(described, dict) and (
        {"methods", "seeds"} <= described.keys() or described.get("experiment") == "table"
    )
    if not known and not (isinstance(described, dict) and {"client", "task"} <= described.keys()):
        raise ConfigError(f"{file} describes no run: it is neither of a comparison nor of the paper's table")
    return described  # type: ignore[no-any-return]


def _as_comparison(described: Mapping[str, Any], lines: Sequence[Line]) -> tuple[dict[str, Any], list[Line]]:
    """What `repshare join` leaves, as a comparison of one."""
    name, seed = str(described["client"]), described.get("seed", 0)
    setting = {"dataset": described["task"], **described}
    marked = [{**line, "method": name, "seed": seed} for line in lines]
    return {"methods": [name], "seeds": [seed], "setting": setting}, marked


def _check_lines(path: Path, kind: str, lines: Sequence[Line]) -> None:
    for number, line in enumerate(lines, start=1):
        if not isinstance(line, dict) or (absent := NEEDED[kind] - line.keys()):
            what = f"has no {min(absent)}" if isinstance(line, dict) else "is no record"
            raise ConfigError(f"{path / 'records.jsonl'}: line {number} {what}")


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


def _missing_cells(_: Path, described: Mapping[str, Any], lines: Sequence[Line]) -> list[str]:
    held = {(line["row"], line["clients"], line["seed"]) for line in lines}
    return [
        f"{row.title}, N = {size}, seed {seed}"
        for seed in sorted({line["seed"] for line in lines})
        for row in ROWS
        for size in sizes(row)
        if (row.title, size, seed) not in held
    ]


def _count(described: Mapping[str, Any]) -> list[list[int]] | None:
    """Who had what: as recorded, or dealt again. Only data on this machine is touched, and nobody's code."""
    if "counts" in described:
        return described["counts"]  # type: ignore[no-any-return]
    setting = described.get("setting", {})
    dataset = setting.get("dataset")
    if dataset not in DATASETS or (dataset != "digits" and not cache.location(dataset).exists()):
        return None
    try:
        run = Run(described["methods"][0], described["seeds"][0], _to_setting(setting))
        return who_has_what(run, load(dataset)).tolist()  # type: ignore[no-any-return]
    except (ConfigError, DataError, TypeError):  # described by another version
        return None


def _to_setting(described: Mapping[str, Any]) -> Setting:
    values = {field.name: described[field.name] for field in fields(Setting) if field.name in described}
    if unknown := described.keys() - values.keys():
        raise ConfigError(f"a setting has no {min(unknown)}")
    return Setting(**{**values, "model": tuple(values.get("model", ())), "policy": Policy(**values.get("policy", {}))})


def _embed(path: Path) -> str | None:
    if not path.is_file():
        return None
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
