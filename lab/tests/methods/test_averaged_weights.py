"""The family of averaged weights: each against a plain-loop twin or a published property, and in the simulator."""

import copy
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, grad
from torch.nn import functional as F

from repshare import Client, LeNet5, Policy, Task
from repshare.board import Wants
from repshare.errors import ConfigError, Refused
from repshare.methods import METHODS
from repshare.network.models import split
from repshare.randomness import torch_stream
from repshare.samples import Samples
from repshare.sharing import wire
from repshare_lab.config import Run, Setting
from repshare_lab.methods import find_method
from repshare_lab.methods.scaffold import STATISTICS
from repshare_lab.simulation import simulate
from support.simulations import bits

FAMILY = ["FEDPER", "SCAFFOLD"]
SMALL = Setting(dataset="digits", samples=150, clients=3, rounds=3, model=("mlp",), partition="dirichlet")
RATE = 0.2


@pytest.mark.parametrize("method", FAMILY)
def test_none_of_them_knows_privacy_budgets(method):
    with pytest.raises(ConfigError, match=f"leave {method} out"):
        METHODS[method].adapt(Policy(epsilon=1.0))


def start():
    torch.manual_seed(0)
    return LeNet5()


class Federation:
    """Two clients of 100 and 40 samples, and a server, in step; the same in plain loops for `twin`."""

    def __init__(self, digits, method, *options, sizes=(100, 40), policy=None):
        (images, labels), _ = digits
        ends = np.cumsum([0, *sizes])
        self.data = [(images[a:b], labels[a:b]) for a, b in pairwise(ends)]
        self.method = find_method(method, Setting(method_options=options))
        self.clients = [
            Client(start(), part, name=str(number), method=self.method, policy=policy)
            for number, part in enumerate(self.data)
        ]
        self.server = self.method.serve(Task(10, 84), split(start(), images[:1]), self.method.options)

    def play(self, rounds):
        for _ in range(rounds):
            for client in self.clients:
                client.round_number += 1
                client.learner.absorb(self.taught_body())
                client.learner.train()
            for client in self.clients:
                self.server.accept(client.name, client.learner.release(client.round_number))
        return self

    def taught_body(self):
        return self.server.teach("", Wants(0, 0))

    def taught(self):
        return wire.decode_weights(self.taught_body())[0]

    def parameters(self):
        taught = self.taught()
        return {name: torch.from_numpy(taught[name]) for name, _ in start().named_parameters()}


def twin(data, rounds, corrected, averaged):
    """Local SGD in plain loops. `corrected(i, g)` is what client i uses, `averaged(x, ys, steps)` the next x."""
    model, x = start(), {name: tensor.detach() for name, tensor in start().named_parameters()}
    gradient = grad(lambda weights, inputs, labels: F.cross_entropy(functional_call(model, weights, inputs), labels))
    streams = [torch_stream(0, str(number), "batches") for number in range(len(data))]
    for _ in range(rounds):
        ys, steps = [], []
        for number, part in enumerate(data):
            y, made = x, 0
            for inputs, labels in Samples(part).shuffled(32, streams[number]):
                g = corrected(number, gradient(y, inputs, labels))
                y, made = {name: y[name] - RATE * g[name] for name in y}, made + 1
            ys.append(y)
            steps.append(made)
        x = averaged(x, ys, steps)
    return x


def close(a, b, tolerance=2e-5):
    return all(torch.allclose(a[name], b[name], atol=tolerance, rtol=0) for name in b)


def mean(ys):
    return {name: sum(y[name] for y in ys) / len(ys) for name in ys[0]}


def test_scaffold_is_its_plain_loop_and_its_control_variates_average_to_the_servers(digits):
    zeros = {name: torch.zeros_like(tensor) for name, tensor in start().named_parameters()}
    c, own = zeros, [zeros, zeros]

    def averaged(x, ys, steps):
        nonlocal c, own
        before = zip(own, ys, steps, strict=True)
        own = [{n: ci[n] - c[n] + (x[n] - y[n]) / (made * RATE) for n in x} for ci, y, made in before]
        c = mean(own)
        return {n: x[n] + 0.5 * (mean(ys)[n] - x[n]) for n in x}

    here = Federation(digits, "SCAFFOLD", "SCAFFOLD.server_rate=0.5").play(3)
    x = twin(here.data, 3, lambda i, g: {n: g[n] - own[i][n] + c[n] for n in g}, averaged)
    assert close(here.parameters(), x)
    assert max(float(tensor.abs().max()) for tensor in c.values()) > 0.01
    for name, taught in c.items():
        kept = [client.learner.remembered[f"own {name}"] for client in here.clients]
        assert torch.allclose(torch.from_numpy(here.taught()[f"c {name}"]), sum(kept) / 2, atol=1e-6)
        assert torch.allclose(taught, sum(kept) / 2, atol=1e-4)


def test_a_step_does_not_depend_on_who_comes_first_and_is_final_with_the_next_round():
    method, data, taught = METHODS["SCAFFOLD"], (torch.zeros(4, 1), torch.tensor([0, 1, 0, 1])), []
    for order in ("ab", "ba"):
        model = nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1, bias=False))
        server = method.serve(Task(2, 1), split(copy.deepcopy(model), torch.zeros(2, 1)), method.options)
        learners = {name: Client(copy.deepcopy(model), data, method=method).learner for name in order}
        for round in (1, 2):
            body = server.teach("", Wants(0, 0))
            for learner in learners.values():
                learner.absorb(body)
            for name, learner in learners.items():
                learner.network.model[1].weight.data.fill_({"a": 0.5, "b": 0.1}[name] * round)
                learner.network.model[0].running_var.fill_({"a": 4.0, "b": 2.0}[name])
                server.accept(name, learner.release(round))
        taught.append(wire.decode_weights(server.teach("", Wants(0, 0)))[0])
    assert {name: array.tolist() for name, array in taught[0].items()} == {n: a.tolist() for n, a in taught[1].items()}
    assert taught[0]["1.weight"].item() == pytest.approx(0.6)
    assert taught[0][f"{STATISTICS}0.running_var"].item() == pytest.approx(3.0)  # averaged, without a step
    with pytest.raises(Refused, match="round 2 has begun"):
        server.accept("a", learners["a"].release(1))
    with pytest.raises(Refused, match="another architecture"):
        server.accept("c", wire.encode_weights({"1.weight": np.zeros((2, 2), np.float32)}, round=2, samples=1))


@pytest.mark.parametrize(("method", "common"), [("FEDPER", "features"), ("SL", "head")])
def test_one_part_of_the_networks_is_common_and_the_other_each_clients_own(digits, method, common):
    here = Federation(digits, method).play(2)
    assert all(name.startswith(common) or common == "head" for name in here.taught())
    for client in here.clients:
        client.learner.absorb(here.taught_body())
    first, second = (client.learner.network.model.state_dict() for client in here.clients)
    assert {name for name in first if torch.equal(first[name], second[name])} == {
        name for name in first if name.startswith(common)
    }
    assert len(here.taught()) == sum(name.startswith(common) for name in first)


def test_heads_of_different_networks_are_averaged_but_layers_are_not(splits, inline):
    mixed = replace(SMALL, model=("lenet5", "mlp"), rounds=1)
    assert len(bits(Run("SL", 0, mixed), splits, inline)) == 1
    for method in FAMILY:
        with pytest.raises(ConfigError, match=f"{method} averages weights, so it needs one model, not lenet5, mlp"):
            next(simulate(Run(method, 0, mixed), splits, inline))


def test_a_server_that_steps_needs_weights_to_begin_with(splits, inline):
    with pytest.raises(ConfigError, match="leave independent_starts out"):
        next(simulate(Run("SCAFFOLD", 0, replace(SMALL, independent_starts=True)), splits, inline))
