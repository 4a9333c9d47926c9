"""What the benchmark of simulators measures, and the numbers that follow from it."""

import re
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from watching import Sample

FLOP_PER_SAMPLE = 8.6e6  # LeNet5, forward and backward


class Contender(NamedTuple):
    """A simulator in one configuration."""

    name: str
    peer: str  # plain, flower, pfl, inline or repshare
    python: Path
    script: str
    workers: int


class Case(NamedTuple):
    """A size of the workload; rounds are the timed ones."""

    clients: int
    samples: int  # of each client
    rounds: int


@dataclass(frozen=True)
class Timing:
    """One contender's turn on one case."""

    contender: str
    peer: str
    clients: int
    samples: int
    turn: int
    seconds: list[float]  # of each timed round
    start_up: float  # from process start to the end of the first round, less a median round
    busy: float  # share of a timed round in which the main process itself computed
    accuracy: float

    @classmethod
    def read(cls, contender: Contender, case: Case, turn: int, began: float, answer: dict[str, Any]) -> "Timing":
        """From a contender's answer, its last round left out."""
        ends, computed = answer["ends"][:-1], answer["computed"][:-1]
        seconds = [later - earlier for earlier, later in pairwise(ends)]
        busy = (computed[-1] - computed[0]) / (ends[-1] - ends[0])
        start_up = ends[0] - began - median(seconds)
        accuracy = answer["accuracy"]
        return cls(contender.name, contender.peer, case.clients, case.samples, turn, seconds, start_up, busy, accuracy)

    @property
    def median(self) -> float:
        """Seconds a round."""
        return median(self.seconds)


@dataclass(frozen=True)
class Usage:
    """Memory of one contender's process tree on one case, bytes."""

    contender: str
    clients: int
    samples: int
    peak: int
    peak_in_rounds: int  # when the data had been prepared and the first round was over

    @classmethod
    def read(cls, contender: Contender, case: Case, samples: list[Sample], first_end: float) -> "Usage":
        """From samples of a whole run."""
        later = [sample.memory for sample in samples if sample.time > first_end]
        peak = max(sample.memory for sample in samples)
        return cls(contender.name, case.clients, case.samples, peak, max(later, default=peak))


@dataclass
class Results:
    """Everything that was measured."""

    machine: dict[str, str]
    cores: int
    gemm: list[tuple[float, float]] = field(default_factory=list)  # GFLOP/s: one process, one process a core
    timings: list[Timing] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def fail(self, contender: Contender, case: Case, reason: str) -> None:
        """Note a failure; the first reason stays."""
        self.failures.setdefault(_key(contender, case), without_paths(reason))

    def has_failed(self, contender: Contender, case: Case) -> bool:
        """Whether there is no point in trying this again."""
        return _key(contender, case) in self.failures

    def cases(self) -> list[tuple[int, int]]:
        """Clients and samples of what was timed, in order."""
        return list(dict.fromkeys((timing.clients, timing.samples) for timing in self.timings))

    def of(self, clients: int, samples: int) -> dict[str, list[Timing]]:
        """Turns by contender."""
        found: dict[str, list[Timing]] = {}
        for timing in self.timings:
            if (timing.clients, timing.samples) == (clients, samples):
                found.setdefault(timing.contender, []).append(timing)
        return found

    def usage(self, contender: str, clients: int, samples: int) -> Usage | None:
        """The memory of one contender, if it was read."""
        wanted = (contender, clients, samples)
        return next((u for u in self.usages if (u.contender, u.clients, u.samples) == wanted), None)

    @property
    def peak(self) -> float:
        """The best that matrix products reached in this run, GFLOP/s."""
        return max(map(max, self.gemm))

    def as_json(self) -> dict[str, Any]:
        """For the record; paths are not in it."""
        return asdict(self)


def pooled(turns: list[Timing]) -> list[float]:
    """Seconds of all timed rounds of all turns."""
    return [seconds for turn in turns for seconds in turn.seconds]


def rate(clients: int, samples: int, seconds: float) -> float:
    """Training GFLOP/s."""
    return clients * samples * FLOP_PER_SAMPLE / seconds / 1e9


def ratios(theirs: list[Timing], ours: list[Timing]) -> list[float]:
    """How many times faster we were, turn by turn: what was measured at about the same time is compared."""
    our_turns = {turn.turn: turn.median for turn in ours}
    return [turn.median / our_turns[turn.turn] for turn in theirs if turn.turn in our_turns]


def without_paths(text: str) -> str:
    """Only the last part of a path: where things lie on this machine does not belong in a result."""
    return re.sub(r"(?:/[\w.+~-]+)+/", "…/", text)


def _key(contender: Contender, case: Case) -> str:
    return f"{contender.name}, N = {case.clients}, {case.samples} samples each"
