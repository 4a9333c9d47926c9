"""Methods compared from Python, as a table; then one of them round by round.

python examples/compare.py
"""

from typing import Any

import pandas  # type: ignore[import-untyped]

from repshare_lab import compare, load
from repshare_lab.config import Run, Setting
from repshare_lab.simulation import Processes, simulate

SKEWED: dict[str, Any] = {"clients": 4, "rounds": 5, "samples": 200, "partition": "dirichlet", "alpha": 0.3}

if __name__ == "__main__":  # worker processes run this file again
    result = compare("digits", ["IL", "RS", "CS"], seeds=2, **SKEWED)
    print(pandas.DataFrame(result.rows)[["method", "accuracy", "own_mix", "worst_client"]].round(1))
    records = pandas.DataFrame(result.records)  # a row for each method, seed, round and client
    print(records.groupby(["method", "round"]).test_own.mean().unstack().round(2))

    run = Run("RS", seed=0, setting=Setting(dataset="digits", **SKEWED))
    with Processes() as workers:
        for round in simulate(run, load("digits"), workers):  # one record for each client that took part
            print([f"{record.client}: {record.test_own:.2f}" for record in round])
