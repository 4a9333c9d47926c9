"""Measure how long a command takes until its first record is on disk. Writes benchmarks/startup.md.

All cases take turns, so that other work on the machine disturbs them alike. A first turn, which compiles Python files
and reads them from the disk, does not count.

    python benchmarks/startup.py                      # about three minutes on a quiet machine
    python benchmarks/startup.py --before ../old/src  # next to another version of the code
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from watching import tree

ROOT = Path(__file__).parent.parent
TURNS = 9
PERIOD_SECONDS = 0.005
TIMEOUT_SECONDS = 120.0
TICKS = os.sysconf("SC_CLK_TCK")
IMPORT = "import torch"
WHOLE = {  # commands that are measured until they end
    IMPORT: ["-c", "import torch"],
    "repshare --help": ["-m", "repshare", "--help"],
}
LEARNING = [
    f"compare{methods}{where}"
    for methods in ("", " --methods RS", " --methods CS", " --methods FL")
    for where in ("", " --workers 2")
]
SETTING = ["--dataset", "digits", "--clients", "3", "--rounds", "1", "--name", "first"]
HEAD = """# Time until the first record is on disk

`python benchmarks/startup.py`: digits, 3 clients, one round, {cores} cores; medians of {turns} turns, in each of which
every case was measured once. `compare` begins with the first of the usual methods (CL). Work begins in the command's
own process, unless it says `--workers 2`. Wall: from the start of the process until `records.jsonl` has its first line
(`import torch` and `--help`: until the process has ended), and the quickest turn. Processor: of all processes together
until then.
×: the ratio to `import torch` in the same turn, median.
Load average during the last minutes: {load}; with more than two, other work delayed all of them.

| {source}command | wall | quickest | × | processor | × |
|{line}---|---:|---:|---:|---:|---:|
"""


class Times(NamedTuple):
    """Seconds of one turn."""

    wall: float
    processor: float


def environment(source: Path, scratch: Path) -> dict[str, str]:
    """An environment in which this version of the code runs, compiled once, and keeps nothing elsewhere."""
    ours = {"PYTHONPATH": str(source), "PYTHONPYCACHEPREFIX": str(scratch / "bytecode"), "TMPDIR": str(scratch)}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | ours


def until_end(arguments: Sequence[str], given: dict[str, str]) -> Times:
    """Run a command to its end."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], env=given, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)}: exit code {process.returncode}")
    return Times(time.perf_counter() - began, used.ru_utime + used.ru_stime)


def until_first_record(arguments: Sequence[str], given: dict[str, str], scratch: Path) -> Times:
    """Run a command until its first record is on disk, and wait until all its processes have ended."""
    runs = Path(tempfile.mkdtemp(dir=scratch))
    records, began = runs / "runs/first/records.jsonl", time.perf_counter()
    command = [sys.executable, "-m", "repshare", *arguments, *SETTING]
    process = subprocess.Popen(command, cwd=runs, env=given, stdout=subprocess.DEVNULL)
    while not (records.exists() and records.stat().st_size):
        if process.poll() is not None or time.perf_counter() > began + TIMEOUT_SECONDS:
            process.kill()
            raise SystemExit(f"{' '.join(command)}: no record, exit code {process.returncode}")
        time.sleep(PERIOD_SECONDS)
    times = Times(time.perf_counter() - began, sum(map(_processor_seconds, tree(process.pid))))
    process.wait()
    shutil.rmtree(runs)
    return times


def _processor_seconds(pid: int) -> float:
    """Processor time of a process, and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS


def take_turn(given: dict[str, str], scratch: Path) -> dict[str, Times]:
    """Measure every case once."""
    whole = {name: until_end(arguments, given) for name, arguments in WHOLE.items()}
    return whole | {f"repshare {each}": until_first_record(each.split(), given, scratch) for each in LEARNING}


def row(name: str, turns: Sequence[dict[str, Times]], source: str) -> str:
    """Return a line of the table."""
    walls, used = zip(*(turn[name] for turn in turns), strict=True)
    against = [[own / bare for own, bare in zip(turn[name], turn[IMPORT], strict=True)] for turn in turns]
    wall, processor = map(statistics.median, zip(*against, strict=True))
    cells = [f"{statistics.median(walls):.2f} s", f"{min(walls):.2f} s", f"{wall:.2f}"]
    cells += [f"{statistics.median(used):.2f} s", f"{processor:.2f}"]
    return f"| {source}`{name}` | {' | '.join(cells)} |\n"


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="folder with another version of the package")
    parser.add_argument("--turns", type=int, default=TURNS)
    options = parser.parse_args()
    sources = {"before": options.before.resolve()} if options.before else {}
    sources["now"] = ROOT / "src"
    with tempfile.TemporaryDirectory(prefix="repshare-") as folder:
        scratch = {label: Path(folder, label) for label in sources}
        for each in scratch.values():
            each.mkdir()
        given = {label: environment(source, scratch[label]) for label, source in sources.items()}
        turns = [
            {label: take_turn(given[label], scratch[label]) for label in sources} for _ in range(options.turns + 1)
        ]
    several = len(sources) > 1
    head = {"source": "code | " if several else "", "line": "---|" if several else ""}
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    text = HEAD.format(cores=os.cpu_count(), turns=options.turns, load=load, **head)
    for name in turns[0]["now"]:
        for label in sources:
            text += row(name, [turn[label] for turn in turns[1:]], f"{label} | " if several else "")
    Path(__file__).with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
