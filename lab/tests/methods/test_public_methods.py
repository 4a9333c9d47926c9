"""The method with public samples against its formula in plain loops, and in the simulator."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from repshare import Client, LeNet5, Policy, Task
from repshare.board import Wants
from repshare.errors import ConfigError, Malformed, Refused
from repshare.methods import METHODS
from repshare.network.models import split
from repshare.randomness import torch_stream
from repshare.sharing import wire
from repshare_lab.cli.methods import methods
from repshare_lab.config import Run, Setting
from repshare_lab.data import load
from repshare_lab.data.public import choose_public, describe_public
from repshare_lab.experiments.comparison import compare
from repshare_lab.methods import find_method
from repshare_lab.results import terminal
from repshare_lab.simulation import simulate
from repshare_lab.simulation.plan import make_plan, resolve
from support.simulations import bits, resumed_bits

SMALL = Setting(
    dataset="digits", samples=90, clients=3, rounds=3, model=("mlp",), public_data="rest:60", participation=0.7,
)  # fmt: skip
NOTHING = Wants(0, 0)


def test_it_trains_to_the_same_records_wherever_it_runs(splits, inline, processes, tmp_path):
    run = Run("FEDMD", 0, replace(SMALL, model=("mlp", "lenet5")))
    whole = bits(run, splits, inline)
    assert not any(record.trouble for records in whole for record in records)
    assert all(record.bytes_up > 0 for records in whole for record in records)
    torch.set_num_threads(2)  # as the parent of worker processes may have
    assert bits(run, splits, processes) == whole
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    assert resumed_bits(run, splits, inline, tmp_path) == whole[2:]


def test_no_public_label_and_no_test_sample_changes_anything(splits, inline):
    labels = splits.train.labels.copy()
    labels[90:150] = 9 - labels[90:150]
    run = Run("FEDMD", 0, replace(SMALL, rounds=2, participation=1))
    assert bits(run, replace(splits, train=splits.train._replace(labels=labels)), inline) == bits(run, splits, inline)
    fewer = bits(run, splits.first(None, 100), inline)
    trained = [[record.ce for record in records] for records in fewer]
    assert trained == [[record.ce for record in records] for records in bits(run, splits, inline)]


def test_without_public_samples_or_with_a_budget_it_is_refused(splits, inline):
    with pytest.raises(ConfigError, match="FEDMD learns from public samples: give them with --public-data"):
        next(simulate(Run("FEDMD", 0, replace(SMALL, public_data=None)), splits, inline))
    with pytest.raises(ConfigError, match="leave FEDMD out"):
        METHODS["FEDMD"].adapt(Policy(epsilon=1.0))
    with pytest.raises(ConfigError, match="attackers change representations: FEDMD shares none"):
        next(simulate(Run("FEDMD", 0, replace(SMALL, attackers=0.4)), splits, inline))


def test_public_samples_are_those_after_the_clients_or_of_another_set_prepared_alike(splits):
    plan = make_plan(Run("FEDMD", 0, resolve(SMALL, splits)), splits)
    pixels = splits.train.images[:90].astype(float)
    expected = (splits.train.images[90:150] - pixels.mean()) / pixels.std()
    assert plan.public_inputs == pytest.approx(expected, abs=1e-5)
    assert plan.public_labels.tolist() == splits.train.labels[90:150].tolist()
    assert make_plan(Run("IL", 0, resolve(SMALL, splits)), splits).public_inputs is None
    tables = load("breast_cancer").train
    others = choose_public("breast_cancer:5", "own", replace(splits, train=tables, test=tables, standardise=False), 4)
    assert others.inputs.tolist() == tables.inputs[:5].tolist()
    assert others.labels.tolist() == [-1] * 5  # of other classes
    for wanted, why in (
        ("rest:1111", "digits has 1110 training samples beyond the clients' 90: 1111 are too many"),
        ("digits:5", "use rest:5"),
        ("wine:5", r"samples of wine are float32 \(13,\), those of digits uint8 \(1, 8, 8\)"),
    ):
        with pytest.raises(ConfigError, match=why):
            choose_public(wanted, "digits", splits, 90)
    with pytest.raises(ConfigError, match="public_data must be NAME:NUMBER"):
        Setting(public_data="rest")


def parties(digits, *words, policy=None, names="ab"):
    """Two clients of 60 samples and 40 public ones, in step with a server."""
    (images, labels), _ = digits
    chosen = find_method("FEDMD", Setting(method_options=tuple(f"FEDMD.{word}" for word in words)))
    public, found = (images[200:240], labels[200:240]), []
    for number, name in enumerate(names):
        torch.manual_seed(number)
        rows = slice(60 * number, 60 * number + 60)
        data = images[rows], labels[rows]
        found.append(Client(LeNet5(), data, name=name, method=chosen, public=public, policy=policy))
    torch.manual_seed(0)
    server = chosen.serve(Task(10, 84), split(LeNet5(), images[:1]), chosen.options)
    return chosen, server, found


def exchange(method, server, clients, round=1):
    for client in clients:
        server.accept(client.name, client.learner.release(round))
    for client in clients:
        client.learner.absorb(server.teach(client.name, NOTHING))


def logits_of(client, inputs):
    client.learner.network.model.eval()
    with torch.no_grad():
        return client.learner.network(inputs)[1].double().numpy()


def rows_of(round, count, among=40):
    order = torch.randperm(among, generator=torch_stream(0, "public", round))
    return sorted(order[:count].tolist())


def test_what_comes_back_is_the_mean_of_the_logits_over_a_rounds_public_samples(digits):
    chosen, server, both = parties(digits, "per_round=25")
    rows = rows_of(3, 25)
    expected = sum(logits_of(client, digits[0][0][200:240][rows]) for client in both) / 2
    exchange(chosen, server, both, 3)
    learner = both[0].learner
    assert learner.chosen(3).tolist() == rows
    assert learner.remembered["targets"].numpy() == pytest.approx(expected, abs=1e-5)
    assert len(set(rows_of(1, 25)) ^ set(rows)) > 0  # another round, other samples


def test_fedmd_digests_class_scores_by_their_absolute_difference_then_revisits_its_own_samples(digits):
    sgd = Policy(optimizer="sgd", learning_rate=0.1)
    chosen, server, both = parties(digits, "public_epochs=2", policy=sgd)
    exchange(chosen, server, both)
    learner, twin = both[0].learner, LeNet5()
    twin.load_state_dict(learner.network.model.state_dict())
    targets, draws = learner.remembered["targets"], torch_stream(0, "a", "batches")
    public, (images, labels) = digits[0][0][200:240], digits[0]

    def step(loss):
        gradients = torch.autograd.grad(loss, list(twin.parameters()))
        for weights, gradient in zip(twin.parameters(), gradients, strict=True):
            weights.data -= 0.1 * gradient

    orders = [torch.randperm(40, generator=draws) for _ in range(2)]
    for order in orders:
        for part in order.split(32):
            step((twin(public[part]) - targets[part]).abs().mean())
    for part in torch.randperm(60, generator=draws).split(32):
        step(F.cross_entropy(twin(images[part]), labels[part]))
    learner.train()
    after = learner.network.model.state_dict()
    assert all(torch.allclose(after[name], weights, atol=1e-6) for name, weights in twin.state_dict().items())


def test_what_does_not_fit_is_refused_and_late_messages_count_for_nothing(digits):
    chosen, server, (client, other) = parties(digits, "per_round=25")
    exchange(chosen, server, [client, other], 2)
    before = server.teach("a", NOTHING)
    server.accept("a", client.learner.release(1))
    assert server.teach("a", NOTHING) == before
    for labels in (np.full((25, 10), np.nan), np.zeros((25, 9)), np.zeros((24, 10))):
        with pytest.raises(Refused, match=r"not finite|not like the others"):
            server.accept("c", wire.encode_weights({"labels": labels.astype(np.float32)}, round=2, samples=1))
        with pytest.raises(Malformed, match=r"not finite|25 rows of 10"):
            client.learner.absorb(wire.encode_weights({"labels": labels.astype(np.float32)}, round=2, samples=1))
    with pytest.raises(ConfigError, match="per_round must be"):
        find_method("FEDMD", Setting(method_options=("FEDMD.per_round=0",)))


def test_traffic_is_a_number_for_each_class_and_public_sample(splits, inline):
    run = Run("FEDMD", 0, replace(SMALL, participation=1, method_options=("FEDMD.per_round=50",)))
    for record in bits(run, splits, inline)[1]:
        assert 50 * 10 * 4 < record.bytes_up < 50 * 10 * 4 + 300
        assert 50 * 10 * 4 < record.bytes_down < 50 * 10 * 4 + 1000


def test_results_and_lists_say_which_rows_used_which_public_samples(splits, capsys):
    given = {"samples": 60, "clients": 2, "rounds": 1, "model": ("mlp",), "public_data": "rest:20"}
    result = compare("digits", ["IL", "FEDMD"], splits=splits, workers=0, **given)
    assert [row.get("public_data") for row in result.rows] == [None, "rest:20"]
    table, *more = terminal.comparison_tables(result.records, asdict(result.setting), "", {}, {"FEDMD"}, "rest:20")
    assert list(table.columns[0].cells) == ["[bold]IL[/]", "[bold]FEDMD[/] †"]
    assert any("with public data, which no client owns: rest:20" in str(each) for each in more)
    told = terminal.legend({"IL": "", "FEDMD": ""}, 1, public=describe_public("rest:2000", "mnist"))
    assert "with public data, which no client owns: 2,000 training samples of mnist that no client has" in told
    assert "public" not in terminal.legend({"IL": ""}, 1)
    assert {name for name, method in METHODS.items() if method.uses_public} == {"FEDMD"}
    methods(("FEDMD", "FL"))
    assert capsys.readouterr().out.count("--public-data") == 1
