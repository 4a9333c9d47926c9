"""Methods compared from Python, as a table; then one of them round by round.

python examples/compare.py
"""

import pandas

from repshare import compare, load
from repshare.config import Run, Setting
from repshare.simulation import Processes, simulate


def main() -> None:
    """Compare three methods where clients' classes differ, and follow RS."""
    options = {"clients": 4, "rounds": 5, "samples": 200, "partition": "dirichlet", "alpha": 0.3}
    result = compare("digits", ["IL", "FL", "RS"], seeds=2, **options)
    print(pandas.DataFrame(result.rows)[["method", "accuracy", "own_mix", "worst_client"]].round(1))
    records = pandas.DataFrame(result.records)  # a row for each method, seed, round and client
    print(records.groupby(["method", "round"]).test_own.mean().unstack().round(2))

    setting = Setting(dataset="digits", **options)
    with Processes(2) as workers:
        for round in simulate(Run("RS", seed=0, setting=setting), load("digits"), workers):
            print([f"{record.client}: {record.test_own:.2f}" for record in round if record.test_own is not None])


if __name__ == "__main__":  # worker processes run this file again
    main()
