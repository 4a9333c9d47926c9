"""The benchmark of the relay as text: the table, what it says about the targets, and where it was measured."""

import platform
import re
import sqlite3
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from relay_load import Load

HEADINGS = (
    "store",
    "registered",
    "concurrent",
    "round trips/s",
    "of bare",
    "of bare, kept",
    "p50 ms",
    "p99 ms",
    "collect p50 ms",
    "collect p99 ms",
    "bare p50 ms",
    "CPU ms",
    "bare CPU ms",
    "memory MB",
)
SHARES = {"memory": 1 / 2, "SQLite": 1 / 3, "Redis": 1 / 3}
GROWTH = 1.5
VALUES = 2 * 10 * 84 * 4  # (M + 1) · C · d' · 4 bytes

INTRODUCTION = """\
# The relay compared with a bare endpoint

A round trip is a publish and a collect of MNIST's size (C = 10, d' = 84, M↑ = M↓ = 1, fp32), with a token, by one of up
to 1,000 active clients at random. *Bare* is a FastAPI endpoint under the same uvicorn that reads and answers as many
bytes in as many requests, and does nothing else; *bare, kept* also has each body on the disk (fdatasync) before it
answers, one after the other. One process each, one load generator; all took turns. Made by
`benchmarks/relay.py`.
"""
NOTES = """\
Medians over turns; *of bare* is the ratio within a turn, median (lowest–highest). *CPU ms*: of the server's processes,
Redis included, a round trip. *Memory*: of the relay's process after the turns; the store in memory keeps the releases
there. SQLite (synchronous = FULL) and Redis (appendfsync always) have a publish on the disk before it is answered.
"""


@dataclass(frozen=True)
class Case:
    """One store with so many registered and concurrent clients: the turns of the relay and of the bare endpoint."""

    store: str
    registered: int
    concurrent: int
    relay: list[Load]
    bare: list[Load]
    memory: int  # bytes
    sync: float  # seconds that the disk takes to keep a block
    kept: list[Load] = field(default_factory=list)  # of the bare endpoint that has each body on the disk

    @property
    def shares(self) -> list[float]:
        """Of the bare endpoint's round trips, turn by turn."""
        return compare_rates(self.relay, self.bare)

    @property
    def shares_of_kept(self) -> list[float]:
        """Of those of the endpoint that has each body on the disk; none where the store is in memory."""
        return compare_rates(self.relay, self.kept) if self.kept else []

    @property
    def collect(self) -> float:
        """Median seconds of a collect."""
        return median(percentile(load.collects, 50) for load in self.relay)

    def cells(self) -> tuple[str, ...]:
        """The table's row."""
        return (
            self.store,
            f"{self.registered:,}",
            str(self.concurrent),
            f"{median(load.rate for load in self.relay):,.0f}",
            describe_shares(self.shares),
            describe_shares(self.shares_of_kept),
            *(milliseconds([percentile(load.trips, q) for load in self.relay]) for q in (50, 99)),
            *(milliseconds([percentile(load.collects, q) for load in self.relay]) for q in (50, 99)),
            milliseconds([percentile(load.trips, 50) for load in self.bare]),
            *(
                milliseconds([load.processor / max(1, len(load.collects)) for load in of])
                for of in (self.relay, self.bare)
            ),
            f"{self.memory / 1e6:,.0f}",
        )

    def line(self) -> str:
        """The row for a terminal."""
        return "  ".join(f"{head} {cell}" for head, cell in zip(HEADINGS, self.cells(), strict=True))


def read_cases(kept: list[dict[str, Any]]) -> list[Case]:
    """Cases as they were kept."""
    names = ("relay", "bare", "kept")
    turns = ({name: [Load(**load) for load in case.get(name, [])] for name in names} for case in kept)
    return [Case(**{**case, **loads}) for case, loads in zip(kept, turns, strict=True)]


def report(cases: list[Case]) -> str:
    """Table, reading, machine."""
    rows = [HEADINGS, *(case.cells() for case in cases)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, cells, widths)) + " |" for cells in rows]
    table = [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]
    reading = [*read_shares(cases), *read_growth(cases), read_bytes(cases)]
    machine = [f"- {name}: {value}" for name, value in describe_machine([case.sync for case in cases]).items()]
    return "\n".join(
        [
            INTRODUCTION,
            *table,
            "",
            NOTES,
            "## Reading",
            "",
            *(f"- {line}" for line in reading),
            "",
            "## Machine",
            "",
            *machine,
            "",
        ]
    )


def read_shares(cases: list[Case]) -> list[str]:
    """Throughput beside the target, by store and concurrency."""
    lines = []
    for store, target in SHARES.items():
        found: dict[int, list[float]] = {}
        for case in cases:
            if case.store == store:
                found.setdefault(case.concurrent, []).append(median(case.shares))
        listed = ", ".join(
            f"{min(shares):.2f}–{max(shares):.2f} with {clients} ({verdict(min(shares) >= target)})"
            for clients, shares in found.items()
        )
        if listed:
            lines.append(f"{store}: of the bare endpoint's round trips {listed} concurrent; target {target:.2f}.")
        if listed := read_kept([case for case in cases if case.store == store and case.kept]):
            lines.append(f"{store}: an endpoint that only has each body on the disk, one by one, reaches {listed}.")
    return lines


def read_kept(cases: list[Case]) -> str:
    """The rate of the endpoint that syncs once a body, by concurrency, and its share of the bare one's."""
    limits = {
        case.concurrent: (median(load.rate for load in case.kept), median(compare_rates(case.kept, case.bare)))
        for case in cases
    }
    return ", ".join(
        f"{rate:,.0f} round trips/s with {clients} ({share:.2f} of bare)" for clients, (rate, share) in limits.items()
    )


def read_growth(cases: list[Case]) -> list[str]:
    """A collect with the most registered clients against the fewest."""
    lines = []
    for store in dict.fromkeys(case.store for case in cases):
        of = [case for case in cases if case.store == store]
        few, many = min(case.registered for case in of), max(case.registered for case in of)
        times = {(case.registered, case.concurrent): case.collect for case in of}
        factors = {clients: times[many, clients] / times[few, clients] for _, clients in times}
        listed = ", ".join(f"{factor:.2f} with {clients}" for clients, factor in factors.items())
        good = verdict(max(factors.values()) <= GROWTH)
        lines.append(
            f"{store}: a collect at {many:,} registered takes × that at {few:,}: {listed}; target {GROWTH}: {good}."
        )
    return lines


def read_bytes(cases: list[Case]) -> str:
    """Bytes of a round trip beside the formula."""
    load = cases[0].relay[0]
    sent, received = (total / len(load.collects) for total in (load.sent, load.received))
    return (
        f"On the wire a round trip sends {sent:,.0f} bytes and receives {received:,.0f}, heads of both requests and "
        f"answers included; the formula (M + 1)·C·d'·4 says {VALUES:,} each way ({sent / VALUES - 1:+.0%}, "
        f"{received / VALUES - 1:+.0%})."
    )


def compare_rates(some: list[Load], others: list[Load]) -> list[float]:
    """Some server's round trips as shares of another's, turn by turn."""
    return [one.rate / other.rate for one, other in zip(some, others, strict=True)]


def describe_shares(shares: list[float]) -> str:
    return f"{median(shares):.2f} ({min(shares):.2f}–{max(shares):.2f})" if shares else ""


def percentile(values: list[float], q: float) -> float:
    return float(np.percentile(values, q)) if values else float("nan")


def milliseconds(values: list[float]) -> str:
    return f"{median(values) * 1e3:.2f}"


def verdict(good: bool) -> str:
    return "met" if good else "missed"


def describe_machine(syncs: list[float]) -> dict[str, str]:
    """What the numbers depend on; `syncs`: seconds that the disk took to keep a block."""
    names = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "CPU": f"{names[0] if names else platform.processor()}, {len(names)} cores, shared with the load generator",
        "Disk": f"{min(syncs) * 1e3:.1f}–{max(syncs) * 1e3:.1f} ms to have 16 kB on it (fdatasync)",
        "Python": f"{platform.python_version()}, FastAPI {version('fastapi')}, uvicorn {version('uvicorn')}",
        "SQLite": sqlite3.sqlite_version,
    }
