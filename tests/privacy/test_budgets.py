"""Budgets on bad days: outages, relays that refuse, kills at every point, full disks, ledgers that went back."""

import errno
import json
import os
import shutil
import signal
import threading
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from repshare import Board, RelayExchange
from repshare.board import Wants
from repshare.errors import CheckpointError, Refused, Unreachable
from repshare.exchange import Exchange
from repshare.party.rounds import take_part
from repshare.party.state import State
from repshare.privacy.ledger import read_ledger
from repshare.sharing import wire
from soak import budgets
from soak.budgets import OPEN
from support import private_clients
from support.groups import LocalGroup, gather
from support.interrupted_clients import WHERE
from support.private_clients import BUDGET, DIGITS, TASK, create_private_task, make_client
from support.processes import RelayProcess
from support.warm import run_warm

PARTY = private_clients.__file__
INTERRUPTED = Path(__file__).parents[1] / "support/interrupted_clients.py"


class Moody(Exchange):
    """A board that takes nothing, with the error it is given, until it has none."""

    def __init__(self, error=None):
        self.board, self.error, self.offered, self.taken = Board(TASK), error, [], []

    def publish(self, body):
        self.offered.append(body)
        if self.error is not None:
            raise self.error
        self.board.accept("alice", body)
        self.taken.append(body)

    def collect(self, wants):
        return self.board.teach("alice", wants)


def charges(folder):
    return read_ledger(Path(folder) / "privacy.jsonl")[1]


@pytest.mark.parametrize("error", [Unreachable("503"), Refused("413 Content Too Large"), Refused("409")], ids=str)
def test_an_exchange_that_takes_nothing_costs_one_charge(error):
    exchange = Moody(error)
    client = make_client(exchange, replace(BUDGET, epsilon=300.0))
    told = list(client.rounds(5))
    assert len(client.guard.ledger.entries) == 1
    assert len(exchange.offered) == 5
    assert len(set(exchange.offered)) == 1
    assert all("the charged release is kept, and sent again until it is accepted" in record.trouble for record in told)
    exchange.error = None
    (record,) = client.rounds(1)
    assert (record.trouble, record.bytes_up) == (None, len(exchange.taken[0]))
    assert exchange.taken == exchange.offered[:1]
    assert wire.decode_release(exchange.taken[0]).round == 1
    client.round()
    assert [entry["round"] for entry in client.guard.ledger.entries] == [1, 7]


def test_what_waits_is_tried_in_every_round_however_rarely_one_releases():
    exchange = Moody(Unreachable("away"))
    client = make_client(exchange, replace(BUDGET, release_every=3, releases=1))
    list(client.rounds(4))
    exchange.error = None
    list(client.rounds(6))
    assert [len(exchange.offered), len(exchange.taken), client.released] == [3, 1, 1]


def test_without_a_budget_the_newest_release_is_sent():
    exchange = Moody(Unreachable("away"))
    client = make_client(exchange, private_clients.OPENLY)
    list(client.rounds(3))
    assert [wire.decode_release(body).round for body in exchange.offered] == [1, 2, 3]


def test_a_simulated_client_that_rested_on_disk_sends_the_same_bytes_again():
    policy, exchange = replace(BUDGET, seeded_noise=True), Moody(Unreachable("away"))
    first = make_client(exchange, policy)
    first.round()
    second = make_client(exchange, policy)
    second.load(first.save())
    second.round()
    assert len(exchange.offered) == 2
    assert len(set(exchange.offered)) == 1
    assert len(second.guard.ledger.entries) == 1


class Refusing(BaseHTTPRequestHandler):
    """A relay that says who one is, teaches nothing, and answers releases with a status that a test chooses."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path.split("?")[0].endswith("/teacher"):
            self._answer(200, self.server.teacher, "application/octet-stream")
        else:
            self._answer(200, json.dumps(asdict(TASK)).encode())

    def do_PUT(self):
        self.server.seen.append(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(self.server.status, b'{"detail": "no"}', "application/problem+json")

    def _answer(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def refusing():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    server.seen, server.status = [], 503
    server.teacher = Board(TASK).teach("alice", Wants(1, 0, None))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("status", [503, 413, 403, 409, 200])
def test_whatever_a_relay_answers_one_release_is_charged_until_it_takes_it(refusing, status, tmp_path):
    refusing.status = status
    url = f"http://127.0.0.1:{refusing.server_address[1]}"
    with RelayExchange(url, "digits", client="alice", patience=0.1) as exchange:
        state = State(tmp_path / "s", make_client(exchange), DIGITS)
        state.restore()
        for _ in range(3):
            try:
                next(take_part(state, 5))
            except Exception as error:  # 409: the process ends, and is started again
                assert status == 409, error  # noqa: PT017
                state = State(tmp_path / "s", make_client(exchange), DIGITS)
                state.restore()
    sent = set(refusing.seen)
    assert len(charges(tmp_path / "s")) == len(sent) == (3 if status == 200 else 1)


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    folder = tmp_path_factory.mktemp("relay")
    create_private_task(folder)
    relay = RelayProcess(folder, *OPEN)
    yield relay
    relay.stop()


def interrupt(point, number, url, folder, rounds):
    return run_warm(point, number, url, folder, rounds, cwd=folder.parent, timeout=300, script=str(INTERRUPTED))


PEER = ("when it was charged", "when it was acknowledged", "before the round is kept")


@pytest.mark.parametrize(("place", "point"), [*(("relay", p) for p in WHERE), *(("peer", p) for p in PEER)])
def test_killed_at_any_point_of_a_round_nothing_is_charged_twice_and_nothing_lost(place, point, board, tmp_path):
    url = board.url if place == "relay" else place
    with RelayExchange(board.url, "digits", client="alice") as exchange:
        exchange.withdraw()
    done = interrupt(point, 2, url, tmp_path / "s", 3)
    assert done.returncode == -signal.SIGKILL, done.stderr
    done = interrupt("nowhere", 0, url, tmp_path / "s", 3)
    assert done.returncode == 0, done.stderr
    assert budgets.check(tmp_path, 3) >= 3


def test_killed_in_every_round_a_client_is_charged_once_for_each(tmp_path):
    assert budgets.kill_clients(tmp_path, kills=3)["times that one of them was sent"] >= 6


def test_a_group_that_does_not_meet_costs_one_charge(tmp_path):
    exchanges = LocalGroup(tmp_path, replace(TASK, group_members=3)).everyone(patience=0.05)
    assert gather(exchanges) == {}
    client = make_client(exchanges["alice"])
    told = client.round()
    exchanges["alice"].gather = lambda: True  # nobody comes any more
    told = [told, *client.rounds(3)]
    assert len(client.guard.ledger.entries) == 1
    assert all(record.trouble for record in told)


def test_a_charge_that_a_crash_cut_off_is_added_for_the_bytes_that_are_there(tmp_path):
    exchange = Moody(Unreachable("away"))
    client = make_client(exchange, ledger=tmp_path / "privacy.jsonl")
    client.round()
    path = tmp_path / "privacy.jsonl"
    about, line = path.read_text().splitlines()
    path.write_text(f"{about}\n{line[:40]}")  # the disk was full, or the machine lost its power
    exchange.error = None
    again = make_client(exchange, ledger=path)
    again.round()
    assert exchange.offered[0] == exchange.offered[1]
    assert path.read_text() == f"{about}\n{line}\n"


def test_on_a_full_disk_nothing_is_charged_and_nothing_leaves(tmp_path, monkeypatch):
    exchange = Moody()
    client = make_client(exchange, ledger=tmp_path / "privacy.jsonl")

    def fill(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("repshare.files.os.fsync", fill)
    with pytest.raises(CheckpointError, match=r"privacy\.release cannot be used: No space left on device"):
        client.round()
    assert exchange.offered == []
    assert charges(tmp_path) == []


def spend(folder, rounds, exchange=None):
    """Take part up to a round, and give the rounds that were released."""
    state = State(folder, make_client(exchange or Moody()), DIGITS)
    state.restore()
    return [record.round for record in take_part(state, rounds) if record.bytes_up]


def test_a_ledger_that_is_an_older_copy_is_noticed(tmp_path):
    folder, exchange = tmp_path / "s", Moody()
    assert spend(folder, 2, exchange) == [1, 2]
    shutil.copy(folder / "privacy.jsonl", tmp_path / "older")
    assert spend(folder, 5, exchange) == [3, 4]
    shutil.copy(tmp_path / "older", folder / "privacy.jsonl")
    with pytest.raises(CheckpointError, match=r"lacks charges, so nothing may be released.*Put the newest copy back"):
        spend(folder, 6, exchange)
    (folder / "privacy.release").unlink()  # the client's state knows it, too
    with pytest.raises(CheckpointError, match="the client's state knows"):
        spend(folder, 6, exchange)
    assert len(exchange.taken) == 4


def test_beginning_anew_does_not_make_an_older_ledger_good(tmp_path):
    folder, exchange = tmp_path / "s", Moody()
    spend(folder, 1, exchange)
    shutil.copy(folder / "privacy.jsonl", tmp_path / "older")
    spend(folder, 3, exchange)
    shutil.copy(tmp_path / "older", folder / "privacy.jsonl")
    state = State(folder, make_client(exchange), DIGITS)
    state.clear()
    with pytest.raises(CheckpointError, match="lacks charges"):
        state.restore()


@pytest.mark.parametrize("lost", ["a number", "a line in between", "all"])
def test_a_ledger_that_was_edited_or_lost_is_noticed(tmp_path, lost):
    spend(tmp_path / "s", 3)
    path = tmp_path / "s/privacy.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    if lost == "a number":
        entry = json.loads(lines[2])
        lines[2] = lines[2].replace(repr(entry["epsilon"]), repr(entry["epsilon"] / 2))
    path.write_text("".join({"a number": lines, "a line in between": lines[:2] + lines[3:], "all": []}[lost]))
    with pytest.raises(CheckpointError, match=r"damaged in line 3|lacks charges"):
        spend(tmp_path / "s", 4)


def test_a_ledger_whose_lines_cannot_be_checked_is_refused(tmp_path):
    path = tmp_path / "s/privacy.jsonl"
    spend(tmp_path / "s", 2)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({k: v for k, v in line.items() if k != "chain"}) + "\n" for line in lines))
    with pytest.raises(CheckpointError, match=r"line 1, .*15ddcbb is the last commit that reads lines without"):
        spend(tmp_path / "s", 3)


def test_withdrawing_gives_up_what_waits_and_keeps_its_charge(tmp_path):
    exchange = Moody(Unreachable("away"))
    spend(tmp_path / "s", 2, exchange)
    exchange.error = None
    state = State(tmp_path / "s", make_client(exchange), DIGITS)
    state.clear()
    state.restore()
    next(take_part(state))
    assert exchange.taken != exchange.offered[:1]
    assert [entry["round"] for entry in charges(tmp_path / "s")] == [1, 1]


def test_two_processes_cannot_spend_from_one_folder(tmp_path):
    exchange = Moody()
    first, second = (make_client(exchange, ledger=tmp_path / "privacy.jsonl") for _ in range(2))
    first.round()
    with pytest.raises(CheckpointError, match="changed by another process"):
        second.round()
    assert len(exchange.taken) == len(charges(tmp_path)) == 1
    third = make_client(exchange, ledger=tmp_path / "privacy.jsonl")
    assert third.guard.pending.body is None
