"""A single sample's features never leave `join` and `peer` unless that was asked for by hand; then it is said."""

from pathlib import Path

import numpy as np
import pytest

from repshare import Board, Client, LeNet5, LocalExchange, Task
from repshare.board import Wants
from repshare.cli.main import main
from repshare.cli.party.client import WorkOptions, make_client
from repshare.config import Policy
from repshare.exchange.relay import RelayExchange
from repshare.sharing import wire
from repshare_lab.config import Setting
from repshare_lab.simulation import resolve
from support.processes import RelayProcess, run

ONE = """
import torch
from repshare import LeNet5, Party, Policy

def one(**policy):
    labels = torch.tensor([0] + [1] * 12 + [2] * 12)
    images = torch.rand(25, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return Party(LeNet5(), (images, labels), policy=Policy(**policy) if policy else None)

def by_hand():
    return one(minimum_count=1)
"""


@pytest.fixture
def party(tmp_path, monkeypatch):
    """A party with a single sample of class 0."""
    monkeypatch.chdir(tmp_path)
    Path("one.py").write_text(ONE)
    return "one.py"


def mean_counts(url):
    with RelayExchange(url, "open", client="looks") as exchange:
        means = wire.decode_teacher(exchange.collect(Wants(0, 0, None))).means
    return dict(zip(means.labels.tolist(), means.counts.tolist(), strict=True))


def test_a_relay_that_would_take_single_samples_is_given_none(tmp_path, party, capsys):
    """The attack as it was: the relay says that averages of one sample will do."""
    main(["relay", "tasks", "create", "open", "--classes", "10", "--dimension", "84", "--minimum-count", "1"])
    relay = RelayProcess(tmp_path, "--insecure")
    join = ["join", relay.url, "--task", "open", "--rounds", 1, "--name", "one", "--m-up", 0]
    try:
        said = run(capsys, *join, "--party", f"{party}:one").out
        assert mean_counts(relay.url) == {1: 12, 2: 12}
        assert "warning" not in said
        for number, by_hand in enumerate(
            (["--party", f"{party}:by_hand"], ["--party", f"{party}:one", "--minimum-count", 1])
        ):
            said = run(capsys, *join, *by_hand, "--state", f"s{number}", "--restart").out
            assert mean_counts(relay.url) == {0: 1, 1: 12, 2: 12}
            assert "warning: of class 0 an average of one sample leaves" in said
    finally:
        relay.stop()


@pytest.mark.parametrize("command", ["join", "peer"])
def test_a_dry_run_marks_what_is_a_single_samples(party, capsys, command):
    place = ["join", "http://127.0.0.1:9"] if command == "join" else ["peer", "--name", "one", "--key", "none.key"]
    place += [] if command == "join" else ["--first-use", "--listen", "tcp/127.0.0.1:0"]
    dry = [*place, "--party", f"{party}:one", "--dry-run"]
    shown = run(capsys, *dry).out
    assert "itself" not in shown
    assert "warning" not in shown
    assert [line.split() for line in shown.splitlines() if line.split()[:1] == ["0"]] == [["0", "1", "–", "–"]]
    shown = run(capsys, *dry, "--minimum-count", 1).out
    (marked,) = [line for line in shown.splitlines() if "itself" in line]
    assert marked.split()[:2] == ["0", "1"]
    assert "warning: of class 0 an average of one sample leaves" in shown


def test_a_relay_raises_ones_own_bound_and_never_lowers_it(party):
    for least, own, expected in ((1, None, 3), (5, None, 5), (1, 1, 1), (1, 7, 7), (9, 7, 9)):
        client = make_client(
            f"{party}:one", "one", WorkOptions(), Policy(minimum_count=own), Task(2, 4, minimum_count=least)
        )
        assert client.policy.minimum_count == expected


def test_only_a_simulation_shares_averages_of_one_or_two_samples(digits):
    assert resolve(Setting(dataset="digits", samples=100), 1000).policy.minimum_count == 1
    (images, labels), told = digits[0], {}
    few = np.concatenate([np.flatnonzero(labels == label)[: 1 + label] for label in range(4)])
    for least in (None, 1):
        board = Board(Task(10, 84))
        policy = Policy(minimum_count=least)
        Client(LeNet5(), (images[few], labels[few]), LocalExchange(board, "a"), name="a", policy=policy).round()
        told[least] = wire.decode_teacher(board.teach("b", Wants(0, 0, None))).means.counts.tolist()
    assert told == {None: [3, 4], 1: [1, 2, 3, 4]}
