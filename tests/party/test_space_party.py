"""Parties in a common space: through a real relay and among peers, the classifier is the one that a simulator has."""

import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from repshare import Board, Client, LeNet5, LocalExchange, Policy, RelayExchange, Task
from repshare.cli.main import main
from repshare.errors import ConfigError
from repshare.exchange.keys import Key, Trust
from repshare.exchange.peer import PeerExchange
from repshare.party import rounds as party_rounds
from repshare.party.party import Party, agree
from repshare.party.state import State
from repshare.sharing.parts import Part
from repshare_lab import load
from support.processes import Process, eventually, records
from support.relays import create_task, invite, start_relay
from support.space_parties import COMMON, VALUES

POLICY = Policy(minimum_count=2, accept_exposure=True)
OWN = {"alice": (0, 1, 2, 3), "bob": (3, 4, 5, 6), "carol": (6, 7, 8, 9, 0)}
PARTY = """
from repshare import LeNet5, Party, Policy
from repshare_lab import load

POLICY = Policy(accept_exposure=True)

def make(own, count=None, scale=1, names=()):
    def party():
        train, test, _ = load("digits")
        rows = [row for row, label in enumerate(train.labels) if label in own][:count]
        data = train.images[rows].astype("float32") * scale, train.labels[rows]
        tested = test.images.astype("float32"), test.labels
        return Party(LeNet5(), data, test=tested, class_names=names, accept_space=True, policy=POLICY)
    return party

alice, bob, carol = make((0, 1, 2, 3)), make((3, 4, 5, 6)), make((6, 7, 8, 9, 0))
scaled, renamed = make((0, 1), scale=16), make((0, 1), names=["b", "a"])
"""


def held_by(name):
    train, _, _ = load("digits")
    rows = np.flatnonzero(np.isin(train.labels, OWN[name]))[:120]
    return train.images[rows].astype(np.float32), train.labels[rows]


def make_clients(exchanges, space=COMMON):
    return [
        Client(None, held_by(name), exchange, name=name, space=space, classes=10, policy=POLICY)
        for name, exchange in exchanges.items()
    ]


def in_turn(exchanges, rounds=4):
    """Each client's classifier after some rounds, one client after the other."""
    clients = make_clients(exchanges)
    for _ in range(rounds):
        for client in clients:
            assert client.round().trouble is None
    return [client.learner.classifier() for client in clients]


@pytest.fixture(scope="module")
def expected():
    """The same clients at a board of this process, as a simulator has it."""
    board = Board(COMMON.task(10))
    return in_turn({name: LocalExchange(board, name) for name in OWN})


def assert_equal(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert all(map(np.array_equal, one, other))


def test_a_relay_gives_the_classifier_of_a_simulator_to_the_bit(tmp_path, expected):
    create_task(tmp_path, "digits", *VALUES)
    tokens = {name: invite(tmp_path, name, "--task", "digits") for name in OWN}
    with ExitStack() as stack:
        relay = stack.enter_context(start_relay(tmp_path))
        exchanges = {name: stack.enter_context(RelayExchange(relay.url, token=token)) for name, token in tokens.items()}
        assert exchanges["bob"].describe().agreed == replace(COMMON.task(10), minimum_count=2, compared=True)
        assert_equal(in_turn(exchanges), expected)
        assert exchanges["bob"].others() == 2


def test_peers_give_the_classifier_of_a_simulator_to_the_bit(expected):
    with ExitStack() as stack:
        trust, exchanges, places = Trust(), {}, []
        for name in OWN:
            key = Key.new()
            trust.add(name, key.public)
            exchanges[name] = stack.enter_context(
                PeerExchange(
                    COMMON.task(10), name, "digits", key=key, trust=trust, listen=["tcp/127.0.0.1:0"], connect=places
                )
            )
            places = [*places, *exchanges[name].listening]
        for name, exchange in exchanges.items():
            eventually(lambda name=name, exchange=exchange: {name, *exchange.live()} == set(OWN), "all have met")
        assert_equal(in_turn(exchanges), expected)
        assert exchanges["bob"].others() == 2
        (bob,) = make_clients({"bob": exchanges["bob"]})
        exchanges["carol"].withdraw()
        bob.round()
        assert bob.learner.model.total.samples == 2 * 120, "what was withdrawn is out of the total"


def test_parties_join_keep_watching_and_get_better_as_others_arrive(tmp_path):
    """Two begin; one of them is killed, and begins again; a third comes later, and all know all classes."""
    (tmp_path / "party.py").write_text(PARTY)
    create_task(tmp_path, "digits", *VALUES)
    for name in OWN:
        (tmp_path / f"{name}.token").write_text(invite(tmp_path, name, "--task", "digits"))
        (tmp_path / f"{name}.token").chmod(0o600)
    with start_relay(tmp_path) as relay, ExitStack() as stack:

        def join(name):
            arguments = ["--party", f"party.py:{name}", "--token-file", f"{name}.token", "--threads", 1]
            process = Process("join", relay.url, *arguments, cwd=tmp_path, name=name)
            stack.callback(process.stop)
            return process

        def last(name):
            lines = records(tmp_path / f"repshare-digits-{name}")
            return lines[-1] if lines else {"round": 0, "test_accuracy": 0}

        alice, bob = join("alice"), join("bob")
        eventually(lambda: last("alice")["test_accuracy"] > 0.6, "two know seven classes")
        eventually(lambda: last("bob")["round"] > 4, "bob has learned with alice")
        bob.stop()
        carol = join("carol")
        eventually(lambda: last("alice")["test_accuracy"] > 0.75, "what bob shared still counts, though bob is dead")
        bob = join("bob")
        eventually(lambda: last("bob")["test_accuracy"] > 0.9, "bob continues")
        eventually(lambda: last("carol")["test_accuracy"] > 0.9, "carol hears of it")
        for process in (alice, bob, carol):
            assert process.stop(signal.SIGINT) == 130
        told = (tmp_path / "alice.out").read_text()
        assert "alice in digits (10 classes, d' = 288) with the space patches and 478 samples" in told
        short = r"[\d.]+% \(balanced [\d.]+%, \w+ [\d.]+%\)"
        assert re.search(rf"alone +{short}, with 2 others +{short} \(own samples left out in turn\)", told)
    assert last("carol")["held_out_alone"] > 0.9


def test_clients_in_step_begin_a_round_when_all_have_published(tmp_path, monkeypatch):
    """Each takes a while between rounds, in which the others publish: none of them is late."""
    monkeypatch.setattr(party_rounds, "LATE_SECONDS", 1000.0)
    create_task(tmp_path, "digits", *VALUES)
    tokens = {name: invite(tmp_path, name, "--task", "digits") for name in OWN}
    done, stop = dict.fromkeys(OWN, 0), threading.Event()

    def take_part(name):
        with RelayExchange(relay.url, token=tokens[name]) as exchange:
            (client,) = make_clients({name: exchange})
            state = State(tmp_path / name, client, exchange.describe())
            for _ in party_rounds.take_part_until_settled(state, exchange):
                done[name] = client.round_number
                time.sleep(0.1)
                if stop.is_set():
                    return

    with start_relay(tmp_path) as relay, ThreadPoolExecutor(len(OWN)) as pool:
        playing = [pool.submit(take_part, name) for name in OWN]
        try:
            eventually(lambda: min(done.values()) >= 6, "all have done six rounds", seconds=30)
        finally:
            stop.set()
        assert [each.result() for each in playing] == [None] * 3


@pytest.mark.parametrize(
    ("party", "words"),
    [
        ("scaled", "the task's inputs are from 0 to 16, those of alice from 0 to 256"),
        ("renamed", "the task's classes are zero, one, two, .*; the party's are b, a"),
    ],
)
def test_a_party_that_differs_is_refused_with_both_named_and_nothing_is_published(tmp_path, capsys, party, words):
    (tmp_path / "party.py").write_text(PARTY)
    create_task(tmp_path, "digits", *VALUES)
    (tmp_path / "token").write_text(invite(tmp_path, "alice", "--task", "digits"))
    with start_relay(tmp_path) as relay:
        with pytest.raises(SystemExit):
            main(["join", relay.url, "--party", f"{tmp_path}/party.py:{party}", "--token-file", f"{tmp_path}/token"])
        with RelayExchange(relay.url, token=(tmp_path / "token").read_text()) as exchange:
            assert exchange.wait(0, 0) == 0
    assert re.search(words, capsys.readouterr().err)


SOMEONE = Party(LeNet5(), (np.zeros((2, 1, 8, 8), np.float32), np.zeros(2, np.int64)))


@pytest.mark.parametrize(
    ("party", "task", "words"),
    [
        (
            SOMEONE,
            Task(10, 288, space="patches-0", format="parts"),
            "the task's space is patches-0, which it does not describe",
        ),
        (replace(SOMEONE, space=COMMON), Task(10, 84), "the party's space is patches-.*, but the task has none"),
        (
            replace(SOMEONE, space=COMMON._replace(inputs=(0, 255))),
            COMMON.task(10),
            r"the task's space has inputs \[0.0, 16.0\], this client's \[0, 255\]",
        ),
        (SOMEONE, replace(COMMON.task(10), dimension=99), "the task has dimension 99, but what it describes has 288"),
        (SOMEONE, replace(COMMON.task(10), space="other"), "the task has space other, but what it describes has patch"),
    ],
)
def test_a_task_that_does_not_fit_is_refused_with_both_named(party, task, words):
    with pytest.raises(ConfigError, match=words):
        agree(party, task)


def test_a_dry_run_shows_the_agreement_and_sends_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "party.py").write_text(PARTY)
    create_task(tmp_path, "digits", *VALUES)
    main(["relay", "tasks", "describe", "digits"])
    (tmp_path / "digits.json").write_text(capsys.readouterr().out)
    shown = ["--party", "party.py:alice", "--agreement", "digits.json", "--dry-run"]
    main(["join", "http://127.0.0.1:1", *shown])
    told = capsys.readouterr().out
    assert "11 vectors of 288 numbers" in told
    assert "23 samples are held out" in told
    for name, value in COMMON.describe().items():
        stated = ", ".join(map(str, value[:4])) if isinstance(value, list) and len(value) > 4 else str(value)
        assert value in (None, []) or f"{name} {stated[:60]}" in told
    assert told.count("1 over 455 samples") == 10


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--class-names", "a", "b"], "a common space needs --input-shape"),
        (["--input-shape", "1", "8", "8"], "needs --classes or --class-names"),
        (["--input-shape", "1", "8", "8", "--classes", "3", "--dimension", "4"], "follow from the common space"),
        (["--input-shape", "1", "8", "8", "--classes", "3", "--no-weighted"], "the sum of all parts"),
        (["--input-shape", "1", "8", "8", "--classes", "3", "--class-names", "a", "b"], "2 names for 3 classes"),
        (["--input-shape", "1", "8", "8", "--classes", "3", "--space", "wavelets"], "no space for 'wavelets'"),
    ],
)
def test_a_task_whose_options_make_no_agreement_is_refused(tmp_path, monkeypatch, capsys, options, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["relay", "tasks", "create", "digits", *options])
    assert words in capsys.readouterr().err


def test_the_total_of_a_lie_is_refused_by_the_relay(tmp_path):
    """A weight that no sample can have is refused at the door, and the total stays."""
    create_task(tmp_path, "digits", *VALUES)
    tokens = {name: invite(tmp_path, name, "--task", "digits") for name in OWN}
    with start_relay(tmp_path) as relay, RelayExchange(relay.url, token=tokens["alice"]) as exchange:
        (client,) = make_clients({"alice": exchange})
        assert client.round().trouble is None
        part = client.learner.model.part()
        assert isinstance(part, Part)
        client.learner.model.part = lambda: part._replace(weights=part.weights + 5)
        assert "a weight of" in client.round().trouble
        assert exchange.wait(0, 0) == 1
