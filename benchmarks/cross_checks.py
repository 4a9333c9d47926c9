"""FedAvg, FedProx, SCAFFOLD and FedProto here beside the same in PFLlib: same split, start, model and batches.

PFLlib is not installed by anything here: clone it, and give its folder. It needs h5py and scikit-learn next to what
repshare needs.

    python benchmarks/cross_checks.py path/to/PFLlib

A batch is all that a client has, so that the order of samples does not matter: both sides make the same steps, and what
differs is the method, or rounding.
"""

import json
import os
import statistics
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from repshare.config import Policy
from repshare.randomness import derive
from repshare_lab.config import Run, Setting
from repshare_lab.data import load
from repshare_lab.results.terminal import markdown
from repshare_lab.simulation import Inline, resolve, simulate
from repshare_lab.simulation.plan import Plan, as_tensors, build_model, make_plan, make_start

SEEDS, ROUNDS, EPOCHS, RATE, MU, CLIENTS, LARGEST = 3, 20, 5, 0.2, 0.1, 10, 10_000
DIVISIONS = {"uniform": {}, "Dirichlet 0.5": {"partition": "dirichlet", "alpha": 0.5}}
PROX = str(Path(__file__).parents[1] / "examples/fedprox.py:PROX")
METHODS = {"FL": "avg", PROX: "prox", "SCAFFOLD": "scaffold", "FEDPROTO": "proto"}
SERVERS = {"avg": "FedAvg", "prox": "FedProx", "scaffold": "SCAFFOLD", "proto": "FedProto"}


class Outcome(NamedTuple):
    """The end of a run: accuracy over clients in percent, and the server's weights, where it has any."""

    accuracy: float
    weights: dict[str, Tensor]


def describe(method: str, division: dict[str, Any], seed: int) -> Run[Any]:
    """Return the run that both sides carry out."""
    policy = Policy(optimizer="sgd", learning_rate=RATE, epochs=EPOCHS, batch_size=LARGEST)
    options = {PROX: (f"PROX.mu={MU}",)}.get(method, ())
    setting = Setting(
        dataset="digits", model=("mlp",), clients=CLIENTS, rounds=ROUNDS, eval_every=ROUNDS, policy=policy,
        method_options=options, **division,
    )  # fmt: skip
    return Run(method, seed, resolve(setting, load("digits")))


def run_here(run: Run[Any]) -> Outcome:
    """Carry the run out with repshare."""
    with TemporaryDirectory() as folder, Inline() as workers:
        *_, last = simulate(run, load("digits"), workers, models=Path(folder))
        files = [*Path(folder).glob("model.*")]
        weights = read_weights(files[0]) if files else {}
    return Outcome(100 * statistics.fmean(record.test_accuracy for record in last), weights)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return a kept model's tensors."""
    from safetensors.torch import load_file

    return load_file(path)


def write_samples(plan: Plan, folder: Path) -> None:
    """Write each client's samples as PFLlib reads them. Tests are ours: its own have the first samples only."""
    for part in ("train", "test"):
        (folder / "dataset" / "digits" / part).mkdir(parents=True)
    (folder / "system").mkdir()
    for client in range(plan.clients):
        rows = plan.part(client)
        data = {"x": np.asarray(plan.train_inputs)[rows], "y": plan.train_labels[rows]}
        for part in ("train", "test"):
            np.savez(folder / "dataset" / "digits" / part / f"{client}.npz", data=np.array(data, dtype=object))


def run_there(run: Run[Any], source: Path, folder: Path) -> Outcome:
    """Carry the run out with PFLlib, in this process, whose current folder changes: use a process for each."""
    plan = make_plan(run, load("digits"))
    write_samples(plan, folder)
    os.chdir(folder / "system")
    sys.path.insert(0, str(source / "system"))
    kind = METHODS[run.method]
    from flcore.trainmodel.models import BaseHeadSplit  # type: ignore[import-not-found]

    def divide(model: nn.Module, head: str) -> nn.Module:
        own = deepcopy(model)
        last = deepcopy(own.get_submodule(head))
        own.set_submodule(head, nn.Identity())
        return BaseHeadSplit(own, last)  # type: ignore[no-any-return]

    start = make_start(plan)
    model = divide(start.model, start.head_name) if kind == "proto" else start.model
    module = __import__(f"flcore.servers.server{kind}", fromlist=["server"])
    server = getattr(module, SERVERS[kind])(arguments(model, plan, kind), 0)
    for index, client in enumerate(server.clients):
        client.batch_size = client.train_samples  # all at once
        if kind == "proto":  # everyone's own start, as here
            own = build_model(plan, plan.model(index), derive(run.seed, plan.name(index), "model"))
            client.model.load_state_dict(divide(own, start.head_name).state_dict())
    server.train()
    test = as_tensors(plan.test_inputs, copied=True)
    if kind == "proto":
        accuracies = [_nearest(client.model.base, server.global_protos, test, plan) for client in server.clients]
        return Outcome(100 * statistics.fmean(accuracies), {})
    accuracy = _accuracy(server.global_model, test, plan)
    return Outcome(100 * accuracy, dict(server.global_model.state_dict()))


def arguments(model: nn.Module, plan: Plan, kind: str) -> Namespace:
    """Return what PFLlib's command line would hold: nobody is slow, absent or new, and only the start is tested."""
    off = dict.fromkeys(["random_join_ratio", "time_select", "auto_break", "dlg_eval", "learning_rate_decay"], False)
    none = dict.fromkeys(["few_shot", "client_drop_rate", "train_slow_rate", "send_slow_rate", "num_new_clients"], 0)
    return Namespace(
        model=model, algorithm=SERVERS[kind], dataset="digits", device="cpu", num_classes=plan.classes,
        global_rounds=ROUNDS - 1, local_epochs=EPOCHS, batch_size=LARGEST, local_learning_rate=RATE, mu=MU, lamda=1.0,
        server_learning_rate=1.0, learning_rate_decay_gamma=1.0, num_clients=plan.clients, join_ratio=1.0, goal="test",
        time_threthold=1e9, save_folder_name="items", top_cnt=100, eval_gap=10**6, dlg_gap=10**6,
        batch_num_per_client=2, fine_tuning_epoch_new=0, **off, **none,
    )  # fmt: skip


def _accuracy(model: Callable[[Tensor], Tensor], test: Tensor, plan: Plan) -> float:
    with torch.no_grad():
        return float((model(test).argmax(1).numpy() == plan.test_labels).mean())


def _nearest(base: Callable[[Tensor], Tensor], prototypes: dict[int, Tensor], test: Tensor, plan: Plan) -> float:
    def judge(inputs: Tensor) -> Tensor:
        table = torch.full((len(inputs), plan.classes), -torch.inf)
        for label, prototype in prototypes.items():
            table[:, label] = -(base(inputs) - prototype).square().sum(1)
        return table

    return _accuracy(judge, test, plan)


def compare(source: Path) -> str:
    """Return the table: both sides on the same runs."""
    rows = []
    for name, division in DIVISIONS.items():
        for method in METHODS:
            pairs = []
            for seed in range(SEEDS):
                here = run_here(describe(method, division, seed))
                command = [sys.executable, __file__, str(source), "--one", method, name, str(seed)]
                there = json.loads(subprocess.run(command, check=True, capture_output=True).stdout.splitlines()[-1])
                weights = {key: torch.tensor(values) for key, values in there["weights"].items()}
                apart = [float((here.weights[key] - weights[key]).abs().max()) for key in weights]
                pairs.append((here.accuracy, there["accuracy"], max(apart, default=float("nan"))))
                print(name, method, seed, *pairs[-1], flush=True)
            ours, theirs, apart_by_seed = zip(*pairs, strict=True)
            shown = [
                f"{statistics.fmean(values):.2f} ± {statistics.stdev(values):.2f}"
                for values in (ours, theirs, [a - b for a, b in zip(ours, theirs, strict=True)])
            ]
            rows.append([name, method, *shown, f"{max(apart_by_seed):.1e}"])
    heads = ["<division", "<method", "repshare", "PFLlib", "difference by seed", "weights apart at most"]
    return markdown(heads, rows)


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("source", type=Path, help="folder of a clone of PFLlib")
    parser.add_argument("--one", nargs=3, metavar=("METHOD", "DIVISION", "SEED"), help="one run of PFLlib, as JSON")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.one is None:
        print(compare(given.source.absolute()))
        return
    method, division, seed = given.one
    with TemporaryDirectory() as folder:
        run = describe(method, DIVISIONS[division], int(seed))
        outcome = run_there(run, given.source.absolute(), Path(folder))
        os.chdir("/")
    weights = {name: tensor.tolist() for name, tensor in outcome.weights.items()}
    print("\n" + json.dumps({"accuracy": outcome.accuracy, "weights": weights}))


if __name__ == "__main__":
    main()
