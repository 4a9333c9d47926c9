"""Children that release until they are killed, one after another, on one ledger after another.

python crashing_ledgers.py FOLDER KILLS SEED     prints kills and budgets spent; ledgers are in FOLDER/0, FOLDER/1 …
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

from repshare.errors import BudgetExhausted

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "privacy")]  # as pytest has them
from test_privacy import make_guard, release

SHORT_SECONDS = 0.03  # in which a child begins and releases something, on a machine that is not busy


def spend(folder):
    """Charge, then let the release leave, as fast as can be."""
    guard = make_guard(seed=None, releases=120)
    guard.keep_in(folder / "privacy.jsonl")
    left = os.open(folder / "left", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        try:
            made = release(guard, round=len(guard.ledger.entries) + 1)
        except BudgetExhausted:
            os._exit(3)
        os.write(left, f"{made.round}\n".encode())


def exhaust(folder, rng):
    """Kill those who spend from this folder until one of them is told that nothing is left: how many were killed."""
    kills, before, longest = 0, 0, SHORT_SECONDS
    while True:
        child = os.fork()
        if child == 0:
            spend(folder)
        time.sleep(rng.uniform(0, longest))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 3
            return kills
        kills += 1
        now = (folder / "privacy.jsonl").stat().st_size if (folder / "privacy.jsonl").exists() else 0
        longest, before = SHORT_SECONDS if now > before else 2 * longest, now  # on a busy machine it takes longer


def main():
    folder, wanted, rng = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    release(make_guard(releases=120))  # so that children need not work the noise out
    kills = ledgers = 0
    while kills < wanted:
        place = folder / str(ledgers)
        place.mkdir()
        kills += exhaust(place, rng)
        ledgers += 1
    print(kills, ledgers)


if __name__ == "__main__":
    main()
