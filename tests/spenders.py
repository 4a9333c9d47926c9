"""Children that release until they are killed, one after another, all on one ledger. Prints kills and orderly ends."""

import os
import random
import signal
import sys
import time
from pathlib import Path

from repshare.errors import BudgetExhausted
from test_privacy import make_guard, release


def spend(folder):
    """Charge, then let the release leave, as fast as can be."""
    guard = make_guard(seed=None, planned_releases=120)
    guard.keep_in(folder / "privacy.jsonl")
    left = os.open(folder / "left", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        try:
            made = release(guard, round=len(guard.ledger.entries) + 1)
        except BudgetExhausted:
            os._exit(3)
        os.write(left, f"{made.round}\n".encode())


def main():
    folder, kills, ended = Path(sys.argv[1]), 0, 0
    release(make_guard(planned_releases=120))  # so that children need not work the noise out
    rng = random.Random(5)
    while not ended:
        child = os.fork()
        if child == 0:
            spend(folder)
        time.sleep(rng.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        kills += os.WIFSIGNALED(status)
        ended += os.WIFEXITED(status) and os.WEXITSTATUS(status) == 3
    print(kills, ended)


if __name__ == "__main__":
    main()
