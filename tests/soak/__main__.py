"""`make soak`: the long runs, and lab/notebook/soak.md from what they found."""

import argparse
import json
import re
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

from soak import budgets, faults, ledgers
from soak.abuse import abuse
from soak.fuzz import fuzz

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "lab/notebook/soak.md"
KEPT = ROOT / "build/soak"  # what each run found: a soak that was cut off goes on with those that are missing
SEED = 0
COUNTED = ("kills", "killed meanwhile", "bodies")

RUNS = [
    (
        "A relay on SQLite is killed (SIGKILL) under load",
        faults.kill_relay,
        {"kills": 200, "clients": 48, "threads": 6},
    ),
    ("The Redis under a relay is killed under load", faults.kill_redis, {"kills": 75, "clients": 48, "threads": 6}),
    ("A client with a budget is killed at every point of a round", budgets.kill_clients, {"kills": 154}),
    ("Those who spend from a ledger are killed", ledgers.kill_spenders, {"kills": 200}),
    ("Two relays over one Redis", faults.share, {"relays": 2, "seconds": 20}),
    ("Three relays over one Redis", faults.share, {"relays": 3, "seconds": 20}),
    ("Two relays over one SQLite file", faults.share, {"relays": 2, "seconds": 10, "redis": False}),
    ("A relay is stopped (SIGTERM) under load", faults.stop_gracefully, {"stops": 20, "clients": 48, "threads": 6}),
    ("Half of the clients fall silent, in turns", faults.expire, {"turns": 10, "max_age": 1.0, "clients": 40}),
    ("The disk under a relay on SQLite is full, again and again", faults.fill_disk, {"times": 30}),
    ("Bodies that are no release", fuzz, {"bodies": 24_000}),
    ("Abuse beside a client at work", abuse, {"seconds": 30, "gigabytes": 2.0, "idle": 1000, "slow": 100}),
]

HEAD = """# Faults, fuzz and abuse

`make soak`. All processes are real and on one machine; every run checks itself, and this page is written only if all
of them pass. What a run found is kept in `build/soak`: an interrupted soak resumes with the runs that are missing
(`make soak SOAK=--restart` begins anew). `make test` does shorter runs of the same code (`tests/soak/`).

What is checked after every fault of a relay: each client's kept release is, byte for byte, the one that was
acknowledged last, or one that was asked for and not acknowledged; the totals, buffers and members are exactly those of
a fresh board that is given the kept releases. A teacher is torn if its class means are not, to the last bit, those of
its observations. A client that was killed must in the end have been charged once for each round, and have sent as many
different bytes, all of them acknowledged. A disk is full where no file may grow beyond a size within the database's log
(RLIMIT_FSIZE): writes fail there, in the middle of a transaction. Zeros (lost, torn, changes, …) are what a run insists
on: with any other number it fails.

Killed relays and clients are forked from a process that has imported what they need. Bad bodies come over 8
connections at once. Times depend on what else the machine does.
"""


def main(words: list[str] | None = None) -> None:
    """Do all runs that are missing, or those of them whose titles contain a word; with none missing, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("word", nargs="?", default="")
    parser.add_argument("--restart", action="store_true", help="forget what earlier runs found, and begin anew")
    options = parser.parse_args(words)
    if options.restart:
        shutil.rmtree(KEPT, ignore_errors=True)
    for title, run, values in RUNS:
        if options.word in title and recall(title, values) is None:
            begun = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                found = run(Path(folder), **values, seed=SEED)
            keep(title, values, found)
            print(f"{title}: {found} ({time.monotonic() - begun:.0f} s)", flush=True)
    sections = [(title, values, recall(title, values)) for title, _, values in RUNS]
    missing = [title for title, _, found in sections if found is None]
    if missing:
        print(f"the page is not written; still to do: {'; '.join(missing)}")
    else:
        PAGE.write_text("\n".join([HEAD, add_up(sections), *(show(*section) for section in sections)]))


def place(title: str) -> Path:
    """Where it is kept what a run found."""
    return KEPT / f"{re.sub('[^a-z0-9]+', '-', title.lower()).strip('-')}.json"


def keep(title: str, values: dict, found: dict) -> None:
    """Keep what a run found, all of it or nothing."""
    KEPT.mkdir(parents=True, exist_ok=True)
    fresh = place(title).with_suffix(".new")
    fresh.write_text(json.dumps({"values": {**values, "seed": SEED}, "found": found}, indent=1))
    fresh.replace(place(title))


def recall(title: str, values: dict) -> dict | None:
    """What a run found, if it was done with these values."""
    if not place(title).exists():
        return None
    kept = json.loads(place(title).read_text())
    return kept["found"] if kept["values"] == {**values, "seed": SEED} else None


def add_up(sections: list[tuple[str, dict, dict]]) -> str:
    """What was done in all."""
    total = sum((Counter({name: found.get(name, 0) for name in COUNTED}) for _, _, found in sections), Counter())
    kills = total["kills"] + total["killed meanwhile"]
    return f"In all: **{kills:,} processes killed (SIGKILL); {total['bodies']:,} bad bodies**.\n"


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
