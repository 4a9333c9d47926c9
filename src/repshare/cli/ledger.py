"""`repshare privacy ledger`: how much of a budget is spent."""

from pathlib import Path
from typing import Any

from rich.console import Console

from repshare.cli.parsing import Json, print_json
from repshare.cli.terminal import make_table, say
from repshare.errors import ConfigError


def ledger(path: Path, /, json: Json = False) -> None:
    """Show how much of its privacy budget a client has spent. Nothing is changed.

    repshare privacy ledger repshare-digits-alice

    Args:
        path: State folder of `repshare join` or `repshare peer`, or the ledger in it (privacy.jsonl).
    """
    from repshare.privacy.ledger import count_understated, read_ledger

    file = path / "privacy.jsonl" if path.is_dir() else path
    if not file.exists():
        raise ConfigError(f"there is no ledger at {file}: nothing was released with noise")
    about, entries = read_ledger(file)
    releases = [
        {
            "round": entry["round"],
            "noise": entry["charge"][0] if isinstance(entry.get("charge"), list) else entry["noise"],
            "epsilon": entry["epsilon"],
            "delta": entry.get("delta"),
        }
        for entry in entries
        if not entry.get("closed")
    ]
    understated = count_understated(about, entries)
    if json:
        print_json({**about, "releases": releases, "understated": understated})
        return
    console = Console()
    rows = [
        [str(number), str(entry["round"]), f"{entry['noise']:.4g}", f"{entry['epsilon']:.4g}", _delta(entry)]
        for number, entry in enumerate(releases, start=1)
    ]
    console.print(make_table("release|round|noise multiplier|ε so far|with δ", rows))
    spent = f"{releases[-1]['epsilon']:.4g} with δ = {_delta(releases[-1])}" if releases else "0"
    scope = "at most, for each" if about["adjacency"] == "add-remove" else "for each"
    mode = about.get("mode", "release-only")
    say(console, f"{len(releases)} releases charged: ε = {spent} {scope} of {about['samples']:,} samples, {mode}")
    if understated:
        told = f"{understated} of them were made by an earlier version, which held samples out by how many there were"
        say(console, f"warning: {told}: if any were held out, these cost more than ε says (SECURITY.md)", "yellow")


def _delta(entry: dict[str, Any]) -> str:
    """A record's δ. Earlier versions did not write it down: it was the policy's of that time."""
    return "?" if entry["delta"] is None else f"{entry['delta']:g}"
