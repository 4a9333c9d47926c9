"""The records of a run: run.json (its description), records.jsonl (a line for each client and round).

Everything shown later, table or figure, is made from these files alone.
"""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

from repshare import moved
from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.files import write_atomically
from repshare.records import Description, Folder, Line
from repshare_lab.config import Setting


class RunFolder(Folder):
    """A folder of simulated runs of one setting, by methods and seeds."""

    def __init__(self, path: Path, description: Mapping[str, Any], *, grows: bool = False, **given: Any) -> None:
        """`grows`: a resumed comparison may have more methods or seeds than the folder, until it `grow`s."""
        self.grows = grows
        super().__init__(path, description, **given)

    def grow(self, description: Mapping[str, Any]) -> None:
        """Replace the description by this one, if it has more methods or seeds."""
        held = json.loads((self.path / "run.json").read_text())
        if all(len(held[name]) == len(description[name]) for name in ("methods", "seeds")):
            return
        made_with = held.get("made_with")
        self.describe({**description, "made_with": made_with})

    def finished(self) -> set[tuple[str, int]]:
        """Return the methods and seeds that are done."""
        path = self.path / "finished.json"
        return {(method, seed) for method, seed in json.loads(path.read_text())} if path.exists() else set()

    def finish(self, method: str, seed: int) -> None:
        """Remember that this method and seed are done."""
        done = sorted({*self.finished(), (method, seed)})
        write_atomically(self.path / "finished.json", json.dumps(done) + "\n")

    def compare(self, held: Description, wanted: Description) -> tuple[Description, Description]:
        """Return both with the defaults of options that are younger; of a folder that grows, what it has to keep."""
        held, wanted = with_defaults(held), with_defaults(wanted)
        if "code" in wanted:  # hashes of the user's own files, which earlier versions did not write down
            held.setdefault("code", wanted["code"])
        if self.grows and (missing := _find_lost(held, wanted)):
            there = f"{missing}: name all that it has, and more if you like, or choose another {self.option}"
            raise ConfigError(f"{self.path} has {there}")
        return _enlarge(held, wanted) if self.grows else held, wanted

    def explain(self, difference: str) -> str:
        """Return the option, or the last commit, with which a run of an earlier version continues."""
        name, _, rest = difference.partition(" ")
        if name in GONE:
            return f"{GONE[name][1]} is the last commit that continues it; "
        if name == "eval_every" and rest.endswith("there, None here"):  # tests were rarer by default
            return f"--eval-every {rest.split()[0]} continues it, or "
        return ""


def read_run(path: Path) -> tuple[Setting, tuple[str, ...], int] | None:
    """Return the setting, the methods and the number of seeds that a folder holds; None if it holds none."""
    described = path / "run.json"
    if not described.exists():
        return None
    try:
        held = with_defaults(json.loads(described.read_text()))
        flat = {**held["setting"], **held["setting"]["policy"]}  # no two options have one name
        given: Line = {name: tuple(value) if isinstance(value, list) else value for name, value in flat.items()}
        policy = Policy(**{each.name: given[each.name] for each in fields(Policy)})
        setting: Line = {each.name: given[each.name] for each in fields(Setting)}
        methods, seeds = held.get("methods", ()), held.get("seeds", ())  # an experiment has none
        return Setting(**{**setting, "policy": policy}), tuple(methods), len(seeds)
    except (ValueError, KeyError) as error:
        raise ConfigError(f"{described} is damaged: {error}") from error


def find(lines: Iterable[Line], field: str, **wanted: Any) -> list[float]:
    """Return the values of a field, where there is any, in the lines with all these values."""
    return [line[field] for line in lines if wanted.items() <= line.items() and line.get(field) is not None]


def group(lines: Iterable[Line], field: str) -> dict[Any, list[Line]]:
    """Return the lines by their value of a field, values in the order in which they first occur."""
    found: dict[Any, list[Line]] = {}
    for line in lines:
        found.setdefault(line[field], []).append(line)
    return found


def mean_std(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and the standard deviation: 0 of a single value."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def plus_minus(mean: float, deviation: float | None) -> str:
    """Return a mean ± its deviation, where there is one, as tables show it."""
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f} ± {deviation:.2f}"


def entry(values: Sequence[float]) -> str:
    """Return the mean of these values ± their standard deviation; empty without values."""
    if not values:
        return ""
    mean, deviation = mean_std(values)
    return plus_minus(mean, deviation if len(values) > 1 else None)


class Summary(NamedTuple):
    """One method's last test in each seed, over clients and seeds. Accuracies in percent."""

    accuracy: float
    std_over_seeds: float | None  # None with one seed
    std_over_clients: float
    bytes_up: int  # all clients and rounds, a seed
    bytes_down: int
    seconds: float  # of computing, all clients and rounds, a seed
    client_rounds: int  # how many times a client took part in a round, a seed


def summarise(lines: Sequence[Line]) -> Summary:
    """Return the summary of one method's lines, of the seeds in which a client was tested."""
    tested = group((line for line in lines if line["test_accuracy"] is not None), "seed")
    if not tested:
        raise ConfigError("no client took part when a test was due: use more clients or fewer absences")
    lines, seeds = [line for line in lines if line["seed"] in tested], len(tested)
    finals = []
    for own in tested.values():
        last = max(line["round"] for line in own)
        finals.append([100 * line["test_accuracy"] for line in own if line["round"] == last])
    means = [statistics.fmean(accuracies) for accuracies in finals]
    return Summary(
        accuracy=statistics.fmean(means),
        std_over_seeds=statistics.stdev(means) if seeds > 1 else None,
        std_over_clients=statistics.fmean(statistics.pstdev(accuracies) for accuracies in finals),
        bytes_up=sum(line["bytes_up"] for line in lines) // seeds,
        bytes_down=sum(line["bytes_down"] for line in lines) // seeds,
        seconds=sum(line["seconds"] for line in lines) / seeds,
        client_rounds=len(lines) // seeds,
    )


GONE = {  # options that are no more: the value that changes nothing, and the last commit that has them
    "pair": ("no", "055caf8"),
    "public_data": (None, "9ea4c8a"),
    "data_folder": (None, "9ea4c8a"),
    "kernels": ("single", "eaadb79"),
    "discriminator": ("classifier", "c528c6c"),
    "end_to_end": (False, "c528c6c"),
    "training_share": (0.5, "c528c6c"),
    "grad_clip": (1.0, "c528c6c"),
    "late_joiners": (0.0, "befa941"),
    "leavers": (0.0, "befa941"),
    "stragglers": (0.0, "befa941"),
    "ratio": (10.0, "befa941"),
    "degree": (4, "befa941"),
    "link_chance": (0.3, "befa941"),
    "summed": (False, "d1e373b"),
    "topology": (None, "d934b08"),
    "aggregation": ("mean", "38a6b14d"),
    "clip": (None, "38a6b14d"),
    "planned_releases": (20, "38a6b14d"),
    "attackers": (0.0, "38a6b14d"),
    "attack": ("flip", "38a6b14d"),
    "samples_per_client": (6, "38a6b14d"),
}


def with_defaults(description: dict[str, Any]) -> dict[str, Any]:
    """Fill in the defaults of options that an earlier version did not have."""
    if not isinstance(given := description.get("setting"), dict):
        return description
    usual: dict[str, Any] = json.loads(json.dumps(asdict(Setting())))
    given = _renamed(given)
    policy = {**usual["policy"], "start": "none", **_renamed_policy(given.get("policy", {}))}  # there was no other
    policy["minimum_count"] = policy["minimum_count"] or 1
    policy["prefer_own"] = bool(policy["prefer_own"])
    return {**description, "setting": _without_gone({**usual, **given, "policy": _without_gone(policy)})}


def _renamed(options: dict[str, Any]) -> dict[str, Any]:
    """Options under their present names."""
    return {moved.OPTIONS.get(name, name): value for name, value in options.items()}


def _renamed_policy(policy: dict[str, Any]) -> dict[str, Any]:
    """A policy's fields under their present names. There were two precisions, one of them for spaces."""
    if "prefer_own" in policy:
        return policy
    both = policy.get("precision", "fp32"), policy.get("common_precision", "fp16")
    kept = {name: value for name, value in policy.items() if name != "common_precision"}
    return _renamed({**kept, "precision": None if both == ("fp32", "fp16") else both[0]})


def _without_gone(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in GONE or value != GONE[name][0]}


def _find_lost(held: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """The methods or seeds of a comparison that a description lacks, in words; nothing if none."""
    if lost := [name for name in held.get("methods", ()) if name not in wanted["methods"]]:
        return f"also the methods {', '.join(lost)}"
    if lost := [seed for seed in held.get("seeds", ()) if seed not in wanted["seeds"]]:
        return f"{len(held['seeds'])} seeds, not {len(wanted['seeds'])}"
    return ""


def _enlarge(held: Mapping[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the held description with the methods and seeds that are wanted: the rest must be the same."""
    if "methods" not in held:
        return dict(held)
    code = {**wanted.get("code", {}), **held.get("code", {})}
    grown = dict(held) | {name: wanted[name] for name in ("methods", "seeds", "titles") if name in wanted}
    return {**grown, "code": code} if code else grown
