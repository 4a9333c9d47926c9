"""The files of `join`: nobody else may read them, and what is foreign in them is said in one line."""

import io
import os
import pickle
import stat
import zlib
from pathlib import Path

import pytest
import torch

from repshare import Client, LeNet5
from repshare.errors import CheckpointError, RepshareError
from repshare.exchange.relay import Membership
from repshare.party.rounds import take_part
from repshare.party.state import State
from repshare.sharing.task import Task
from support import private_clients
from support.private_clients import create_private_task
from support.processes import RelayProcess, run

PARTY = Path(__file__).parents[2] / "examples/party.py"
DIGITS = Membership("digits", "alice", Task(10, 84))


def make_client():
    torch.manual_seed(0)
    images = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return Client(LeNet5(), (images, torch.arange(40) % 10), name="alice")


@pytest.fixture
def usual_mask():
    """Files are readable for all unless somebody sees to it."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_nobody_else_may_read_what_a_client_keeps(tmp_path, monkeypatch, capsys, usual_mask):
    monkeypatch.chdir(tmp_path)
    create_private_task(tmp_path)
    relay = RelayProcess(tmp_path, "--insecure")
    names = ("--name", "alice", "--task", "digits", "--epsilon", 3, "--releases", 5)
    try:
        join = ("join", relay.url, "--party", f"{private_clients.__file__}:alice", *names, "--rounds", 1)
        run(capsys, *join)
        folder = tmp_path / "repshare-digits-alice"
        kept = {
            "client.state",
            "teacher",
            "records.jsonl",
            "privacy.jsonl",
            "privacy.release",
            "run.json",
            "policy.json",
        }
        assert kept <= {path.name for path in folder.iterdir()}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for name in kept:
            assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600, name
            (folder / name).chmod(0o644)  # as an earlier version made them
        run(capsys, *join, "--restart")
        for name in kept - {"run.json"}:
            assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600, name
    finally:
        relay.stop()


def test_a_token_that_others_can_read_is_warned_of(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("alice.token").write_text("rs_0_x")
    command = ("join", "http://127.0.0.1:9", "--party", f"{PARTY}:alice", "--dry-run", "--token-file", "alice.token")
    for mode, warned in ((0o644, True), (0o640, True), (0o600, False), (0o400, False)):
        Path("alice.token").chmod(mode)
        said = run(capsys, *command).out
        assert ("warning: the token file alice.token can be read by other users" in said) == warned
        assert ("chmod 600 alice.token" in said) == warned


class Code:
    def __reduce__(self):
        return os.system, ("touch was-run",)


def torch_bytes(value):
    kept = io.BytesIO()
    torch.save(value, kept)
    return kept.getvalue()


def altered(**changed):
    client = make_client()
    client.round()
    state = torch.load(io.BytesIO(client.save()), weights_only=True)
    return torch_bytes({**state, **changed})


FOREIGN = {
    "nothing": lambda: b"",
    "text": lambda: b"hello",
    "a pickle": lambda: pickle.dumps({"round": 1}),
    "code": lambda: pickle.dumps(Code()),
    "code in torch's form": lambda: torch_bytes({"round": Code()}),
    "half of it": lambda: altered()[:2000],
    "a list": lambda: torch_bytes([1, 2, 3]),
    "a number": lambda: torch_bytes(7),
    "no model": lambda: torch_bytes({"round": 1}),
    "a word for a round": lambda: altered(round="x"),
    "a tensor for a model": lambda: altered(model=torch.zeros(3)),
    "no streams": lambda: altered(batches=None),
    "another's streams": lambda: altered(batches=torch.zeros(3)),
    "no lesson": lambda: altered(lesson=(1,)),
    "another's lesson": lambda: altered(lesson=tuple(torch.zeros(3, 4) for _ in range(4))),
    "an optimizer of nothing": lambda: altered(optimizer={}),
    "a number for an average": lambda: altered(averaging=3),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_state_with_a_right_sum_and_foreign_content_is_said_in_one_line(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    state = State(tmp_path / "s", make_client(), DIGITS)
    next(take_part(state))
    content = FOREIGN[kind]()
    (tmp_path / "s/client.state").write_bytes(zlib.crc32(content).to_bytes(4) + content)
    with pytest.raises(CheckpointError, match="use --restart") as caught:
        State(tmp_path / "s", make_client(), DIGITS).restore()
    assert "\n" not in str(caught.value)
    assert not Path("was-run").exists()


@pytest.mark.parametrize("lines", ["[1]\n", "3\n", "{}\n", '{"round": "x"}\n', "nonsense\n"])
def test_records_that_are_none_are_said_in_one_line(tmp_path, lines):
    state = State(tmp_path / "s", make_client(), DIGITS)
    next(take_part(state))
    (tmp_path / "s/records.jsonl").write_text(lines)
    with pytest.raises(RepshareError, match="damaged"):
        State(tmp_path / "s", make_client(), DIGITS).restore()
