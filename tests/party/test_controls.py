"""`join --compare`: what a party would have without the others. Nothing of it leaves."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from repshare import Board, Client, LocalExchange, Policy, Task
from repshare.cli.main import main
from repshare.cli.party.client import WorkOptions, make_client
from repshare.errors import ConfigError
from repshare.exchange import Exchange
from repshare.exchange.relay import Membership
from repshare.methods import CA, IL
from repshare.party.controls import ALONE, SHORT, Controls
from repshare.party.rounds import take_part
from repshare.party.state import State
from repshare_lab.experiments.report import make_report
from support.processes import RelayProcess, records, run
from support.space_parties import COMMON, PARTY_FILE

PARTY = Path(__file__).parents[2] / "examples/party.py"
DIGITS = Membership("digits", "alice", Task(10, 84))
ROUNDS = 3


class Tap(Exchange):
    """An exchange that keeps what leaves."""

    def __init__(self, board):
        self.exchange, self.sent = LocalExchange(board, "alice"), []

    def publish(self, body):
        self.sent.append(body)
        self.exchange.publish(body)

    def collect(self, wants):
        return self.exchange.collect(wants)


def make(policy=None, exchange=None, **options):
    client = make_client(f"{PARTY}:alice", "alice", WorkOptions(), policy or Policy(), **options)
    client.exchange = exchange
    return client


def play(folder, *, compare):
    """Alice's rounds, taught by a release of bob's, with or without controls."""
    board = Board(Task(10, 84))
    tap = Tap(board)
    bob = make_client(f"{PARTY}:bob", "bob", WorkOptions(), Policy())
    bob.exchange = LocalExchange(board, "bob")
    bob.round()
    state = State(folder, make(exchange=tap), DIGITS)
    controls = Controls(folder, state.client) if compare else None
    state.restore()
    lines = []
    for record in take_part(state, ROUNDS):
        lines.append({**asdict(record), "seconds": None})
        if controls:
            controls.catch_up()
    return tap.sent, lines, controls


def test_nothing_of_the_controls_leaves_and_the_client_is_the_same_with_them(tmp_path):
    plain, compared = (play(tmp_path / str(flag), compare=flag) for flag in (False, True))
    assert plain[0] == compared[0]
    assert plain[1] == compared[1]
    assert plain[1][0]["kd"] > 0
    controls = compared[2]
    assert all(control.exchange is None and control.method.serve is None for control in controls.clients.values())


def test_controls_have_the_same_starting_weights_and_batches_as_the_client(tmp_path):
    """So that a client that is taught nothing is its own control."""
    client = make()
    state = State(tmp_path / "s", client, DIGITS)
    controls = Controls(tmp_path / "s", client)
    assert client.learner.network.model is not controls.clients[ALONE].model
    for _ in take_part(state, ROUNDS):
        controls.catch_up()
    alone, short = controls.clients[ALONE], controls.clients[SHORT]
    assert same(alone, client)
    assert not same(short, client)
    told = controls.compare()
    assert told == {"together": client.evaluate(), ALONE: client.evaluate(), SHORT: short.evaluate()}


def same(one, other):
    these, those = one.model.state_dict(), other.model.state_dict()
    return all(torch.equal(these[name], those[name]) for name in these)


def test_controls_that_are_asked_for_late_train_again_to_the_same_bits(tmp_path):
    _, _, whole = play(tmp_path / "whole", compare=True)
    client = make()
    for _ in range(2):  # of a start before
        (tmp_path / "late").mkdir(exist_ok=True)
        late = Controls(tmp_path / "late", client)
        client.round_number = ROUNDS
        late.catch_up()
        client.round_number = 0
    for title, control in late.clients.items():
        assert same(control, whole.clients[title])
    assert controls_of(tmp_path / "late") == controls_of(tmp_path / "whole")


def controls_of(folder):
    found = [json.loads(line) for line in (folder / "controls.jsonl").read_text().splitlines()]
    return sorted(({**line, "seconds": None} for line in found), key=lambda line: (line["control"], line["round"]))


def test_in_a_common_space_the_controls_are_the_network_and_the_space_alone(tmp_path):
    (tmp_path / "party.py").write_text(PARTY_FILE)
    task = COMMON.task(10)
    client = make_client(f"{tmp_path}/party.py:p0", "p0", WorkOptions(), Policy(), task)
    controls = Controls(tmp_path, client)
    client.round_number = 2
    controls.catch_up()
    assert {title: control.method for title, control in controls.clients.items()} == {ALONE: CA, SHORT: IL}
    assert [control.round_number for control in controls.clients.values()] == [1, 2]
    assert controls.tested_on == "test data"

    held = len(client.learner.held_rows)
    assert held >= 10
    client.test = None  # then the held-out samples test, and no control has trained on them
    controls = Controls(tmp_path, client)
    for control in controls.clients.values():
        assert len(control.test) == held
        assert len(control.samples) == len(client.samples) - held
    assert controls.tested_on == "own held-out samples"


def test_without_any_sample_to_test_on_a_comparison_is_refused(tmp_path):
    client = make()
    client.test = None
    with pytest.raises(ConfigError, match="needs samples to test on: give the party test data"):
        Controls(tmp_path, client)


@pytest.fixture(scope="module")
def relay(tmp_path_factory):
    """An open relay with the task digits."""
    options = ("--db", "memory", "--insecure", "--task", "digits", "--classes", 10, "--dimension", 84)
    process = RelayProcess(tmp_path_factory.mktemp("relay"), *options)
    yield process
    process.stop()


def arguments(relay, name, *options):
    access = ("--name", name, "--task", "digits", "--threads", 1)
    return ["join", relay.url, "--party", f"{PARTY}:alice", *access, *options]


def test_the_last_line_tells_all_three_and_the_report_has_them(relay, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    join = arguments(relay, "alice", "--rounds", 2, "--compare")
    shown = run(capsys, *join).out.splitlines()[-1]
    told = re.fullmatch(
        r"together ([\d.]+)%, alone ([\d.]+)%, alone with short features ([\d.]+)% \(test data\)", shown
    )
    last = records("repshare-digits-alice")[-1]
    assert told[1] == f"{100 * last['test_accuracy']:.1f}"
    assert last["test_accuracy"] == last["metrics"]["accuracy"]
    assert len(last["metrics"]["recalls"]) == 10

    html = make_report([Path("repshare-digits-alice")])
    assert "<h1>client alice in task digits</h1>" in html
    for words in ("together", "alone with short features", "balanced accuracy 0.", "auroc 0.", "recalls ["):
        assert words in html
    assert told[2] in html

    run(capsys, *arguments(relay, "alice", "--rounds", 1, "--restart"))
    assert not list(Path("repshare-digits-alice").glob("*control*"))


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--party", "party.py"], "'party.py' names no function in a file: give --party party.py:function"),
     (["--party", "party:alice"], "give --party party.py:function"),
     (["--party", "party.py:alice"], "give the relay's address, as in repshare join https://relay.example.org")],
)  # fmt: skip
def test_what_is_missing_is_said_before_anyone_is_asked(words, said, capsys):
    with pytest.raises(SystemExit):
        main(["join", *words])
    assert said in capsys.readouterr().err


def test_samples_that_cannot_be_used_are_named(digits):
    (images, labels), _ = digits
    broken = torch.from_numpy(images[:300].copy()) if not torch.is_tensor(images) else images[:300].clone()
    broken[260, 0, 1, 1] = torch.nan
    model = make().model
    with pytest.raises(Exception, match="the inputs of sample 260 contain NaN or infinity"):
        Client(model, (broken, labels[:300]))
    with pytest.raises(
        Exception,
        match="The inputs are float64 and the weights float32",
    ):
        Client(model, (broken[:100].double(), labels[:100]))
    with pytest.raises(ConfigError, match=r"learning_rate must be above 0 and finite, not '0\.1'"):
        Policy(learning_rate="0.1")
