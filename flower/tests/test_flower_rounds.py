"""Questions and answers between a server and its nodes: the simulator's bits, and nothing else that leaves."""

import builtins
from pathlib import Path

import numpy as np
import pytest
import torch
from flower_nodes import SMALL, LocalNodes, context, same_run

import repshare_flower
from repshare.board import Wants
from repshare.client import make_wants
from repshare.errors import ConfigError, Malformed, WorkerFailed
from repshare.sharing.wire import decode_release
from repshare_flower import runs
from repshare_flower.messages import NodeAnswer, NodeQuestion, read_answer, read_question, write_answer, write_question
from repshare_flower.nodes import finish, introduce, take_part
from repshare_flower.rounds import collaborate
from repshare_lab.methods import find_method
from repshare_lab.simulation import Inline, simulate
from repshare_lab.simulation.workers import encode_model


def play(nodes):
    return [*collaborate(nodes, runs.describe(context(nodes.config)))]


RUNS = [
    *({"method": method} for method in ("RS", "CS", "FL", "FD", "IL", "CA")),
    {"method": "RS", "options": "m_up=3"},  # a client draws one of three observations of each class
]


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_nodes_learn_the_same_bits_as_the_simulators_clients(run, splits, tmp_path):
    config, method = SMALL | {"seed": 3} | run, run["method"]
    nodes = LocalNodes(config, report=True)
    *_, last = play(nodes)
    with Inline() as inline:
        *_, records = simulate(same_run(config, splits), splits, inline, models=tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert files
    for name, client in (("client 1", "client-1"), ("client 2", "client-2")):
        prefix = "model" if find_method(method).models == "one" else client
        for suffix, content in nodes.files[name].items():
            assert content == files[f"{prefix}{suffix}"]
    assert last.accuracy == {record.client: record.test_accuracy for record in records}


ANSWERS = [
    NodeAnswer("a", Wants(1, 2**63 - 1)),
    NodeAnswer("client 2", Wants(0, 0, ("a", "b"), precision="fp16"), b"\0release", 0.25),
    NodeAnswer("c", Wants(1, 5, ()), b""),
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_and_a_question_come_back_as_they_were(answer):
    assert read_answer(write_answer(answer)) == answer
    for question in (NodeQuestion(0), NodeQuestion(7, b"teacher"), NodeQuestion(1, b"")):
        assert read_question(write_question(question)) == question


WRONG = [
    {"name": ""}, {"name": "x" * 101}, {"name": "a\nb"}, {"name": 3}, {"release": "text"}, {"accuracy": 1.5},
    {"accuracy": float("nan")}, {"accuracy": 1}, {"observations": -1}, {"observations": 10**6}, {"observations": True},
    {"seed": 1.0}, {"seed": None}, {"peers": "a"}, {"peers": [1]}, {"peers": ["a"] * 201}, {"precision": "fp8"},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_what_is_no_answer_is_refused(wrong):
    with pytest.raises(Malformed):
        read_answer(write_answer(ANSWERS[0]) | wrong)


@pytest.mark.parametrize("wrong", [{}, {"round": -1}, {"round": "1"}, {"round": 2**31}, {"round": 1, "teacher": "a"}])
def test_what_is_no_question_is_refused(wrong):
    with pytest.raises(Malformed):
        read_question(wrong)


def leaks(private, sent):
    """Whether four numbers or more of one of these arrays are somewhere in these bytes, in either precision."""
    pieces = [
        piece
        for array in private
        for precision in (np.float32, np.float16)
        for piece in array.astype(precision).ravel()[:64].reshape(-1, 4)  # of the first numbers
    ]
    return any(np.ptp(piece) > 0 and piece.tobytes() in sent for piece in pieces)


@pytest.mark.parametrize("method", ["RS", "CS"])
def test_an_answer_holds_what_an_exchange_would_publish_and_nothing_else(method):
    nodes = LocalNodes(SMALL | {"method": method})
    play(nodes)
    released = [answer.pop("release") for answer in nodes.sent if "release" in answer]
    assert len(released) == 2 * 2  # rounds, clients
    assert all(set(answer) == {"name", "observations", "seed", "precision"} for answer in nodes.sent)
    client, sent = nodes.client(0), b"".join(released)
    inputs, _ = client.samples.batch(torch.arange(30))
    private = [*inputs.numpy(), *client.features(inputs).numpy()]
    if method == "RS":
        private += [each.detach().numpy() for each in client.model.parameters() if each.numel() >= 64]
    assert not leaks(private, sent)
    for array in private:  # the search would find each
        assert leaks([array], sent + array.tobytes())


def test_accuracy_leaves_only_if_the_client_reports_it():
    assert play(LocalNodes(SMALL | {"method": "CS"}))[-1].accuracy == {}


def test_a_client_without_test_samples_reports_nothing():
    client = LocalNodes(SMALL).client(0)
    client.test = None
    answer, accuracy = finish(client, NodeQuestion(2), report=True)
    assert (answer.accuracy, accuracy) == (None, None)


def test_a_client_that_joins_late_or_missed_rounds_is_in_the_round_of_the_run():
    client = LocalNodes(SMALL).client(0)

    def wants(round):
        return make_wants(client.method, client.policy, client.seed, client.name, round)

    assert introduce(client, NodeQuestion(4)).wants == wants(5)
    for number in (5, 8):
        answer, record = take_part(client, NodeQuestion(number))
        assert (record.round, decode_release(answer.release).round) == (number, number)
        assert answer.wants == wants(number + 1)


class Troubled(LocalNodes):
    """Nodes of which some fail."""

    def __init__(self, *arguments, change=lambda kind, node, fields: fields):
        super().__init__(*arguments)
        self.change = change

    def ask(self, kind, round, questions):
        answers = super().ask(kind, round, questions)
        changed = {node: self.change(kind, node, fields) for node, fields in answers.items()}
        return {node: fields for node, fields in changed.items() if fields is not None}


def test_one_bad_node_does_not_stop_the_others():
    three = SMALL | {"method": "RS", "clients": 3}
    changes = {
        "no answer": lambda kind, node, fields: None if node == 1 else fields,
        "a name must have": lambda kind, node, fields: fields | ({"name": ""} if node == 1 else {}),
        "there is another client 1": lambda kind, node, fields: fields | ({"name": "client 1"} if node == 1 else {}),
        "and was client 2 before": lambda kind, node, fields: (
            fields | ({"name": "client 9"} if node == 1 and kind == "train" else {})
        ),
        "client 2: ": lambda kind, node, fields: (
            fields | ({"release": b"nonsense"} if node == 1 and kind == "train" else {})
        ),
    }
    for reason, change in changes.items():
        first, *_ = play(Troubled(three, 3, change=change))
        assert first.accepted == ("client 1", "client 3"), reason
        assert any(reason in line for line in first.refused), (reason, first.refused)


def test_a_client_whose_wish_is_refused_trains_without_a_teacher():
    nodes = Troubled(SMALL | {"method": "RS"}, change=lambda kind, node, fields: fields | {"peers": ["x", "client 1"]})
    collaboration = runs.describe(context(nodes.config))
    collaboration.server.key = b"as a relay has one"
    first, *_ = collaborate(nodes, collaboration)
    assert first.answered == 2
    assert len(first.refused) == 2


def test_without_any_answer_the_run_ends():
    with pytest.raises(WorkerFailed, match="round 1: no client answered; there is none"):
        play(LocalNodes(SMALL, 0))
    silent = Troubled(SMALL, change=lambda kind, node, fields: None if kind == "train" else fields)
    with pytest.raises(WorkerFailed, match="node 0: no answer"):
        play(silent)


def test_a_node_may_join_later_and_leave():
    nodes = LocalNodes(SMALL | {"method": "RS", "clients": 3, "rounds": 4}, 2)
    reports = []
    for report in collaborate(nodes, runs.describe(context(nodes.config))):
        reports.append(report.accepted)
        nodes.there = [0, 1, 2] if report.round == 1 else [0, 2]
    assert reports == [
        ("client 1", "client 2"),
        ("client 1", "client 2", "client 3"),
        *[("client 1", "client 3")] * 2,
        (),
    ]


def test_a_configuration_is_a_run():
    run = runs.read_run(
        {"method": "RS", "seed": 7, "clients": 3, "weighted": False, "options": "m_up=2 model=lenet5,mlp"}
    )
    assert (run.method, run.seed, run.setting.clients, run.setting.weighted) == ("RS", 7, 3, False)
    assert (run.setting.policy.m_up, run.setting.model) == (2, ("lenet5", "mlp"))
    wanted = runs.describe(context(SMALL | {"clients": 3, "rounds": 5}))
    assert (wanted.method.name, wanted.rounds, wanted.clients) == ("RS", 5, 3)
    with pytest.raises(ConfigError, match="did you mean clients"):
        runs.read_run({"clinets": 3})
    with pytest.raises(ConfigError, match="dropout is decided by Flower's nodes"):
        runs.read_run({"dropout": 0.5})
    for wrong in (2, -1, "0", None):
        with pytest.raises(ConfigError, match="from 0 to 1"):
            runs.make_client(context(SMALL, partition_id=wrong))


def test_a_node_keeps_its_model_only_where_the_configuration_has_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    client = LocalNodes(SMALL).client(1)
    runs.keep_model(client, context(SMALL))
    assert [*tmp_path.iterdir()] == []
    runs.keep_model(client, context(SMALL | {"folder": "new/models"}))
    expected = {f"client-2{suffix}": content for suffix, content in encode_model(client).items()}
    assert {path.name: path.read_bytes() for path in Path("new/models").iterdir()} == expected


def test_without_flower_the_apps_say_what_to_install(monkeypatch):
    real = builtins.__import__

    def absent(name, *arguments, **given):
        if name.partition(".")[0] == "flwr":
            raise ModuleNotFoundError("No module named 'flwr'", name="flwr")
        return real(name, *arguments, **given)

    monkeypatch.setattr(builtins, "__import__", absent)
    for make in (repshare_flower.make_client_app, repshare_flower.make_server_app):
        with pytest.raises(ConfigError, match=r"pip install -c flower/constraints.txt"):
            make(None)
