"""Relays that are joined: two leaves and a root, each a process, teach what one relay teaches, whatever is killed."""

import signal
from contextlib import ExitStack

import pytest

from repshare import Board, Client, Policy
from repshare.board import Wants
from repshare.exchange.relay import RelayExchange
from repshare.learning.models import LeNet5
from repshare.methods import CS
from repshare.relay.tasks import Tasks
from repshare.sharing import wire
from repshare.stores import open_database
from support.common_parties import COMMON, VALUES
from support.processes import Process, eventually
from support.relays import create_task, invite, release, repshare, start_open_relay, start_relay

WANTS = Wants(0, 0)
EVERY = ("--every", 0.05, "--least-clients", 1)


class Tree:
    """A root and two leaves with the task `digits`, and an uplink of each leaf."""

    def __init__(self, folder, stack):
        self.folder, self.stack, self.relays, self.uplinks, self.exchanges = folder, stack, {}, {}, {}
        for name in ("root", "east", "west"):
            (folder / name).mkdir()
            create_task(folder / name, "digits", *VALUES)
            self.start(name)
        for name in ("east", "west"):
            token = invite(folder / "root", name, "--task", "digits", "--role", "relay")
            (folder / name / "up.token").write_text(token)
            self.link(name)

    def start(self, name):
        port = self.relays[name].port if name in self.relays else 0
        self.relays[name] = self.stack.enter_context(start_relay(self.folder / name, "--rate", 0, port=port))

    def link(self, name):
        options = ("--task", "digits", "--token-file", "up.token", *EVERY)
        root = self.relays["root"].url
        self.uplinks[name] = Process("relay", "uplink", root, *options, cwd=self.folder / name, name="uplink")
        self.stack.callback(self.uplinks[name].stop)

    def exchange(self, home, client):
        token = invite(self.folder / home, client, "--task", "digits")
        made = RelayExchange(self.relays[home].url, token=token, patience=30)
        self.exchanges[client] = made
        self.stack.callback(made.close)
        return made

    def settles(self, one):
        """Wait until everyone is taught what this one board teaches."""
        for client, exchange in self.exchanges.items():
            eventually(
                lambda client=client, exchange=exchange: exchange.collect(WANTS) == one.teach(client, WANTS),
                f"{client} is taught what one relay teaches",
                seconds=30,
            )


class Recording:
    """An exchange that also publishes at a board of this process: what one relay for all would have."""

    def __init__(self, exchange, board, name):
        self.exchange, self.board, self.name = exchange, board, name

    def collect(self, wants):
        return self.exchange.collect(wants)

    def publish(self, body):
        self.exchange.publish(body)
        self.board.accept(self.name, body)


def make_clients(tree, one, splits):
    """Five clients with samples of their own, at three relays."""
    clients = []
    for number, home in enumerate(("east", "east", "west", "west", "root")):
        rows = slice(60 * number, 60 * (number + 1))
        data = splits.train.images[rows].astype("float32"), splits.train.labels[rows]
        name = f"client {number}"
        exchange = Recording(tree.exchange(home, name), one, name)
        policy = Policy(held_out=0.0, minimum_count=2)
        clients.append(Client(LeNet5(), data, exchange, name=name, method=CS, common=COMMON, policy=policy))
    return clients


def open_board(tree, name):
    """The board of a relay, as it is in its file."""
    return Tasks(open_database(str(tree.folder / name / "relay.db"))).get("digits").board


@pytest.fixture
def tree(tmp_path):
    with ExitStack() as stack:
        yield Tree(tmp_path, stack)


def test_a_tree_of_relays_is_one_relay_to_the_bit_whatever_is_killed(tree, splits):
    one = Board(open_board(tree, "root").task)
    clients = make_clients(tree, one, splits)

    def play(*players):
        for client in players:
            assert client.round(test=False).trouble is None

    play(*clients)
    tree.settles(one)
    play(*clients)
    tree.settles(one)
    samples = wire.decode_teacher(tree.exchanges["client 0"].collect(WANTS)).means.counts
    assert set(samples.tolist()) == {300}, "each sample counts once"
    assert {client.name for client in open_board(tree, "root").status().shown} == {"client 4", "east", "west"}

    tree.exchanges["client 1"].withdraw()
    one.withdraw("client 1")
    tree.settles(one)

    tree.relays["root"].stop(signal.SIGKILL)
    play(clients[0], clients[2])  # each with what its leaf knows
    assert tree.exchanges["client 2"].collect(WANTS) != one.teach("client 2", WANTS)
    tree.start("root")
    tree.settles(one)

    tree.relays["east"].stop(signal.SIGKILL)
    tree.uplinks["east"].stop(signal.SIGKILL)
    play(clients[3], clients[4])
    tree.start("east")
    play(clients[0])
    tree.link("east")
    tree.settles(one)

    for uplink in tree.uplinks.values():
        assert uplink.stop(signal.SIGTERM) == 0
    leave = ("--task", "digits", "--token-file", "up.token", "--leave")
    repshare("relay", "uplink", tree.relays["root"].url, *leave, cwd=tree.folder / "west")
    for name in ("client 2", "client 3"):
        one.withdraw(name)
        tree.exchanges.pop(name)
    tree.exchanges = {"client 4": tree.exchanges["client 4"]}
    tree.settles(one)
    for name in tree.relays:
        repshare("relay", "check", cwd=tree.folder / name)


def test_a_total_is_renewed_while_its_relay_is_there_and_expires_after_it(tmp_path):
    (tmp_path / "leaf").mkdir()
    create_task(tmp_path / "leaf")
    board = Tasks(open_database(str(tmp_path / "leaf" / "relay.db"))).get("digits").board
    board.accept("alice", release())
    with start_open_relay(tmp_path, "--max-age", 1.5) as root:
        version, upstream = (
            (lambda: root.ask("GET", "/v1/tasks/digits/news?wait=0").json()["version"]),
            ("--name", "leaf"),
        )
        uplink = Process(
            "relay", "uplink", root.url, *upstream, "--task", "digits", *EVERY, cwd=tmp_path / "leaf", name="up"
        )
        try:
            eventually(lambda: version() >= 8, "renewed for two seconds and more")
            assert root.ask("GET", "/v1/tasks/digits/status").json()["clients"] == 1
        finally:
            uplink.stop()
        eventually(lambda: root.ask("GET", "/v1/tasks/digits/status").json()["clients"] == 0, "gone", seconds=60)
