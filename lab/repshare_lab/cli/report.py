"""`repshare report`: recorded runs as a file for others to read."""

from pathlib import Path

from rich.console import Console

from repshare.cli.terminal import say
from repshare.errors import ConfigError
from repshare.files import explain_errors, write_atomically


def report(runs: tuple[Path, ...] = (), /, output: Path = Path("report.html")) -> None:
    """Write one HTML file about recorded runs: the tables and figures they have, configuration, what is unfinished.

    It opens offline and loads nothing from anywhere.

    repshare report runs/first

    repshare report runs/* docs/results/table-mnist --output all.html

    Args:
        runs: Folders of compare, run, reproduce table, join or peer, with run.json and records.jsonl.
        output: The file to write.
    """
    from repshare_lab.experiments.report import make_report

    if not runs:
        raise ConfigError("give the folders of the runs: repshare report runs/first")
    made = make_report(runs)
    with explain_errors(f"{output} cannot be written"):
        write_atomically(output, made)
    say(Console(), f"{output} ({len(made.encode()) / 1e6:.1f} MB, opens offline)")
