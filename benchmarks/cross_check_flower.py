"""Servers of FedAvg, FedAdagrad, FedYogi and FedAdam here beside Flower's strategies, given the same clients' weights.

    python benchmarks/cross_check_flower.py

It makes an environment for Flower, as benchmarks/simulation.py does, and uses its strategies alone. Flower begins with
v = 0, where the paper has τ² or more; its FedAdam corrects the rate for bias, which the paper's does not. The table has
both: Flower as it is, and Flower told to begin and step as published.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from environments import prepare

ROUNDS, CLIENTS, RATE, TAU, BETAS, SEED = 20, 5, 0.03, 1e-3, (0.9, 0.99), 0
NAMES = {"FL": "FedAvg", "FEDADAGRAD": "FedAdagrad", "FEDYOGI": "FedYogi", "FEDADAM": "FedAdam"}
Weights = dict[str, Any]


def train(rng: np.random.Generator, start: Weights) -> list[tuple[Weights, int]]:
    """Return what clients make of the server's weights, and their numbers of samples. It is random, not learned."""
    return [
        (
            {
                name: array + rng.normal(0.01, 0.02, array.shape).astype(np.float32)
                for name, array in sorted(start.items())
            },
            n,
        )
        for n in rng.integers(50, 200, CLIENTS).tolist()
    ]


def make_start() -> Any:
    """Return a small network."""
    import torch

    from repshare.learning.models import split

    torch.manual_seed(SEED)
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Tanh(), torch.nn.Linear(30, 5))
    return split(model, torch.zeros(2, 20))


def run_here(method: str) -> Weights:
    """Return the weights after all rounds, by the server of repshare."""
    from repshare.board import Wants
    from repshare.methods import METHODS
    from repshare.methods.weights.adaptive import AdaptiveOptions
    from repshare.sharing import wire
    from repshare.sharing.task import Task

    beta1 = 0.0 if method == "FEDADAGRAD" else BETAS[0]
    options = None if method == "FL" else AdaptiveOptions(RATE, beta1, BETAS[1], TAU)
    serve, rng = METHODS[method].serve, np.random.default_rng(SEED)
    assert serve is not None
    server = serve(Task(5, 30), make_start(), options)
    for number in range(1, ROUNDS + 1):
        held = wire.decode_weights(server.teach("client 1", Wants(0, 0)))[0]
        for client, (weights, samples) in enumerate(train(rng, dict(held))):
            server.accept(f"client {client}", wire.encode_weights(weights, round=number, samples=samples))
    return dict(wire.decode_weights(server.teach("client 1", Wants(0, 0)))[0])


def run_there(method: str, *, as_published: bool) -> Weights:
    """Return the same by Flower's strategy."""
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server import strategy as strategies

    start = {name: tensor.detach().numpy() for name, tensor in make_start().model.named_parameters()}
    given = {} if method == "FL" else {"eta": RATE, "tau": TAU}
    if method in ("FEDYOGI", "FEDADAM"):
        given |= {"beta_1": BETAS[0], "beta_2": BETAS[1]}
    strategy = getattr(strategies, NAMES[method])(
        initial_parameters=ndarrays_to_parameters(list(start.values())), **given
    )
    if as_published and method != "FL":
        strategy.v_t = [np.full(array.shape, TAU**2) for array in start.values()]
    held, rng = start, np.random.default_rng(SEED)
    for number in range(1, ROUNDS + 1):
        if as_published and method == "FEDADAM":  # its correction for bias, taken back
            powers = [1 - beta ** (number + 1.0) for beta in BETAS]
            strategy.eta = RATE * powers[0] / np.sqrt(powers[1])
        results = [
            (None, FitRes(Status(Code.OK, ""), ndarrays_to_parameters([weights[name] for name in held]), samples, {}))
            for weights, samples in train(rng, held)
        ]
        parameters, _ = strategy.aggregate_fit(number, results, [])
        arrays = parameters_to_ndarrays(parameters)
        held = {name: array.astype(np.float32) for name, array in zip(held, arrays, strict=True)}
    return held


def apart(a: Weights, b: Weights) -> float:
    """Return the largest difference of a weight."""
    return max(float(np.abs(a[name] - b[name]).max()) for name in a)


def compare() -> None:
    """Print the table."""
    print("| method | as published | Flower as it is |\n|---|---:|---:|")
    for method in NAMES:
        here = run_here(method)
        told, plain = (apart(here, run_there(method, as_published=each)) for each in (True, False))
        print(f"| {method} | {told:.1e} | {plain:.1e} |")


def main() -> None:
    if "--inside" in sys.argv:
        compare()
        return
    source = Path(__file__).parents[1] / "src"
    environment = {**os.environ, "PYTHONPATH": str(source)}
    subprocess.run([str(prepare("flower")), __file__, "--inside"], check=True, env=environment)


if __name__ == "__main__":
    main()
