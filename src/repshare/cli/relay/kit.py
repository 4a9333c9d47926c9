"""Start-up kits: a folder for each invited party with all that it needs to join, but its data."""

import csv
import json
from pathlib import Path
from typing import NamedTuple

from repshare.errors import ConfigError
from repshare.files import explain_errors, write_atomically
from repshare.relay.auth import check_client_name
from repshare.space.exposure import budget_options

TABLE = '''"""What {name} brings to {task}. Put your table beside this file, and name the column of the class."""

from pathlib import Path

from repshare import Party


def party() -> Party:
    """A table with the columns of columns.csv, in any order; others are to be named in ignore."""
    return Party(data=Path(__file__).with_name("data.csv"), label="class", ignore=())
'''
ARRAYS = '''"""What {name} brings to {task}. Put inputs (n, …) and labels (n,) beside it, or read them otherwise."""

from pathlib import Path

import numpy as np

from repshare import Party


def party() -> Party:
    """Inputs and labels as agreement.json says."""
    here = Path(__file__).parent
    return Party(data=(np.load(here / "inputs.npy").astype("float32"), np.load(here / "labels.npy")))
'''
README = """{name} in {task}: in this folder, look at what would leave, then join.

  repshare join --party party.py:party --agreement agreement.json --dry-run{budget}
  repshare join {address} --party party.py:party --token-file token --agreement agreement.json{ca}{budget}

The token is {name}'s name: nobody else may have it.
"""


def read_names(path: Path) -> list[str]:
    """The names in a file, one a line."""
    with explain_errors(f"{path} cannot be read"):
        names = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    for name in names:
        check_client_name(name)
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"{path} must have names, each once, one a line")
    return names


def check_kits(folder: Path, names: list[str], about: "InvitedTo") -> None:
    """Raise ConfigError if a kit of one of these names is there already, or none can be made."""
    if not about.description:
        raise ConfigError(f"the clients of {about.task} have no agreement: a kit is for a common space")
    if there := [name for name in names if (folder / name).exists()]:
        raise ConfigError(f"{folder / there[0]} already exists")


class InvitedTo(NamedTuple):
    """What all kits have in common."""

    task: str
    description: str
    """What the clients agree on; empty: nothing."""
    address: str
    ca: Path | None
    group_members: int


def write_kit(folder: Path, name: str, token: str, about: InvitedTo) -> None:
    """Write the kit of this client."""
    agreement = json.loads(about.description)
    columns, words = agreement.get("columns", []), {"name": name, "task": about.task, "address": about.address}
    ca = " --ca ca.pem" if about.ca else ""
    budget = f" {budget_options(about.group_members)}" if agreement["loss"] == "discriminant" else ""
    with explain_errors(f"{folder} cannot be written"):
        folder.mkdir(parents=True)
        write_atomically(folder / "token", f"{token}\n", private=True)
        write_atomically(folder / "agreement.json", json.dumps(agreement, indent=2) + "\n")
        write_atomically(folder / "party.py", (TABLE if columns else ARRAYS).format(**words))
        write_atomically(folder / "README.txt", README.format(**words, ca=ca, budget=budget))
        if about.ca is not None:
            write_atomically(folder / "ca.pem", about.ca.read_bytes())
        if columns:
            with (folder / "columns.csv").open("w", newline="", encoding="utf-8") as file:
                table = csv.DictWriter(file, ["name", "unit", "least", "largest", "categories", "missing"])
                table.writeheader()
                table.writerows({**each, "categories": "|".join(each.get("categories", ()))} for each in columns)
