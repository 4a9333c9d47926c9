"""Methods with public samples: each against its formula in plain loops, and in the simulator."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from repshare import Client, LeNet5, Policy, Task
from repshare.board import Wants
from repshare.cli.methods import methods, read_methods
from repshare.config import Run, Setting
from repshare.data import load
from repshare.data.public import choose_public, describe_public
from repshare.errors import ConfigError, Malformed, Refused
from repshare.experiments.comparison import compare
from repshare.learning.models import split
from repshare.learning.randomness import numpy_stream, torch_stream
from repshare.learning.samples import Samples
from repshare.learning.training import Batch
from repshare.methods import METHODS, find_method
from repshare.methods.public.robust_mean import robust_mean
from repshare.results import terminal
from repshare.sharing import wire
from repshare.simulation import simulate
from repshare.simulation.plan import make_plan, resolve
from support.simulations import bits, resumed_bits

SOFT = ["FEDMD", "DSFL", "CRONUS", "CODIST"]
FAMILY = [*SOFT, "FEDDF"]
SMALL = Setting(
    dataset="digits", samples=90, clients=3, rounds=3, model=("mlp",), public_data="rest:60", participation=0.7,
    method_options=("FEDDF.steps=5",),
)  # fmt: skip
NOTHING = Wants(0, 0)


@pytest.mark.parametrize("method", FAMILY)
def test_every_method_trains_to_the_same_records_wherever_it_runs(method, splits, inline, processes, tmp_path):
    mixed = {} if method == "FEDDF" else {"model": ("mlp", "lenet5")}
    run = Run(method, 0, replace(SMALL, **mixed))
    whole = bits(run, splits, inline)
    assert not any(record.trouble for records in whole for record in records)
    assert all(record.bytes_up > 0 for records in whole for record in records)
    torch.set_num_threads(2)  # as the parent of worker processes may have
    assert bits(run, splits, processes) == whole
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    assert resumed_bits(run, splits, inline, tmp_path) == whole[2:]


@pytest.mark.parametrize("method", FAMILY)
def test_no_public_label_and_no_test_sample_changes_anything(method, splits, inline):
    labels = splits.train.labels.copy()
    labels[90:150] = 9 - labels[90:150]
    run = Run(method, 0, replace(SMALL, rounds=2, participation=1))
    assert bits(run, replace(splits, train=splits.train._replace(labels=labels)), inline) == bits(run, splits, inline)
    fewer = bits(run, splits.first(None, 100), inline)
    trained = [[record.ce for record in records] for records in fewer]
    assert trained == [[record.ce for record in records] for records in bits(run, splits, inline)]


@pytest.mark.parametrize("method", FAMILY)
def test_without_public_samples_or_with_a_budget_it_is_refused(method, splits, inline):
    with pytest.raises(ConfigError, match=f"{method} learns from public samples: give them with --public-data"):
        next(simulate(Run(method, 0, replace(SMALL, public_data=None)), splits, inline))
    with pytest.raises(ConfigError, match=f"leave {method} out"):
        METHODS[method].adapt(Policy(epsilon=1.0))
    with pytest.raises(ConfigError, match=f"attackers change representations: {method} shares none"):
        next(simulate(Run(method, 0, replace(SMALL, attackers=0.4)), splits, inline))


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


def parties(digits, method, *words, policy=None, names="ab"):
    """Two clients of 60 samples and 40 public ones, in step with a server."""
    (images, labels), _ = digits
    chosen = find_method(method, Setting(method_options=tuple(f"{method}.{word}" for word in words)))
    public, found = (images[200:240], labels[200:240]), []
    for number, name in enumerate(names):
        torch.manual_seed(number)
        rows = slice(60 * number, 60 * number + 60)
        data = images[rows], labels[rows]
        found.append(Client(LeNet5(), data, name=name, method=chosen, public=public, policy=policy))
    torch.manual_seed(0)
    server = chosen.serve(Task(10, 84), split(LeNet5(), images[:1]), chosen.options)
    if hasattr(server, "equip"):
        server.equip(0, Samples(public))
    return chosen, server, found


def exchange(method, server, clients, round=1):
    for client in clients:
        server.accept(client.name, method.share(client.learner, round))
    for client in clients:
        method.absorb(client.learner, server.teach(client.name, NOTHING))


def logits_of(client, inputs):
    client.learner.network.model.eval()
    with torch.no_grad():
        return client.learner.network(inputs)[1].double().numpy()


def softmax(scores):
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def rows_of(round, count, among=40):
    order = torch.randperm(among, generator=torch_stream(0, "public", round))
    return sorted(order[:count].tolist())


COMBINED = {
    "FEDMD": lambda a, b: (a + b) / 2,
    "DSFL": lambda a, b: softmax((softmax(a) + softmax(b)) / 2 / 0.1),
    "CRONUS": lambda a, b: (softmax(a) + softmax(b)) / 2,  # two that agree more or less
    "CODIST": lambda a, b: softmax(b),  # of a's only neighbour
}


@pytest.mark.parametrize("method", SOFT)
def test_what_comes_back_is_the_methods_formula_over_a_rounds_public_samples(digits, method):
    chosen, server, both = parties(digits, method, "per_round=25")
    rows = rows_of(3, 25)
    expected = COMBINED[method](*(logits_of(client, digits[0][0][200:240][rows]) for client in both))
    exchange(chosen, server, both, 3)
    learner = both[0].learner
    assert learner.taught()[0].tolist() == rows
    assert learner.remembered["targets"].numpy() == pytest.approx(expected, abs=1e-5)
    assert len(set(rows_of(1, 25)) ^ set(rows)) > 0  # another round, other samples


def test_fedmd_digests_class_scores_by_their_absolute_difference_then_revisits_its_own_samples(digits):
    sgd = Policy(optimizer="sgd", learning_rate=0.1)
    chosen, server, both = parties(digits, "FEDMD", "public_epochs=2", policy=sgd)
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


def test_fedmd_uses_public_labels_only_if_asked_and_only_once(digits):
    for words in ((), ("pretrain_epochs=3",)):
        _, _, (client, _) = parties(digits, "FEDMD", *words)
        losses = [client.learner.train().ce for _ in range(2)]
        assert ("pretrained" in client.learner.remembered) is bool(words)
        moments = client.learner.optimizer.state_dict()["state"][0]["step"].item()
        assert moments == 2 * 2 + (3 * 2 if words else 0)
        assert losses[1] < losses[0]
    images, labels = digits[0]
    method = find_method("FEDMD", Setting(method_options=("FEDMD.pretrain_epochs=1",)))
    with pytest.raises(ConfigError, match="leave pretrain_epochs out"):
        Client(LeNet5(), (images[:9], labels[:9]), method=method, public=(images[:9], -torch.ones(9, dtype=torch.long)))


def test_ds_fl_sharpens_unless_told_otherwise_and_is_tested_after_distillation(digits):
    means = {}
    for word in ("sharpen=true", "sharpen=false"):
        chosen, server, both = parties(digits, "DSFL", word)
        exchange(chosen, server, both)
        means[word] = both[0].learner.remembered["targets"]
    entropy = {word: -(p * p.clamp(min=1e-30).log()).sum(1).mean().item() for word, p in means.items()}
    assert entropy["sharpen=true"] < entropy["sharpen=false"]
    assert torch.allclose(means["sharpen=false"].sum(1), torch.ones(40), atol=1e-5)
    learner, samples = both[0].learner, Samples(digits[1])
    before = learner.scores(samples)
    assert torch.equal(before, learner.scores(samples))  # it leaves no trace
    learner.digest()
    assert torch.equal(super(type(learner), learner).scores(samples), before)


def test_the_robust_mean_leaves_out_a_minority_and_keeps_what_agrees():
    rng = np.random.default_rng(0)
    honest = np.full((8, 10), 0.02) + rng.normal(0, 0.005, (8, 10))
    honest[:, 3] = 0.8
    liars = np.eye(10)[[7, 7]]
    draws = [robust_mean(np.concatenate([honest, liars]), 0.1, numpy_stream(seed, "x")) for seed in range(20)]
    errors = [np.abs(each - honest.mean(axis=0)).max() for each in draws]
    assert max(errors) < 0.02  # the plain mean is 0.2 away
    assert robust_mean(honest, 0.1, rng) == pytest.approx(honest.mean(axis=0))
    assert robust_mean(liars[:1], 0.001, rng).tolist() == liars[0].tolist()  # one client
    for seed in range(20):  # nobody agrees: some are left
        assert robust_mean(np.eye(3), 0.001, numpy_stream(seed, "y")).sum() == pytest.approx(1)


def test_cronus_trains_on_both_kinds_of_batches_in_one_epoch(digits):
    chosen, server, both = parties(digits, "CRONUS", "public_epochs=3")
    assert both[0].learner.train().kd is None
    exchange(chosen, server, both)
    losses = both[0].learner.train()
    assert losses.kd > 0
    assert both[0].learner.optimizer.state_dict()["state"][0]["step"].item() == 2 + 2 + 3 * 2


def test_codistillation_adds_the_others_predictions_of_public_samples_after_burn_in(digits):
    chosen, server, (client, other) = parties(digits, "CODIST", "weight=2", "burn_in=2")
    learner = client.learner
    batch = Batch(None, torch.zeros(16), torch.zeros(16, 84), torch.zeros(16, 10))
    exchange(chosen, server, [client, other], 1)
    assert chosen.loss(learner, batch).item() == 0
    exchange(chosen, server, [client, other], 2)
    drawn = torch.randint(40, (16,), generator=torch_stream(0, "a", "pairing"))
    public = digits[0][0][200:240][rows_of(2, 40)][drawn]
    wanted, own = softmax(logits_of(other, public)), softmax(logits_of(client, public))
    expected = -2 * np.mean(
        [sum(t * np.log(p) for t, p in zip(*pair, strict=True)) for pair in zip(wanted, own, strict=True)]
    )
    assert chosen.loss(learner, batch).item() == pytest.approx(expected, rel=1e-4)


def test_codistillation_listens_to_neighbours_of_the_newest_round_only(digits):
    chosen, server, (a, b, c) = parties(digits, "CODIST", names="abc")
    server.meet({"a": ["b"], "b": ["a", "c"], "c": ["b"]})
    exchange(chosen, server, [a, b, c])
    public = digits[0][0][200:240]
    assert a.learner.remembered["targets"].numpy() == pytest.approx(softmax(logits_of(b, public)), abs=1e-5)
    both = (softmax(logits_of(a, public)) + softmax(logits_of(c, public))) / 2
    assert b.learner.remembered["targets"].numpy() == pytest.approx(both, abs=1e-5)
    server.accept("c", chosen.share(c.learner, 2))
    server.accept("a", chosen.share(a.learner, 1))  # a straggler's
    assert list(wire.decode_items(server.teach("b", NOTHING))) == ["c"]
    assert wire.decode_items(server.teach("a", NOTHING)) == {}


def test_feddf_is_its_plain_loop(digits):
    chosen, server, both = parties(digits, "FEDDF", "steps=4", "batch=8", "server_rate=0.01")
    assert (
        wire.decode_weights(server.teach("a", NOTHING))[0].keys() == both[0].learner.network.model.state_dict().keys()
    )
    for client in both:
        client.learner.train()
    both[1].learner.samples = Samples((digits[0][0][:30], digits[0][1][:30]))  # it counts half as much
    models = [client.learner.network.model for client in both]
    for client in both:
        server.accept(client.name, chosen.share(client.learner, 1))
    twin, public = LeNet5(), digits[0][0][200:240]
    first, second = (model.state_dict() for model in models)
    twin.load_state_dict({name: (2 * first[name] + second[name]) / 3 for name in first})
    with torch.no_grad():
        wanted = ((models[0](public) + models[1](public)) / 2).softmax(dim=1)
    draws, optimizer = torch_stream(0, "server", "distillation", 1), torch.optim.Adam(twin.parameters())
    for step in range(4):
        rows = torch.randint(40, (8,), generator=draws)
        loss = (wanted[rows] * (wanted[rows].log() - twin(public[rows]).log_softmax(dim=1))).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.param_groups[0]["lr"] = 0.01 * (1 + np.cos(np.pi * step / 4)) / 2
        optimizer.step()
    made = wire.decode_weights(server.teach("", NOTHING))[0]
    assert all(np.allclose(made[name], weights, atol=2e-5) for name, weights in twin.state_dict().items())


def test_what_does_not_fit_is_refused_and_late_messages_count_for_nothing(digits):
    chosen, server, (client, other) = parties(digits, "FEDMD", "per_round=25")
    exchange(chosen, server, [client, other], 2)
    before = server.teach("a", NOTHING)
    server.accept("a", chosen.share(client.learner, 1))
    assert server.teach("a", NOTHING) == before
    for labels in (np.full((25, 10), np.nan), np.zeros((25, 9)), np.zeros((24, 10))):
        with pytest.raises(Refused, match=r"not finite|not like the others"):
            server.accept("c", wire.encode_weights({"labels": labels.astype(np.float32)}, round=2, samples=1))
        with pytest.raises(Malformed, match=r"not finite|25 rows of 10"):
            chosen.absorb(
                client.learner, wire.encode_weights({"labels": labels.astype(np.float32)}, round=2, samples=1)
            )
    for word, why in (("per_round=0", "per_round must be"), ("pretrain_epochs=-1", "pretrain_epochs must be")):
        with pytest.raises(ConfigError, match=why):
            find_method("FEDMD", Setting(method_options=(f"FEDMD.{word}",)))
    with pytest.raises(ConfigError, match="leave independent_starts out"):
        METHODS["FEDDF"].serve(Task(10, 84), None, METHODS["FEDDF"].options)


def test_traffic_is_a_number_for_each_class_and_public_sample(splits, inline):
    words = tuple(f"{method}.per_round=50" for method in ("FEDMD", "CODIST"))
    for method, heard in (("FEDMD", 1), ("CODIST", 2)):
        run = Run(method, 0, replace(SMALL, participation=1, method_options=words))
        for record in bits(run, splits, inline)[1]:
            assert 50 * 10 * 4 < record.bytes_up < 50 * 10 * 4 + 300
            assert heard * 50 * 10 * 4 < record.bytes_down < heard * 50 * 10 * 4 + 1000


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
    needing = {name for name, row in read_methods().items() if row["public"]}
    assert needing == {name for name, method in METHODS.items() if method.uses_public} == set(FAMILY)
    methods(("FEDDF", "FL"))
    assert capsys.readouterr().out.count("needs --public-data") == 1
