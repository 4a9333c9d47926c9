"""The server's side alone: whom it asks what, what it accepts in which order, and what its log tells."""

import pytest

from repshare.board import Wants
from repshare.errors import ConfigError
from repshare_flower import apps
from repshare_flower.messages import NodeAnswer, NodeQuestion, read_question, write_answer
from repshare_flower.rounds import FlowerRun, ServedRound, collaborate
from repshare_lab.methods import find_method


class Noting:
    """A server that notes what it is asked, and what it is sent."""

    def __init__(self):
        self.asked, self.accepted = [], []

    def teach(self, client, wants):
        self.asked.append((client, wants))
        return f"teacher of {client}".encode()

    def accept(self, client, body):
        self.accepted.append((client, body))


class Scripted:
    """Nodes that answer as they are told, the last one first."""

    def __init__(self, names, **fields):
        self.names, self.fields, self.asked = names, fields, []

    def present(self):
        return range(len(self.names))

    def ask(self, kind, round, questions):
        self.asked.append((kind, round, {node: read_question(fields) for node, fields in questions.items()}))
        answers = {node: NodeAnswer(self.names[node], Wants(1, 10 * round + node)) for node in reversed(questions)}
        extra = self.fields if kind == "train" else {}
        return {node: write_answer(answer) | extra for node, answer in answers.items()}


def scripted_run(method, nodes, rounds=2):
    server = Noting()
    return server, [*collaborate(nodes, FlowerRun(find_method(method), server, rounds))]


def test_releases_are_accepted_by_name_and_bytes_are_counted():
    names = ["client 10", "client 9", "client 2"]
    server, (first, second, last) = scripted_run("RS", Scripted(names, release=b"12345"))
    assert [name for name, _ in server.accepted] == ["client 2", "client 9", "client 10"] * 2
    assert first.accepted == second.accepted == ("client 2", "client 9", "client 10")
    taught = sum(len(f"teacher of {name}") for name in names)
    assert [(each.bytes_up, each.bytes_down) for each in (first, second, last)] == [(15, taught), (15, taught), (0, 0)]
    _, (*_, last) = scripted_run("CS", Scripted(names))  # everyone has a part of what the server has
    assert last.bytes_down == taught


def test_a_node_is_asked_who_it_is_once_and_its_newest_wish_counts():
    nodes = Scripted(["a", "b"])
    server, _ = scripted_run("RS", nodes)
    assert [(kind, round) for kind, round, _ in nodes.asked] == [
        ("query", 1), ("train", 1), ("train", 2), ("evaluate", 2),
    ]  # fmt: skip
    assert [question.round for _, _, asked in nodes.asked for question in asked.values()] == [0, 0, 1, 1, 2, 2, 2, 2]
    assert [wants.seed for _, wants in server.asked] == [10, 11, 10, 11]  # of the query and of the first round
    nodes = Scripted(["a"])
    next(rounds := collaborate(nodes, FlowerRun(find_method("RS"), server, 2)))
    nodes.names.append("b")
    next(rounds)
    assert nodes.asked[2] == ("query", 2, {1: NodeQuestion(1)})


def test_only_a_release_for_a_server_is_accepted():
    server, reports = scripted_run("RS", Scripted(["a", "b"]))
    assert [each.accepted for each in reports] == [(), (), ()]
    assert (server.accepted, reports[0].refused, reports[0].answered) == ([], (), 2)
    alone = Scripted(["a"], release=b"for nobody")
    first, *_ = collaborate(alone, FlowerRun(find_method("IL"), None, 1))
    assert (first.accepted, first.refused) == ((), ())


def test_a_refusal_is_told_in_its_own_round_only():
    nodes = Scripted(["a", "b"])
    rounds = collaborate(nodes, FlowerRun(find_method("RS"), Noting(), 4))
    told = []
    for name in "bcbcb":  # node 1's in each round, and in the test after the last
        nodes.names[1] = name
        told.append(len(next(rounds).refused))
    assert told == [0, 1, 0, 1, 0]


@pytest.mark.parametrize(("method", "reason"), [("CL", "one place")])
def test_a_method_whose_round_is_not_a_message_each_way_is_refused(method, reason):
    nodes = Scripted(["a"])
    with pytest.raises(ConfigError, match=reason):
        scripted_run(method, nodes)
    assert nodes.asked == []


class Grid:
    """As much of Flower's as waiting for nodes takes: one more joins at each look."""

    looks = 0

    def get_node_ids(self):
        self.looks += 1
        return range(self.looks)


def test_a_server_waits_for_as_many_clients_as_the_run_has(monkeypatch, caplog):
    monkeypatch.setattr(apps, "POLL_SECONDS", 0)
    grid = Grid()
    with caplog.at_level("INFO", logger="flwr"):
        apps.FlowerNodes(grid, FlowerRun(find_method("RS"), None, 1, clients=3)).wait()
    assert grid.looks == 3
    assert caplog.messages == ["waiting for 3 clients: 1 are there"]  # the next reminder would come much later


def test_the_log_tells_refusals_releases_and_at_the_end_accuracies(caplog):
    served = ServedRound(3, 2, ("a",), ("b: no",), 1200, 34, {})
    with caplog.at_level("INFO", logger="flwr"):
        apps.tell(served)
        apps.tell(served._replace(refused=(), accuracy={"a": 0.5, "b": 0.25}))
        apps.tell(served._replace(refused=(), answered=0))
    assert caplog.messages == [
        "round 3: b: no",
        "round 3: 2 clients, 1 releases accepted, 1,200 bytes up, 34 bytes down",
        "test accuracy after round 3: a 50.00%, b 25.00%",
    ]
