"""The family of averaged weights: each against a plain-loop twin or a published property, and in the simulator."""

import copy
from dataclasses import replace
from itertools import chain, pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, grad
from torch.nn import functional as F

from repshare import Client, LeNet5, Policy, Task
from repshare.board import Wants
from repshare.config import Run, Setting
from repshare.errors import ConfigError, Refused
from repshare.learning.models import split
from repshare.learning.randomness import torch_stream
from repshare.learning.samples import Samples
from repshare.methods import METHODS, find_method
from repshare.methods.weights.stepping import STATISTICS
from repshare.sharing import wire
from repshare.simulation import simulate
from support.simulations import bits, resumed_bits

STEPPING = ["FEDADAGRAD", "FEDADAM", "FEDYOGI", "FEDNOVA", "SCAFFOLD"]
FAMILY = [*STEPPING, "FEDPER", "FEDPROX", "FINETUNE", "GOSSIP", "LGFEDAVG", "VRLSGD"]
SMALL = Setting(dataset="digits", samples=150, clients=3, rounds=3, model=("mlp",), partition="unequal", ratio=3)
RATE = 0.2


@pytest.mark.parametrize("method", FAMILY)
def test_every_method_trains_to_the_same_records_wherever_it_runs(method, splits, inline, processes, tmp_path):
    run = Run(method, 0, replace(SMALL, participation=0.7))
    whole = bits(run, splits, inline)
    assert np.mean([record.ce for record in whole[-1]]) < np.mean([record.ce for record in whole[0]])
    assert not any(record.trouble for records in whole for record in records)
    assert bits(run, splits, processes) == whole
    assert resumed_bits(run, splits, inline, tmp_path) == whole[2:]


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
                self.method.absorb(client.learner, self.taught_body())
                client.learner.train()
            for client in self.clients:
                self.server.accept(client.name, self.method.share(client.learner, client.round_number))
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


def test_fedprox_without_its_term_is_fedavg_to_the_bit(splits, inline):
    fedavg = bits(Run("FL", 0, SMALL), splits, inline)
    for mu, same in (("0", True), ("1", False)):
        run = Run("FEDPROX", 0, replace(SMALL, method_options=(f"FEDPROX.mu={mu}",)))
        assert (bits(run, splits, inline) == fedavg) is same


def test_fednova_is_its_plain_loop_and_with_equal_steps_fedavg(digits):
    def averaged(x, ys, steps):
        shares = [100 / 140, 40 / 140]
        together = sum(p * made for p, made in zip(shares, steps, strict=True))
        each = list(zip(shares, ys, steps, strict=True))
        return {n: x[n] - together * sum(p * (x[n] - y[n]) / made for p, y, made in each) for n in x}

    unequal = Federation(digits, "FEDNOVA").play(3)
    assert close(unequal.parameters(), twin(unequal.data, 3, lambda number, g: g, averaged))
    sgd = Policy(optimizer="sgd", learning_rate=0.3)
    for sizes, same in (((64, 64), True), ((100, 40), False)):
        nova, fedavg = (Federation(digits, name, sizes=sizes, policy=sgd).play(3) for name in ("FEDNOVA", "FL"))
        assert close(nova.parameters(), fedavg.parameters()) is same


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


def test_vrl_sgd_is_its_plain_loop_and_its_corrections_add_up_to_zero(digits):
    zeros = {name: torch.zeros_like(tensor) for name, tensor in start().named_parameters()}
    delta = [zeros, zeros]

    def averaged(x, ys, steps):
        nonlocal delta
        centre = mean(ys)
        each = zip(delta, ys, steps, strict=True)
        delta = [{n: d[n] + (centre[n] - y[n]) / (made * RATE) for n in x} for d, y, made in each]
        return centre

    here = Federation(digits, "VRLSGD", sizes=(64, 64)).play(3)
    assert close(here.parameters(), twin(here.data, 3, lambda i, g: {n: g[n] - delta[i][n] for n in g}, averaged))
    for _ in range(2):  # a client may be tested with an average before it goes on from it
        for client in here.clients:
            here.method.absorb(client.learner, here.taught_body())
    for name, ours in delta[0].items():
        first, second = (client.learner.remembered[f"next {name}"] for client in here.clients)
        assert torch.allclose(first + second, torch.zeros_like(first), atol=1e-5)
        assert torch.allclose(first, ours, atol=1e-4)


RULES = {
    "FEDADAGRAD": lambda v, square: v + square,
    "FEDADAM": lambda v, square: 0.99 * v + 0.01 * square,
    "FEDYOGI": lambda v, square: v - 0.01 * square * np.sign(v - square),
}


def one_weight():
    return nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1, bias=False))


def serve_one(method, *options):
    """A server of one weight, 0, whose clients' weights are given by number."""
    method, model = find_method(method, Setting(method_options=options)), one_weight()
    nn.init.zeros_(model[1].weight)
    server, empty = method.serve(Task(2, 1), split(model, torch.zeros(2, 1)), method.options), copy.deepcopy(model)
    learner = Client(empty, (torch.zeros(4, 1), torch.tensor([0, 1, 0, 1])), method=method).learner

    def tell(round, weight, statistic, client="a"):
        learner.network.model[1].weight.data.fill_(weight)
        learner.network.model[0].running_var.fill_(statistic)
        server.accept(client, method.share(learner, round))
        return wire.decode_weights(server.teach("", Wants(0, 0)))[0]

    return server, tell


@pytest.mark.parametrize("method", RULES)
def test_the_servers_optimizers_are_their_formulas(method):
    _, tell = serve_one(method)
    x, m, v, beta = 0.0, 0.0, 1e-6, 0.0 if method == "FEDADAGRAD" else 0.9
    for round, (shared, statistic) in enumerate([(0.5, 4.0), (0.1, 9.0), (-0.7, 2.0)], start=1):
        taught = tell(round, shared, statistic)
        m, v = beta * m + (1 - beta) * (shared - x), RULES[method](v, (shared - x) ** 2)
        x += 0.01 * m / (np.sqrt(v) + 1e-3)
        assert taught["1.weight"].item() == pytest.approx(x, rel=1e-5)
        assert taught[f"{STATISTICS}0.running_var"].item() == pytest.approx(statistic)  # averaged, without a step


def test_a_step_does_not_depend_on_who_comes_first_and_is_final_with_the_next_round():
    taught = []
    for order in ([("a", 0.5), ("b", 0.1)], [("b", 0.1), ("a", 0.5)]):
        _, tell = serve_one("FEDADAM")
        for round in (1, 2):
            for client, weight in order:
                last = tell(round, weight, 1.0, client)
        taught.append(last["1.weight"].item())
    assert taught[0] == taught[1]
    server, tell = serve_one("FEDADAM")
    tell(2, 0.5, 1.0)
    with pytest.raises(Refused, match="round 2 has begun"):
        tell(1, 0.5, 1.0, "b")
    with pytest.raises(Refused, match="another architecture"):
        server.accept("c", wire.encode_weights({"1.weight": np.zeros((2, 2), np.float32)}, round=2, samples=1))


def test_adam_that_remembers_nothing_and_divides_by_a_large_tau_is_fedavg(digits):
    words = ("beta1=0", "beta2=0", "tau=1e9", "server_rate=1e9")
    sgd = Policy(optimizer="sgd", learning_rate=0.1)
    adam = Federation(digits, "FEDADAM", *(f"FEDADAM.{word}" for word in words), policy=sgd).play(2)
    assert close(adam.parameters(), Federation(digits, "FL", policy=sgd).play(2).parameters(), 1e-6)


@pytest.mark.parametrize(("method", "common"), [("FEDPER", "features"), ("LGFEDAVG", "head")])
def test_one_part_of_the_networks_is_common_and_the_other_each_clients_own(digits, method, common):
    here = Federation(digits, method).play(2)
    assert all(name.startswith(common) or common == "head" for name in here.taught())
    for client in here.clients:
        here.method.absorb(client.learner, here.taught_body())
    first, second = (client.learner.network.model.state_dict() for client in here.clients)
    assert {name for name in first if torch.equal(first[name], second[name])} == {
        name for name in first if name.startswith(common)
    }
    assert len(here.taught()) == sum(name.startswith(common) for name in first)


def test_fine_tuning_tests_the_average_after_local_training_and_leaves_no_trace(digits, splits, inline):
    tuned, fedavg = (bits(Run(name, 0, SMALL), splits, inline) for name in ("FINETUNE", "FL"))
    for one, other in zip(chain(*tuned), chain(*fedavg), strict=True):
        assert one.test_own != other.test_own
        assert replace(one, test_own=0, test_accuracy=0, test_unseen=0) == replace(
            other, test_own=0, test_accuracy=0, test_unseen=0
        )
    learner = Federation(digits, "FINETUNE", "FINETUNE.tuning_epochs=2").play(1).clients[1].learner
    samples = Samples(digits[1])
    first, second = learner.scores(samples), learner.scores(samples)
    assert torch.equal(first, second)
    learner.train(), learner.train()
    assert torch.equal(super(type(learner), learner).scores(samples), first)


def test_heads_of_different_networks_are_averaged_but_layers_are_not(splits, inline):
    mixed = replace(SMALL, model=("lenet5", "mlp"), rounds=1)
    assert len(bits(Run("LGFEDAVG", 0, mixed), splits, inline)) == 1
    for method in set(FAMILY) - {"LGFEDAVG"}:
        with pytest.raises(ConfigError, match=f"{method} averages weights, so it needs one model, not lenet5, mlp"):
            next(simulate(Run(method, 0, mixed), splits, inline))


@pytest.mark.parametrize("method", STEPPING)
def test_a_server_that_steps_needs_weights_to_begin_with(method, splits, inline):
    with pytest.raises(ConfigError, match="leave independent_starts out"):
        next(simulate(Run(method, 0, replace(SMALL, independent_starts=True)), splits, inline))


def gossip(graph, values):
    """Clients of one weight each on this graph, after all have sent theirs: what each mixes, and the server."""
    method, model = METHODS["GOSSIP"], one_weight()
    server = method.serve(Task(2, 1), split(model, torch.zeros(2, 1)))
    server.meet(graph)
    data, parties = (torch.zeros(4, 1), torch.tensor([0, 1, 0, 1])), {}
    for name, value in values.items():
        parties[name] = Client(one_weight(), data, name=name, method=method).learner
        parties[name].network.model[1].weight.data.fill_(value)
        server.accept(name, method.share(parties[name], 1))

    def mix():
        for name in 2 * list(parties):  # twice: a client may be tested with a mixture before it goes on from it
            method.absorb(parties[name], server.teach(name, Wants(0, 0)))
        return {name: party.network.model[1].weight.item() for name, party in parties.items()}

    return mix, server, parties


def test_gossip_mixes_neighbours_and_keeps_the_mean_whatever_the_graph():
    star = {"a": ["b", "c", "d"], "b": ["a"], "c": ["a"], "d": ["a"]}
    mix, _, _ = gossip(star, {"a": 8.0, "b": 4.0, "c": 0.0, "d": -4.0})
    assert mix() == {"a": 8 / 4 + 4 / 4 + 0 - 4 / 4, "b": 8 / 4 + 4 * 3 / 4, "c": 8 / 4, "d": 8 / 4 - 4 * 3 / 4}
    ring = {"a": ["b", "d"], "b": ["a", "c"], "c": ["b", "d"], "d": ["a", "c"]}
    mixed = gossip(ring, {"a": 9.0, "b": 0.0, "c": 3.0, "d": -3.0})[0]()
    assert mixed == pytest.approx({"a": 2, "b": 4, "c": 0, "d": 3})
    assert sum(mixed.values()) == pytest.approx(9)


def test_gossip_leaves_out_who_has_sent_nothing_and_what_is_older():
    mix, server, parties = gossip({"a": ["b"], "b": ["a"], "c": []}, {"a": 2.0, "c": 5.0})
    assert mix() == {"a": 2.0, "c": 5.0}
    parties["a"].network.model[1].weight.data.fill_(7.0)
    server.accept("a", METHODS["GOSSIP"].share(parties["a"], 0))
    assert wire.decode_weights(server.sent["a"])[0]["1.weight"].item() == 2.0


def test_gossip_uses_the_topology_and_counts_each_neighbours_bytes(splits, inline):
    def down(topology):
        run = Run("GOSSIP", 0, replace(SMALL, clients=5, rounds=2, topology=topology))
        first, second = bits(run, splits, inline)
        assert {record.bytes_up for record in first} == {record.bytes_up for record in second}
        return [round(record.bytes_down / record.bytes_up) for record in second]

    assert down(None) == down("ring") == [2] * 5
    assert down("complete") == [4] * 5
    assert down("star") == [4, 1, 1, 1, 1]
