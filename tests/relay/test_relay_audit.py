"""The audit log has one line for each accepted action and none for a refused one; tokens end; files are private."""

import hashlib
import json
import os
import socket
import stat
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from repshare.cli.main import main
from repshare.errors import ConfigError
from repshare.relay.auth import DAY_SECONDS, Access, Grant
from repshare.relay.monitoring.audit_log import AuditLog
from repshare.stores import open_database
from support.processes import REPSHARE
from support.redis_servers import Redis
from support.relays import DIGITS, create_task, invite, release, repshare, start_open_relay, start_relay

LOG = ("--audit-log", "audit.jsonl")
UNIT = Path(__file__).parents[2] / "deploy" / "repshare-relay.service"


def lines(folder):
    path = Path(folder, "audit.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


def told(line):
    """A line without its time."""
    assert line.pop("time").endswith("Z")
    return line


@pytest.fixture
def audited(tmp_path):
    """A relay with an audit log, whose task and tokens are not in it, and a function that says what is new there."""
    create_task(tmp_path)
    tokens = {name: invite(tmp_path, name, "--task", "digits") for name in ("alice", "bob")}
    tokens["viewer"] = invite(tmp_path, "eve", "--role", "viewer")
    with start_relay(tmp_path, *LOG) as relay:
        relay.tokens, seen = tokens, 0

        def new():
            nonlocal seen
            found = lines(tmp_path)[seen:]
            seen += len(found)
            return [told(line) for line in found]

        yield relay, new


def test_each_accepted_request_leaves_one_line_that_says_who_did_what(audited):
    relay, new = audited
    alice = {"role": "client", "name": "alice"}
    body = release()
    release_path = "/v1/tasks/digits/clients/alice/release"
    assert relay.publish("alice", body, relay.tokens["alice"]).status_code == 200
    digest = hashlib.sha256(body).hexdigest()
    what = {"task": "digits", "client": "alice"}
    assert new() == [{"action": "publish", "by": alice, **what, "sha256": digest, "bytes": len(body)}]
    assert relay.ask("DELETE", release_path, relay.tokens["alice"]).status_code == 200
    assert new() == [{"action": "withdraw", "by": alice, **what}]


def test_what_is_refused_or_only_reads_leaves_none(audited):
    relay, new = audited
    alice, viewer = relay.tokens["alice"], relay.tokens["viewer"]
    assert relay.publish("alice", release(5), alice).status_code == 200
    assert len(new()) == 1
    refused = [
        relay.publish("alice", release(4), alice),
        relay.publish("alice", b"nonsense", alice),
        relay.publish("bob", release(6), alice),
        relay.publish("alice", release(6), viewer),
        relay.publish("alice", release(6), "rs_0_x"),
        relay.publish("alice", release(6, dimension=9), alice),
        relay.ask("DELETE", "/v1/tasks/digits/clients/bob/release", alice),
    ]
    assert all(400 <= answer.status_code < 500 for answer in refused)
    for path in ("teacher", "news?wait=0", "status"):
        assert relay.ask("GET", f"/v1/tasks/digits/{path}", alice).status_code == 200
    assert new() == []


def test_each_command_leaves_one_line_and_one_that_fails_none(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REPSHARE_AUDIT_LOG", "audit.jsonl")

    def run(*arguments, expect=None):
        before = len(lines(tmp_path))
        with suppress(SystemExit):
            main(["relay", *map(str, arguments)])
        found = [told(line) for line in lines(tmp_path)[before:]]
        assert [line.pop("by")["role"] for line in found] == ["operator"] * len(found)
        assert found == ([] if expect is None else [expect])

    run("tasks", "create", "digits", *DIGITS, expect={"action": "create", "task": "digits"})
    run("tasks", "create", "digits", *DIGITS)
    run("tasks", "create", "digits", "--classes", 3, "--dimension", 8)
    granted = {"task": "digits", "client": "alice", "role": "client"}
    invited = {"action": "invite", **granted, "days": None, "renewed": False}
    run("invite", "alice", "--task", "digits", expect=invited)
    run("invite", "alice", "--task", "digits")
    run("invite", "alice", "--task", "nothing")
    renewed = {**invited, "days": 3.0, "renewed": True}
    run("invite", "alice", "--task", "digits", "--renew", "--days", 3, expect=renewed)
    run("revoke", "alice", "--task", "digits", expect={"action": "revoke", **granted})
    run("revoke", "alice", "--task", "digits")
    run("tasks", "list")
    run("tasks", "create", "copy", *DIGITS, expect={"action": "create", "task": "copy"})
    run("tasks", "delete", "copy")
    run("tasks", "delete", "copy", "--yes", expect={"action": "delete", "task": "copy"})
    run("tasks", "delete", "copy")
    assert mode("audit.jsonl") == 0o600
    token = capsys.readouterr().out.split()[0]
    assert token.startswith("rs_")
    assert token.split("_", 2)[2] not in Path("audit.jsonl").read_text()


def test_it_may_go_to_standard_output_or_be_named_in_the_environment(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REPSHARE_AUDIT_LOG", "-")
    main(["relay", "tasks", "create", "digits", *map(str, DIGITS)])
    assert json.loads(capsys.readouterr().out)["action"] == "create"
    monkeypatch.setenv("REPSHARE_AUDIT_LOG", "audit.jsonl")
    main(["relay", "tasks", "delete", "digits", "--yes"])
    assert [line["action"] for line in lines(tmp_path)] == ["delete"]
    with pytest.raises(ConfigError, match="cannot be written"):
        AuditLog(str(tmp_path / "missing" / "audit.jsonl"))


def test_several_writers_share_one_file_that_another_program_may_rotate(tmp_path):
    path = tmp_path / "audit.jsonl"

    def write(who):
        for number in range(100):
            AuditLog(str(path)).note("publish", "client", who, number=number)

    for turn in range(2):
        writers = [threading.Thread(target=write, args=(f"writer {turn} {number}",)) for number in range(4)]
        for each in writers:
            each.start()
        for each in writers:
            each.join()
        path.rename(tmp_path / f"audit.jsonl.{turn}")
    files = sorted(tmp_path.iterdir())
    assert [mode(file) for file in files] == [0o600] * 2
    found = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    for turn, told in enumerate(found):
        assert sorted((line["by"]["name"], line["number"]) for line in told) == [
            (f"writer {turn} {writer}", number) for writer in range(4) for number in range(100)
        ]


def test_a_token_ends_when_its_days_are_over(tmp_path):
    now = 1_000_000.0
    access = Access(open_database("memory"), now=lambda: now)
    token, forever = (access.invite(Grant("client", name, "t"), days=days) for name, days in (("a", 2), ("b", None)))
    now += 2 * DAY_SECONDS - 1
    assert access.find(token).name == "a"
    now += 2
    assert access.find(token) is None
    assert access.find(forever).name == "b"
    now -= 10
    assert access.find(token).name == "a", "the clock alone decides"
    for days in (0, -1, float("nan"), 1e9):
        with pytest.raises(ConfigError):
            access.invite(Grant("client", "c", "t"), days=days)


def test_an_expired_token_is_refused_by_a_running_relay_and_the_list_says_when_one_ends(tmp_path):
    create_task(tmp_path)
    token = invite(tmp_path, "alice", "--task", "digits", "--days", 6 / DAY_SECONDS)
    with start_relay(tmp_path) as relay:
        while (answer := relay.publish("alice", release(), token)).status_code == 200:
            time.sleep(0.2)
        assert answer.status_code == 401
        assert "expired" in answer.json()["detail"]
    invite(tmp_path, "eve", "--role", "viewer", "--days", 30)
    listed = repshare("relay", "tasks", "list", cwd=tmp_path)
    assert "alice (until 20" in listed
    assert "eve (viewer, until 20" in listed
    (row,) = json.loads(repshare("relay", "tasks", "list", "--json", cwd=tmp_path))["tasks"]
    assert (row["tokens"], list(row["expire"])) == (["alice"], ["alice"])


def test_a_revoked_clients_release_goes_with_its_token_if_asked(tmp_path, monkeypatch):
    create_task(tmp_path)
    alice, bob = (invite(tmp_path, name, "--task", "digits") for name in ("alice", "bob"))
    viewer = invite(tmp_path, "eve", "--role", "viewer")
    with start_relay(tmp_path) as relay:
        for name, token in (("alice", alice), ("bob", bob)):
            assert relay.publish(name, release(), token).status_code == 200
        over, answers = threading.Event(), []

        def insist():
            while not over.is_set():
                answers.append(relay.publish("alice", release(len(answers) + 2), alice).status_code)

        publishing = threading.Thread(target=insist)
        publishing.start()
        monkeypatch.setenv("REPSHARE_AUDIT_LOG", "audit.jsonl")
        repshare("relay", "revoke", "alice", "--task", "digits", "--withdraw", cwd=tmp_path)
        over.set()
        publishing.join()
        assert answers[-1] == 401
        shown = relay.ask("GET", "/v1/tasks/digits/status", viewer).json()
        assert [member["name"] for member in shown["shown"]] == ["bob"]
    assert [line["action"] for line in lines(tmp_path)] == ["revoke", "withdraw"]
    error = repshare("relay", "revoke", "eve", "--withdraw", cwd=tmp_path, expect=2)
    assert "give --task" in error


def test_a_body_that_was_on_its_way_when_its_token_ended_is_refused(tmp_path):
    create_task(tmp_path)
    token = invite(tmp_path, "alice", "--task", "digits")
    with start_relay(tmp_path) as relay:
        body = release()

        def dawdle():
            yield body[:10]
            repshare("relay", "revoke", "alice", "--task", "digits", cwd=tmp_path)
            time.sleep(1.5)
            yield body[10:]

        assert relay.publish("alice", dawdle(), token).status_code == 401
    assert "0 published" in repshare("relay", "tasks", "list", cwd=tmp_path)


def test_what_a_relay_and_its_commands_write_is_for_their_owner_alone(tmp_path):
    before = os.umask(0o022)
    try:
        create_task(tmp_path)
        repshare("relay", "invite", "alice", "--task", "digits", "--out", "alice.token", cwd=tmp_path)
        repshare("relay", "backup", "monday.db", cwd=tmp_path)
        token = (tmp_path / "alice.token").read_text().strip()
        with start_relay(tmp_path, *LOG) as relay:
            assert relay.publish("alice", release(), token).status_code == 200
            made = {path.name: mode(path) for path in tmp_path.iterdir() if path.suffix not in (".out", ".err")}
    finally:
        os.umask(before)
    wanted = {"relay.db", "relay.db-wal", "relay.db-shm", "alice.token", "monday.db", "audit.jsonl"}
    assert made == dict.fromkeys(wanted, 0o600)


def test_a_token_file_is_not_overwritten_unless_the_token_is_renewed(tmp_path):
    create_task(tmp_path)
    out = ("--task", "digits", "--out", "alice.token")
    said = repshare("relay", "invite", "alice", *out, cwd=tmp_path)
    first = (tmp_path / "alice.token").read_text()
    assert (said, first[:3]) == ("", "rs_")
    for arguments, words in ((["bob", *out], "already exists"), (["bob", *out[:3], "none/x"], "there is no folder")):
        assert words in repshare("relay", "invite", *arguments, cwd=tmp_path, expect=2)
    assert "bob" not in repshare("relay", "tasks", "list", cwd=tmp_path), "no token that nobody has seen"
    repshare("relay", "invite", "alice", *out, "--renew", cwd=tmp_path)
    assert (tmp_path / "alice.token").read_text() not in ("", first)


def test_strangers_cannot_hide_in_the_log_what_a_client_does(tmp_path):
    create_task(tmp_path)
    alice = invite(tmp_path, "alice", "--task", "digits")
    with start_relay(tmp_path, "--rate", 0) as relay:
        for number in range(1500):
            assert relay.ask("GET", "/v1/me", f"rs_{number}_x").status_code == 401
            if number % 50 == 0:
                assert relay.publish("bob", release(), alice).status_code == 403
        assert relay.logged(event="lines left out", of="strangers")["lines"] > 0
        logged = [line for line in relay.log() if line.get("kind") == "forbidden"]
    assert len(logged) == 30


def test_paths_and_addresses_are_told_to_the_log_alone(tmp_path):
    redis = Redis(tmp_path)
    try:
        place = ("--db", redis.url, "--insecure", "--task", "digits", *DIGITS)
        with start_relay(tmp_path, *place) as relay:
            redis.stop()
            time.sleep(0.6)
            port = redis.url.rpartition(":")[2].partition("/")[0]
            answers = [relay.ask("GET", "/healthz"), relay.publish("alice", release()), relay.teacher(client="bob")]
            for answer in answers:
                assert answer.status_code == 503
                assert port not in answer.text
                assert "127.0.0.1" not in answer.text
            assert port in relay.logged(event="refused", kind="store-away")["reason"]
    finally:
        redis.kill()


def test_the_systemd_unit_serves_a_relay_behind_the_documents_proxy(tmp_path):
    (command,) = [line for line in UNIT.read_text().splitlines() if line.startswith("ExecStart=")]
    program, *arguments = command.removeprefix("ExecStart=").split()
    assert program.endswith("/repshare")
    assert "--behind-proxy" in arguments
    subprocess.run([*REPSHARE, "relay", "serve", "--help"], check=True, capture_output=True)
    given = [each.replace("/var/lib/repshare/", "") for each in arguments[2:]]
    given[given.index("--port") + 1] = "0"
    with start_relay(tmp_path, *given, "--public-page", "--rate", 5) as relay:
        asked = [
            [relay.ask("GET", "/v1/tasks", headers={"X-Forwarded-For": address}).status_code for _ in range(30)]
            for address in ("198.51.100.1", "198.51.100.2")
        ]
    assert all(429 in each and each[:5] == [200] * 5 for each in asked), "each visitor has a rate of its own"


def test_an_open_relay_says_in_whose_name_it_was_asked(tmp_path):
    with start_open_relay(tmp_path, *LOG) as relay:
        assert relay.publish("alice", release()).status_code == 200
    created, published = map(told, lines(tmp_path))
    assert created["action"] == "create"
    assert published["by"] == {"role": "anyone", "name": "alice"}


def test_metrics_need_a_viewers_token_unless_they_are_public(audited, tmp_path):
    relay, _ = audited
    answers = {who: relay.ask("GET", "/metrics", relay.tokens.get(who)).status_code for who in ("viewer", "alice", "")}
    assert answers == {"viewer": 200, "alice": 403, "": 401}
    with start_relay(tmp_path, "--public-metrics") as other:
        assert "repshare_request_seconds" in other.ask("GET", "/metrics").text
        with socket.create_connection(("127.0.0.1", other.port)) as https:
            https.sendall(bytes.fromhex("16030100a5010000a10303") + bytes(160))  # TLS's first message
            https.recv(1000)
        line = other.logged(event="invalid request")
        assert line["address"] == "127.0.0.1"
        assert "TLS on a port without TLS" in line["reason"]
