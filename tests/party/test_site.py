"""A party's site: a line for each release before it leaves, a recorded approval, and limits that nobody else lowers."""

import io
import json
from pathlib import Path

import pytest

from repshare.party import audit
from support import private_clients
from support.private_clients import create_private_task
from support.processes import RelayProcess, run

PARTY = Path(__file__).parents[2] / "examples/party.py"


@pytest.fixture(scope="module")
def relay(tmp_path_factory):
    """An open relay with the task digits."""
    options = ("--db", "memory", "--insecure", "--task", "digits", "--classes", 10, "--dimension", 84)
    process = RelayProcess(tmp_path_factory.mktemp("relay"), *options)
    yield process
    process.stop()


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty folder, and a machine without limits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(audit, "USUAL", tmp_path / "none.toml")
    monkeypatch.setenv("REPSHARE_LIMITS", "")


def join(relay, name, *options):
    command = ("join", relay.url, "--party", f"{PARTY}:alice", "--name", name, "--task", "digits", "--threads", 1)
    return (*command, "--rounds", 3, *options)


def logged(name):
    return [json.loads(line) for line in Path(f"repshare-digits-{name}/audit.jsonl").read_text().splitlines()]


def limit(text):
    Path("limits.toml").write_text(text)


def test_each_release_has_a_line(relay, capsys):
    run(capsys, *join(relay, "alice"))
    lines = logged("alice")
    assert [(line["round"], line["task"], line["samples"], line["epsilon"]) for line in lines] == [
        (number, "digits", 100, None) for number in (1, 2, 3)
    ]
    assert sum(lines[0]["counts"]) == 100
    assert len({line["sha256"] for line in lines}) == 3
    assert Path("repshare-digits-alice/audit.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_release_with_noise_has_its_cost_and_no_count(tmp_path, capsys):
    create_private_task(tmp_path)
    relay = RelayProcess(tmp_path, "--insecure")
    try:
        command = ("join", relay.url, "--party", f"{private_clients.__file__}:alice", "--name", "alice")
        run(capsys, *command, "--task", "digits", "--rounds", 1, "--epsilon", 8)
    finally:
        relay.stop()
    (line,) = logged("alice")
    assert (line["samples"], line["epsilon"]) == (None, pytest.approx(8, abs=0.01))


@pytest.mark.parametrize(("answer", "leaves"), [("yes\n", True), ("no\n", False), ("", False)])
def test_nothing_leaves_before_yes(relay, capsys, monkeypatch, answer, leaves):
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    name = f"bob{leaves}{len(answer)}"
    shown = run(capsys, *join(relay, name, "--approve", "ask"), expect=0 if leaves else 2)
    assert "what leaves in a round" in shown.out
    if leaves:
        approved, *lines = logged(name)
        assert set(approved) == {"time", "task", "approved_by"}
        assert len(lines) == 3
    else:
        assert "not approved: nothing has left" in shown.err
        assert not Path(f"repshare-digits-{name}").exists()


def test_a_sites_limits_come_before_the_partys_and_the_tasks(relay, capsys, monkeypatch):
    monkeypatch.setenv("REPSHARE_LIMITS", "limits.toml")
    limit("minimum_count = 5")
    run(capsys, *join(relay, "carol", "--minimum-count", 1))
    assert json.loads(Path("repshare-digits-carol/policy.json").read_text())["minimum_count"] == 5

    limit("releases = 2")
    told = run(capsys, *join(relay, "dave")).out
    assert "the site's limits allow 2 releases" in told
    run(capsys, *join(relay, "dave", "--restart"))
    assert len(logged("dave")) == 2, "a new start is no new budget"

    for text, said in {
        "numbers_per_sample = 3": "the site's limits allow 3 numbers for each sample: 1,680 of 100 samples would leave",
        'spaces = ["fourier"]': "the site's limits allow the spaces fourier, not a network of its own",
        "minimum_counts = 3": "the site's limits in limits.toml cannot be used: TypeError",
        "releases = 0": "releases must be a whole number of at least 1",
    }.items():
        limit(text)
        for more in ((), ("--dry-run",)):
            if text.startswith("releases"):
                more = ()
            assert said in run(capsys, *join(relay, "erin", *more), expect=2).err, text
    Path("limits.toml").unlink()
    assert "cannot be used" in run(capsys, *join(relay, "erin"), expect=2).err, "a limit that is lost is none"
