"""Run in Flower's environment: a ClientApp as a method, whole and interrupted, and FL; keep models, print what came."""

import json
import sys
from pathlib import Path

from repshare import Policy
from repshare_lab import load
from repshare_lab.config import Run, Setting
from repshare_lab.simulation import Inline, Processes
from support.simulations import bits, resumed_bits

ROOT = Path(__file__).parents[2]
METHOD = f"{ROOT}/examples/flower/as_method.py:FLOWER"
APP = f"FLOWER.app={ROOT}/flower/tests/flower_own_app.py:app"
WHOLE_DATA = Policy(optimizer="sgd", learning_rate=0.1, batch_size=1000, epochs=5)
SETTING = Setting(
    dataset="digits", samples=150, clients=3, rounds=3, eval_every=1, model=("lenet5",), partition="dirichlet",
    policy=WHOLE_DATA, method_options=(APP,),
)  # fmt: skip


def main(folder):
    splits, run = load("digits"), Run(METHOD, 0, SETTING)
    with Inline() as inline, Processes(2) as processes:
        whole = bits(run, splits, inline, models=folder / "FLOWER")
        bits(Run("FL", 0, SETTING), splits, inline, models=folder / "FL")
        print(json.dumps({
            "same_in_processes": bits(run, splits, processes) == whole,
            "same_if_resumed": resumed_bits(run, splits, inline, folder / "c", after=1) == whole[1:],
            "trouble": [record.trouble for records in whole for record in records],
        }))  # fmt: skip


if __name__ == "__main__":  # worker processes run this file again
    main(Path(sys.argv[1]))
