"""Processes that spend from a ledger and are killed: what was charged, and what left."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from repshare.privacy.ledger import read_ledger

SPENDERS = Path(__file__).parents[1] / "support/crashing_ledgers.py"


def kill_spenders(folder, *, kills, seed=0):
    """SIGKILL processes that charge a ledger and release as fast as they can, until its budget is spent; and again."""
    command = [sys.executable, SPENDERS, folder, str(kills), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    killed, spent = map(int, done.stdout.split())
    found = [check_spent(folder / str(number)) for number in range(spent)]
    assert killed >= kills
    return {"kills": killed, "budgets spent": spent, "charged": sum(charged for charged, _ in found),
            "left": sum(left for _, left in found), "left without a charge": 0, "charged twice": 0,
            "over budget": 0}  # fmt: skip


def check_spent(place):
    """Every release that left was charged before, none twice, and ε was kept to: how many were charged, and left."""
    charged = read_ledger(place / "privacy.jsonl")[1]
    left = [int(line) for line in (place / "left").read_text().splitlines(keepends=True) if line.endswith("\n")]
    assert [entry["round"] for entry in charged] == list(range(1, len(charged) + 1))
    assert all(before < after for before, after in pairwise(left))
    assert left[-1] <= len(charged) <= 120
    assert charged[-1]["epsilon"] <= 2.0
    return len(charged), len(left)
