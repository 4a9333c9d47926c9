"""`make soak`: the long runs, and docs/results/soak.md from what they found."""

import argparse
import tempfile
import time
from pathlib import Path

from soak import faults
from soak.abuse import abuse
from soak.fuzz import fuzz
from soak.memory import crowd
from soak.schema import explore

PAGE = Path(__file__).parents[2] / "docs/results/soak.md"
SEED = 0

RUNS = [
    ("schemathesis over /openapi.json", explore, {"examples": 15}),
    (
        "A relay on SQLite is killed (SIGKILL) under load",
        faults.kill_relay,
        {"kills": 100, "clients": 48, "threads": 6},
    ),
    ("The Redis under a relay is killed under load", faults.kill_redis, {"kills": 30, "clients": 48, "threads": 6}),
    ("Two relays over one Redis", faults.share, {"relays": 2, "seconds": 20}),
    ("Three relays over one Redis", faults.share, {"relays": 3, "seconds": 20}),
    ("Two relays over one SQLite file", faults.share, {"relays": 2, "seconds": 10, "redis": False}),
    ("A relay is stopped (SIGTERM) under load", faults.stop_gracefully, {"stops": 20, "clients": 48, "threads": 6}),
    ("Half of the clients fall silent, in turns", faults.expire, {"turns": 10, "max_age": 1.0, "clients": 40}),
    ("Bodies that are no release", fuzz, {"bodies": 10_000}),
    ("Large teachers asked for over 190 connections at once", crowd, {"seconds": 30, "connections": 190, "tokens": 1}),
    ("Abuse beside a client at work", abuse, {"seconds": 30, "gigabytes": 2.0, "idle": 1000, "slow": 100}),
]

HEAD = """# Faults, fuzz and abuse of the relay

`make soak`. All processes are real and on one machine; every run checks itself, and this page is written only if all
of them pass. `make test` does shorter runs of the same code (`tests/soak/`).

What is checked after every fault: each client's kept release is, byte for byte, the one that was acknowledged last, or
one that was asked for and not acknowledged; the totals, buffers and members are exactly those of a fresh board that is
given the kept releases. A teacher is torn if its class means are not, to the last bit, those of its observations.
Zeros (lost, torn, changes, …) are what a run insists on: with any other number it fails. Times depend on what else the
machine does.
"""


def main() -> None:
    """Do all runs, or those whose titles contain a word, and write the page after all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("word", nargs="?", default="")
    word, parts = parser.parse_args().word, [HEAD]
    for title, run, values in RUNS:
        if word in title:
            begun = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                found = run(Path(folder), **values, seed=SEED)
            print(f"{title}: {found} ({time.monotonic() - begun:.0f} s)", flush=True)
            parts.append(show(title, values, found))
    if not word:
        PAGE.write_text("\n".join(parts))


def show(title: str, values: dict, found: dict) -> str:
    """A run as a section."""
    asked = ", ".join(f"{name} {value}" for name, value in {**values, "seed": SEED}.items())
    rows = "\n".join(
        f"| {name} | {value:,} |" if isinstance(value, int) else f"| {name} | {value} |"
        for name, value in found.items()
    )
    return f"## {title}\n\nParameters: {asked}.\n\n| | |\n|---|---:|\n{rows}\n"


if __name__ == "__main__":
    main()
