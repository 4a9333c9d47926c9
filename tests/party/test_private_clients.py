"""Clients with a privacy budget: in process, simulated, through a relay, and without a server."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from repshare import Board, Client, LeNet5, Policy
from repshare.cli.main import main
from repshare.errors import ConfigError, Outdated, Refused
from repshare.exchange import Exchange
from repshare.exchange.relay import RelayExchange
from repshare.methods import IL
from repshare.party.rounds import take_part
from repshare.party.state import State
from repshare.sharing import wire
from repshare.sharing.representations import Release, nothing, stack
from repshare_lab.config import Run, Setting
from repshare_lab.simulation import Inline, resolve, simulate
from support import private_clients
from support.private_clients import COMMON, DIGITS, OPENLY, TASK, create_private_task, make_client
from support.processes import RelayProcess, records, run

NETWORK = Path(__file__).parents[2] / "examples/party.py"
PARTY = private_clients.__file__
PRIVATE = Policy(epsilon=5.0, releases=2)


class Listening(Exchange):
    """An exchange that remembers what left."""

    def __init__(self):
        self.heard, self.board = [], Board(TASK)

    def publish(self, body):
        self.heard.append(wire.decode_release(body))
        self.board.accept("a", body)

    def collect(self, wants):
        return self.board.teach("b", wants)


def test_a_spent_budget_stops_releases(tmp_path):
    client = make_client(Listening(), PRIVATE, ledger=tmp_path / "ledger")
    told = list(client.rounds(2))
    assert [release.round for release in client.exchange.heard] == [1, 2]
    assert {release.noise for release in client.exchange.heard} == {"os"}
    assert 0 < told[0].epsilon < told[1].epsilon <= 5.0
    again = make_client(Listening(), PRIVATE, ledger=tmp_path / "ledger")
    (record,) = again.rounds(1)
    assert "the privacy budget is spent: 2 releases" in record.trouble
    assert (record.bytes_up, record.epsilon) == (0, told[1].epsilon)


def test_a_client_releases_as_rarely_as_its_policy_says():
    client = make_client(Listening(), replace(PRIVATE, release_every=3))
    assert [record.bytes_up > 0 for record in client.rounds(6)] == [False, False, True, False, False, True]


def test_without_a_budget_nothing_is_charged():
    client = make_client(Listening(), OPENLY)
    (told,) = client.rounds(1)
    assert told.epsilon is None
    assert client.exchange.heard[0].noise is None


def test_a_clients_ledger_outlives_it(tmp_path):
    first = make_client(Listening(), PRIVATE, ledger=tmp_path / "ledger")
    first.round()
    with pytest.raises(ConfigError, match="exact averages would leave"):
        make_client(Listening(), OPENLY, ledger=tmp_path / "ledger")
    second = make_client(Listening(), PRIVATE, ledger=tmp_path / "ledger")
    assert [record.trouble is None for record in second.rounds(2)] == [True, False]


def test_averages_of_a_networks_features_take_no_budget_and_say_what_does(tmp_path, capsys):
    data = torch.rand(20, 1, 8, 8), torch.arange(20) % 10
    with pytest.raises(ConfigError, match=r"CS, --loss discriminant\): 38a6b14d is the last commit"):
        Client(LeNet5(), data, Listening(), policy=PRIVATE)
    assert Client(LeNet5(), data, policy=PRIVATE, method=IL).guard is None, "of what does not leave, none is needed"
    join = ("join", "http://127.0.0.1:9", "--party", f"{NETWORK}:alice", "--dry-run", "--epsilon", 3)
    assert "38a6b14d is the last commit" in run(capsys, *join, expect=2).err


@pytest.mark.parametrize("policy", [PRIVATE, OPENLY], ids=["private", "plain"])
def test_who_lost_a_state_is_told_that_its_ledger_is_lost_too(tmp_path, policy):
    first, second = (make_client(Listening(), policy) for _ in range(2))
    list(first.rounds(2))
    second.exchange = first.exchange
    state = State(tmp_path / "new", second, DIGITS)
    state.restore()
    with pytest.raises(Outdated, match="--restart withdraws") as caught:
        next(take_part(state))
    assert ("the ledger was lost with it" in str(caught.value)) == (policy.epsilon is not None)


def test_logits_weights_and_batches_cannot_be_private(splits):
    setting = Setting(dataset="digits", samples=150, clients=3, rounds=1, model=("lenet5",), policy=PRIVATE)
    setting = resolve(setting, 1000)
    assert setting.policy.seeded_noise
    with Inline() as workers:
        with pytest.raises(ConfigError, match="38a6b14d is the last commit"):
            next(simulate(Run("FD", 0, setting), splits, workers))
        seldom = replace(setting, policy=Policy(release_every=2))
        for refused in (setting, seldom):
            with pytest.raises(ConfigError, match="leave FL out"):
                next(simulate(Run("FL", 0, refused), splits, workers))


def test_simulated_noise_is_the_same_for_clients_that_rested_on_disk(splits):
    options = {"samples": 150, "clients": 2, "rounds": 3, "space_rounds": 3, "loss": "discriminant"}
    run = Run("CS", 0, Setting(dataset="digits", **options, policy=replace(PRIVATE, epsilon=200.0, seeded_noise=True)))
    told = []
    for pool in (Inline(), Inline(resident=1)):
        with pool as workers:
            told.append([[replace(record, seconds=0) for record in each] for each in simulate(run, splits, workers)])
    assert told[0] == told[1]
    assert told[0][-1][0].epsilon > told[0][0][0].epsilon > 0


def test_a_relay_refuses_single_samples_unless_told_otherwise(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for task, options in (("usual", []), ("open", ["--minimum-count", "1"])):
        main(["relay", "tasks", "create", task, "--classes", "10", "--dimension", "84", *options])
    relay = RelayProcess(tmp_path, "--insecure")
    single = wire.encode_release(Release(1, nothing(84), stack([(torch.zeros(84).numpy(), 3, 1)], 84)))
    common = ["join", relay.url, "--party", f"{NETWORK}:alice", "--name", "a", "--rounds", 1]
    try:
        with RelayExchange(relay.url, "usual", client="a") as exchange:
            assert exchange.describe().agreed.minimum_count == 2
            with pytest.raises(Refused, match="an average of 1 samples; the task wants 2"):
                exchange.publish(single)
        with RelayExchange(relay.url, "open", client="b") as exchange:
            exchange.publish(single)
        said = run(capsys, *common, "--task", "usual", "--n-avg", 1, expect=2).err
        assert "takes no average of fewer than 2 samples, but n_avg is 1" in said
        said = run(capsys, *common, "--task", "open", "--n-avg", 1, expect=2).err
        assert "give --minimum-count 1 if they may leave" in said  # whatever the relay would take
        said = run(capsys, *common, "--task", "open", "--n-avg", 1, "--minimum-count", 1).out
        assert "every observation that you release is a single sample's features" in said
        said = run(capsys, *common, "--task", "usual").out  # the paper's own choice goes through
        assert "warning" not in said
        assert "trouble" not in said
    finally:
        relay.stop()


def test_joining_with_a_budget(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    create_private_task(tmp_path)
    relay = RelayProcess(tmp_path, "--insecure")
    names = ("--name", "alice", "--task", "digits", "--report")
    budget = ("--epsilon", 3, "--releases", 2)
    command = ("join", relay.url, "--party", f"{PARTY}:alice", *names, *budget)
    try:
        said = run(capsys, *command, "--rounds", 1).out
        assert "a new privacy ledger begins" in said
        said = run(capsys, *command, "--rounds", 1, "--restart").out  # begins again, but what left has left
        assert "a new privacy ledger begins" not in said
        with RelayExchange(relay.url, "digits", client="alice") as exchange:
            view = exchange.connection.ask("GET", "/v1/tasks/digits/status").json()
        told = run(capsys, *command, "--rounds", 1, "--restart").out
        assert "the privacy budget is spent" in told
    finally:
        relay.stop()
    assert [line["trouble"] is None for line in records("repshare-digits-alice")] == [False]
    (member,) = view["shown"]
    assert member["privacy"]["mode"] == "all that leaves, replace"
    assert member["privacy"]["epsilon"] == pytest.approx(3, abs=0.01)
    shown = run(capsys, "privacy", "ledger", "repshare-digits-alice").out
    assert "2 releases charged: ε = 3 with δ = 1e-05 for each of 60 samples" in shown
    document = json.loads(run(capsys, "privacy", "ledger", "repshare-digits-alice/privacy.jsonl", "--json").out)
    assert [(entry["round"], entry["delta"]) for entry in document["releases"]] == [(1, 1e-5)] * 2
    assert "there is no ledger at" in run(capsys, "privacy", "ledger", tmp_path, expect=2).err


def test_a_peer_with_a_budget(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["keys", "ada.key"])
    place = ("--key", "ada.key", "--first-use", "--listen", "tcp/127.0.0.1:0", "--timeout", 0.1)
    Path("digits.json").write_text(json.dumps(COMMON.describe()))
    peer = ("peer", "--party", f"{PARTY}:alice", "--name", "ada", "--agreement", "digits.json", *place, "--epsilon", 3)
    run(capsys, *peer, "--rounds", 1)
    assert "the privacy budget is spent" in run(capsys, *peer, "--rounds", 1, "--restart").out
    assert "1 releases charged" in run(capsys, "privacy", "ledger", "repshare-task-ada").out


def test_comparing_with_single_samples_warns(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    setting = ("--dataset", "digits", "--samples", 60, "--clients", 2, "--rounds", 1, "--workers", "0")
    told = run(capsys, "compare", "--methods", "RS", *setting, "--n-avg", 1).out
    assert "a single sample's features" in " ".join(told.split())
