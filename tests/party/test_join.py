"""`repshare join`: real relays, real clients in processes of their own, real signals."""

import io
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path

import pytest
import safetensors.torch
import torch

from repshare import Board, Client, LeNet5, LocalExchange, Policy, RelayExchange, Task
from repshare.cli.main import main
from repshare.cli.party.client import WorkOptions, choose_folder
from repshare.client import make_wants
from repshare.errors import CheckpointError, ConfigError
from repshare.exchange import Exchange, http
from repshare.exchange.relay import Membership
from repshare.party.party import load_party
from repshare.party.rounds import take_part
from repshare.party.state import State, make_report
from repshare.randomness import derive
from repshare.relay.routes.schemas import RoundReport
from repshare.relay.tasks import Tasks
from repshare.sharing import wire
from repshare.stores import open_database
from repshare_lab.simulation.workers import Mailbox
from support.processes import Process, RelayProcess, eventually, records, run

PARTY = Path(__file__).parents[2] / "examples/party.py"
DIGITS = Membership("digits", "alice", Task(10, 84))


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys):
    """A relay's folder with a task and two tokens; the test works in it."""
    monkeypatch.chdir(tmp_path)
    main(["relay", "tasks", "create", "digits", "--classes", "10", "--dimension", "84"])
    for name in ("alice", "bob"):
        capsys.readouterr()
        main(["relay", "invite", name, "--task", "digits"])
        (tmp_path / f"{name}.token").write_text(capsys.readouterr().out)
    return tmp_path


@pytest.fixture
def started():
    """Processes to be stopped when the test ends."""
    processes = []
    yield processes
    for process in processes:
        process.stop()


@pytest.fixture
def relay(folder, started):
    """A relay on SQLite."""
    process = RelayProcess(folder)
    started.append(process)
    return process


def arguments(url, name, *options):
    common = ["--party", f"{PARTY}:{name}", "--token-file", f"{name}.token", "--threads", 1]
    return ["join", url, *common, *options]


def join(folder, url, name, *options):
    return Process(*arguments(url, name, *options), cwd=folder, name=name)


def weights(folder):
    """The model in a state folder."""
    return torch.load(io.BytesIO(Path(folder, "client.state").read_bytes()[4:]), weights_only=True)["model"]


def same(these, those):
    return these.keys() == those.keys() and all(torch.equal(these[name], those[name]) for name in these)


def make(name, seed=0, exchange=None, **options):
    party = load_party(f"{PARTY}:{name}", derive(seed, name, "model"))
    return Client(party.model, party.data, exchange, name=name, test=party.test, seed=seed, **options)


def mean_accuracy(accuracies):
    """Over the last ten rounds: one alone is noisy."""
    return sum(accuracies[-10:]) / 10


def test_two_processes_with_different_models_learn_more_together_than_alone(folder, relay, started):
    rounds = 40
    started += [join(folder, relay.url, name, "--rounds", rounds, "--pace", 0.2) for name in ("alice", "bob")]
    alone, together = {}, {}
    for name in ("alice", "bob"):
        alone[name] = mean_accuracy([record.test_accuracy for record in make(name).rounds(rounds)])
    for name, process in zip(("alice", "bob"), started[1:], strict=True):
        assert process.process.wait(240) == 0, process.err.read_text()
        lines = records(folder / f"repshare-digits-{name}")
        assert [line["round"] for line in lines] == list(range(1, rounds + 1))
        assert [line["trouble"] for line in lines] == [None] * rounds
        together[name] = mean_accuracy([line["test_accuracy"] for line in lines])
        assert f"{name} after 40 rounds: test accuracy {lines[-1]['test_accuracy']:.2%}" in process.out.read_text()
        assert f"round   40   loss {lines[-1]['ce']:6.3f}" in process.out.read_text()
        kept = folder / f"repshare-digits-{name}" / "model.safetensors"
        assert f"the model is in repshare-digits-{name}/model.safetensors" in process.out.read_text()
        assert kept.stat().st_mode & 0o777 == 0o600
        again = make(name)
        again.model.load_state_dict(safetensors.torch.load_file(kept))
        assert again.evaluate() == lines[-1]["test_accuracy"]
    # Both together: on a busy machine one may be far ahead, and then has little to learn from the other.
    assert sum(together.values()) > sum(alone.values()), (together, alone)


def test_clients_outlive_kill_9_and_an_absent_relay(folder, relay, started):
    def go(name):
        started.append(join(folder, relay.url, name, "--patience", 0.5, "--pace", 0.05))
        return started[-1]

    def lines(name):
        return records(folder / f"repshare-digits-{name}")

    def exchanging(name, after):
        return [line for line in lines(name)[after:] if line["kd"] is not None and line["bytes_up"]]

    alice, bob = go("alice"), go("bob")
    eventually(lambda: exchanging("alice", 0) and exchanging("bob", 0), "both learn from each other")
    assert alice.stop(signal.SIGKILL) == -signal.SIGKILL
    killed_after = len(lines("alice"))
    alice = go("alice")
    eventually(lambda: exchanging("alice", killed_after), "alice is back")
    # A round's record is written before its state: killed in between, the round is done again.
    possible = [f"resuming after round {n}" for n in (killed_after - 1, killed_after) if n > 0]
    assert any(line in alice.out.read_text() for line in possible) or killed_after == 1

    relay.stop(signal.SIGKILL)
    gone = {name: len(lines(name)) for name in ("alice", "bob")}
    for name in gone:
        eventually(lambda name=name: len(lines(name)) > gone[name] + 8, f"{name} goes on alone")
        troubled = [line for line in lines(name)[gone[name] :] if line["trouble"]]
        assert any("Connection refused" in line["trouble"] for line in troubled)
        assert troubled[-1]["bytes_up"] == 0
        assert troubled[-1]["kd"] is not None  # the last teacher goes on teaching
    assert "Connection refused" in alice.out.read_text()

    started.append(RelayProcess(folder, port=relay.port))
    for name, process in (("alice", alice), ("bob", bob)):
        now = len(lines(name))
        eventually(lambda name=name, now=now: exchanging(name, now), f"{name} publishes again")
        eventually(lambda process=process: "the relay is back" in process.out.read_text(), f"{name} says so")
        assert process.stop(signal.SIGINT) == 130
        assert "stopped after a whole round: the same command continues from here" in process.err.read_text()
        assert f"{name} after {len(lines(name))} rounds" in process.out.read_text()
        assert [line["round"] for line in lines(name)] == list(range(1, len(lines(name)) + 1))


def test_a_client_killed_at_any_moment_comes_to_the_same_bits(folder, relay, started, capsys):
    rounds, seed = 20, random.randrange(10**6)
    print("moments drawn with seed", seed)
    moments = random.Random(seed)
    with RelayExchange(relay.url, token=(folder / "bob.token").read_text().strip()) as exchange:
        make("bob", exchange=exchange).round()  # alice is taught by this one release and her own last one
    run(capsys, *arguments(relay.url, "alice", "--rounds", rounds, "--state", "whole"))
    run(capsys, *arguments(relay.url, "alice", "--rounds", 1, "--state", "cut", "--restart"))
    kills = 0
    for _ in range(3):
        before = len(records("cut"))
        process = join(folder, relay.url, "alice", "--rounds", rounds, "--state", "cut")
        started.append(process)
        eventually(lambda before=before: len(records("cut")) > before, "another round")
        time.sleep(moments.uniform(0, 0.1))
        kills += process.stop(signal.SIGKILL) == -signal.SIGKILL
    assert kills
    run(capsys, *arguments(relay.url, "alice", "--rounds", rounds, "--state", "cut"))
    assert records("cut") == records("whole")
    assert same(weights("cut"), weights("whole"))


class Tap(Exchange):
    """An exchange that keeps what leaves."""

    def __init__(self, exchange, sent):
        self.exchange, self.sent = exchange, sent

    def publish(self, body):
        self.sent.append(body)
        self.exchange.publish(body)

    def collect(self, wants):
        return self.exchange.collect(wants)


class Crash(Exception):
    pass


def crash(*_):
    raise Crash


def test_a_round_cut_off_after_its_release_left_makes_the_same_release_again(tmp_path, monkeypatch):
    board, sent = Board(Task(10, 84)), []
    bob = make("bob", exchange=LocalExchange(board, "bob"))

    def alice():
        state = State(tmp_path / "alice", make("alice", exchange=Tap(LocalExchange(board, "alice"), sent)), DIGITS)
        state.restore()
        return state

    bob.round()
    state = alice()
    for _ in take_part(state, 2):
        bob.round()
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(Client, "save", crash)
        next(take_part(state))
    bob.round()  # the board has changed when she returns
    state = alice()
    assert len(state.records.read()) == 2
    assert [record.round for record in take_part(state, 4)] == [3, 4]
    assert [wire.decode_release(body).round for body in sent] == [1, 2, 3, 3, 4]
    assert sent[2] == sent[3]


def in_step(exchanges, digits, rounds=3):
    """Three clients: all collect, all train, all publish. Their records and weights."""
    (images, labels), test = digits
    clients = []
    for number, name in enumerate(exchanges):
        torch.manual_seed(number)
        mine = images[number:300:3], labels[number:300:3]
        clients.append(Client(LeNet5(), mine, name=name, test=test, policy=Policy(m_up=2, m_down=2)))
    told = []
    for number in range(1, rounds + 1):
        wanted = {each.name: make_wants(each.method, each.policy, 0, each.name, number) for each in clients}
        boxes = [Mailbox(exchanges[name].collect(wants)) for name, wants in wanted.items()]
        for client, box in zip(clients, boxes, strict=True):
            client.exchange = box
            told.append({**asdict(client.round()), "seconds": None})
        for client, box in zip(clients, boxes, strict=True):
            exchanges[client.name].publish(box.outbox)
    return told, [client.learner.network.model.state_dict() for client in clients]


def test_a_synchronous_simulation_through_a_relay_gives_the_same_bits_as_in_process(digits, tmp_path, started):
    options = ("--db", "relay.db", "--insecure", "--task", "digits", "--classes", 10, "--dimension", 84)
    started.append(RelayProcess(tmp_path, *options))
    with closing(open_database(str(tmp_path / "relay.db"))) as database:
        entry = Tasks(database).get("digits").entry
    names, board = ("a", "b", "c"), Board(entry.task, key=entry.secret.encode())
    here, local_weights = in_step({name: LocalExchange(board, name) for name in names}, digits)
    with ExitStack() as stack:
        relays = {n: stack.enter_context(RelayExchange(started[-1].url, "digits", client=n)) for n in names}
        there, relay_weights = in_step(relays, digits)
    assert there == here
    assert here[-1]["kd"] > 0
    assert all(same(*pair) for pair in zip(local_weights, relay_weights, strict=True))


def test_a_state_of_another_seed_or_model_is_refused_and_named(tmp_path):
    State(tmp_path / "s", make("alice"), DIGITS)
    with pytest.raises(ConfigError, match=r"another run \(seed 0 there, 1 here\): choose another --state"):
        State(tmp_path / "s", make("alice", seed=1), DIGITS)
    with pytest.raises(ConfigError, match=r"another run \(model 'LeNet5, 30,986 parameters' there, 'Sequential, "):
        State(tmp_path / "s", make("bob"), DIGITS)
    with pytest.raises(ConfigError, match=r"another run \(task 'digits' there, 'faces' here\)"):
        State(tmp_path / "s", make("alice"), DIGITS._replace(task="faces"))


def test_most_of_a_policy_may_change_between_starts(tmp_path):
    next(take_part(State(tmp_path / "s", make("alice"), DIGITS)))
    state = State(tmp_path / "s", make("alice", policy=Policy(lambda_kd=3.0, share_classes=(1,))), DIGITS)
    state.restore()
    assert next(take_part(state)).round == 2
    assert json.loads((tmp_path / "s/policy.json").read_text())["share_classes"] == [1]
    with pytest.raises(ConfigError, match=r"learning_rate 0\.001 there, 0\.1 here"):
        State(tmp_path / "s", make("alice", policy=Policy(learning_rate=0.1)), DIGITS)


def test_a_damaged_state_is_noticed(tmp_path):
    state = State(tmp_path / "s", make("alice"), DIGITS)
    next(take_part(state))
    kept = bytearray((tmp_path / "s/client.state").read_bytes())
    kept[len(kept) // 2] ^= 1
    (tmp_path / "s/client.state").write_bytes(kept)
    with pytest.raises(CheckpointError, match="damaged: start again with --restart"):
        state.restore()


@pytest.fixture
def party(tmp_path):
    """A function that writes a party's file and names the function in it."""

    def write(body):
        (tmp_path / "own.py").write_text(f"from repshare import *\nimport torch\n\ndef party():\n    {body}\n")
        return f"{tmp_path / 'own.py'}:party"

    return write


@pytest.mark.parametrize(
    ("body", "said"),
    [("return 3", "must return a repshare.Party"), ("raise OSError('no\\ndisk')", "party raised OSError: no disk"),
     ("exit()", "party raised SystemExit"), ("return Party()", "needs samples to learn from")],
)  # fmt: skip
def test_a_party_that_cannot_be_had_is_said_in_one_line(party, body, said):
    with pytest.raises(ConfigError) as caught:
        load_party(party(body), 0)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def observed(counts):
    return [str(len(counts)), "over", str(counts[0]), "samples"] if len(counts) else ["–"]


def test_a_dry_run_tells_what_would_leave_and_contacts_nobody(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    dry = ["join", "http://127.0.0.1:9", "--party", f"{PARTY}:alice", "--dry-run", "--m-up", 3, "--minimum-count", 10]
    shown = run(capsys, *dry).out
    sent = []
    state = State(tmp_path / "s", make("alice", exchange=Tap(LocalExchange(Board(Task(10, 84)), "alice"), sent),
                                       policy=Policy(m_up=3, minimum_count=10)), DIGITS)  # fmt: skip
    next(take_part(state))
    release = wire.decode_release(sent[0])
    assert f"{len(release.means.labels) + len(release.observations.labels)} vectors of 84 numbers (fp32)" in shown
    assert f"{len(sent[0]):,} bytes a round" in shown
    for label in range(10):
        (row,) = [line.split() for line in shown.splitlines() if line.split()[:1] == [str(label)]]
        over, each = release.means.of(label).counts.sum(), release.observations.of(label).counts
        assert row[2:] == (["1", "over", str(over), "samples", *observed(each)] if over else ["–", *observed(each)])
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_dry_run_tells_what_a_report_would(capsys):
    common = ["join", "http://127.0.0.1:9", "--party", f"{PARTY}:alice", "--dry-run"]
    alice = make("alice", policy=Policy())
    sent = make_report(alice, alice.round())
    (told,) = re.findall(r"what --report sends: ([\w, ]+)\. ", run(capsys, *common, "--report").out)
    assert set(sent) <= set(told.split(", ")) <= set(RoundReport.model_fields)
    assert "--report" not in run(capsys, *common).out


def test_joining_from_the_command_line(folder, relay, capsys, party):
    """One relay for all that needs one but no process of its own."""
    told = run(capsys, *arguments(relay.url, "alice", "--rounds", 3)).out
    assert [int(number) for number in re.findall(r"^round +(\d+)", told, re.MULTILINE)] == [1, 2, 3]
    assert len(records("repshare-digits-alice")) == 3
    assert "alice after 3 rounds" in told
    assert "alice in digits (10 classes, d' = 84) with LeNet5 and 100 samples" in told

    again = run(capsys, *arguments(relay.url, "alice", "--rounds", 3)).out
    assert not re.search(r"^round", again, re.MULTILINE)  # nothing was left to do

    with State(Path("repshare-digits-alice"), make("alice"), DIGITS).folder:
        said = run(capsys, *arguments(relay.url, "alice"), expect=2).err
    assert "is being written by another process: wait for it, or choose another --state" in said

    shutil.rmtree("repshare-digits-alice")
    said = run(capsys, *arguments(relay.url, "alice", "--rounds", 2), expect=2).err
    assert "--restart withdraws what it shared and begins at round 1" in said
    assert records("repshare-digits-alice") == []
    run(capsys, *arguments(relay.url, "alice", "--rounds", 2, "--restart"))
    run(capsys, *arguments(relay.url, "alice", "--rounds", 1, "--restart"))
    assert [(line["round"], line["trouble"]) for line in records("repshare-digits-alice")] == [(1, None)]

    narrow = party("return Party(LeNet5(dimension=50), (torch.zeros(4, 1, 8, 8), torch.arange(4)))")
    said = run(capsys, "join", relay.url, "--party", narrow, "--token-file", "bob.token", "--rounds", 1, expect=2).err
    assert "the model has 10 classes and d' = 50, but the task digits has 10 classes and d' = 84" in said
    assert not Path("repshare-digits-bob").exists()

    made = "LeNet5(), (torch.zeros(4, 1, 8, 8), torch.arange(4))"
    choosy = party(f"return Party({made}, policy=Policy(peers=('alice',)))")
    said = run(capsys, "join", relay.url, "--party", choosy, "--token-file", "bob.token", "--rounds", 1, expect=2).err
    assert "a relay hands out nothing by name: leave peers out" in said
    assert not Path("repshare-digits-bob").exists()

    Path("alice.token").write_text("rs_0_wrong\n")
    said = run(capsys, *arguments(relay.url, "alice"), expect=2).err
    assert "401" in said
    assert "rs_0_wrong" not in said


@pytest.mark.parametrize(
    ("options", "said"),
    [((), "give --token-file, or for a relay without tokens --name and --task"),
     (("--token-file", "none.token"), "the token file none.token cannot be read: No such file"),
     (("--name", "a", "--task", "t", "--cert", "x"), "--cert and --key belong together"),
     (("--name", "a", "--task", "t", "--rounds", "0"), "rounds must be at least 1"),
     (("--name", "a", "--task", "t", "--patience", "0.1"), "Connection refused")],
)  # fmt: skip
def test_what_cannot_work_is_said_in_one_line_before_anything_is_written(options, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    told = run(capsys, "join", "http://127.0.0.1:9", "--party", f"{PARTY}:alice", *options, expect=2)
    assert said in told.err
    assert told.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_waiting_for_the_relay_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(http, "QUIET_SECONDS", 0.1)
    monkeypatch.chdir(tmp_path)
    names = ("--name", "a", "--task", "t", "--patience", 0.7)
    said = run(capsys, "join", "http://127.0.0.1:9", "--party", f"{PARTY}:alice", *names, expect=2)
    assert "waiting for the relay (0 s) …" in said.out or "waiting for the relay (1 s) …" in said.out


def test_a_start_says_what_it_does_before_it_imports_pytorch(tmp_path):
    code = (
        "import sys\nfrom repshare.cli import main\nfrom repshare.cli.party import join\n"
        "def say(console, text, *_):\n    print(text, 'torch' in sys.modules)\n"
        f"join.say = say\nmain.main(['join', 'http://127.0.0.1:9', '--party', '{PARTY}:alice'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[0] == f"reading {PARTY}:alice … False"


def test_no_name_that_a_relay_gives_leads_out_of_the_folder():
    assert choose_folder(WorkOptions(), "my task", "../../etc/x") == Path("repshare-my-task-..-..-etc-x")


def test_an_open_relay_is_joined_by_name_and_flags_come_before_the_files_policy(tmp_path, started, party, capsys):
    options = ("--db", "memory", "--insecure", "--task", "my task", "--classes", 10, "--dimension", 84)
    started.append(RelayProcess(tmp_path, *options))
    own = party(
        "return Party(LeNet5(), (torch.rand(40, 1, 8, 8), torch.arange(40) % 10), policy=Policy(m_up=2, epochs=2))"
    )
    names = ("--name", "a b", "--task", "my task", "--rounds", 1, "--state", tmp_path / "s", "--m-up", 4)
    told = run(capsys, "join", started[-1].url, "--party", own, *names)
    assert "a b after 1 rounds: sent" in told.out
    policy = json.loads((tmp_path / "s/policy.json").read_text())
    assert (policy["m_up"], policy["epochs"]) == (4, 2)
