"""Inviting and revoking over HTTPS by an admin's token: by nobody else, and nobody but clients and viewers."""

import json
import socket
import ssl
import stat
from contextlib import closing

import pytest
import trustme

from repshare.cli.main import main
from repshare.stores import open_database
from support.relays import create_task, invite, prepare, release, start_open_relay, start_relay

CLIENTS = "/v1/tasks/digits/clients"


@pytest.fixture(scope="module")
def relay(tmp_path_factory):
    """A relay with TLS and an audit log, and tokens by name."""
    folder = tmp_path_factory.mktemp("invitations")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    for task in ("digits", "other"):
        create_task(folder, task)
    tokens = {
        "root": invite(folder, "root", "--role", "admin"),
        "ward": invite(folder, "ward", "--role", "admin", "--task", "digits"),
        "elsewhere": invite(folder, "elsewhere", "--role", "admin", "--task", "other"),
        "viewer": invite(folder, "eve", "--role", "viewer"),
        "alice": invite(folder, "alice", "--task", "digits"),
    }
    options = ("--certificate", "cert.pem", "--key", "key.pem", "--audit-log", "audit.jsonl")
    with start_relay(folder, *options, verify=ssl.create_default_context(cafile=folder / "ca.pem")) as relay:
        relay.tokens = tokens
        for name in ("root", "alice"):
            (folder / f"{name}.token").write_text(tokens[name])
        yield relay


@pytest.fixture
def run(relay, monkeypatch, capsys):
    """A command against it from elsewhere, as the holder of a token: what it prints and complains of."""
    monkeypatch.chdir(relay.folder)

    def run(*arguments, holder="root", at=None, expect=0):
        capsys.readouterr()
        code = 0
        try:
            main(["relay", *arguments, "--at", at or relay.url, "--token-file", f"{holder}.token", "--ca", "ca.pem"])
        except SystemExit as end:
            code = end.code
        told = capsys.readouterr()
        assert code == expect, told.err
        return told

    return run


def stored_tokens(relay):
    with closing(open_database(str(relay.folder / "relay.db"))) as database:
        return database.store("access").items()


def test_an_admin_invites_and_the_token_works_until_it_is_revoked(relay, run, tmp_path):
    file = tmp_path / "bob.token"
    said = run("invite", "bob", "--task", "digits", "--days", "30", "--out", str(file)).err
    token = file.read_text().strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert f"repshare join {relay.url} --party party.py:function --token-file bob.token" in said
    assert relay.publish("bob", release(), token).status_code == 200
    assert token.split("_", 2)[2] not in str(stored_tokens(relay)), "only a hash of it is kept"
    assert "already" in run("invite", "bob", "--task", "digits", expect=2).err
    renewed = json.loads(run("invite", "bob", "--task", "digits", "--renew", "--json").out)["token"]
    assert relay.publish("bob", release(2), renewed).status_code == 200
    assert run("revoke", "bob", "--task", "digits").err == "the client token of bob has ended\n"
    assert [relay.publish("bob", release(3), each).status_code for each in (token, renewed)] == [401, 401]
    assert run("withdraw", "bob", "--task", "digits").err == "the release of bob is withdrawn\n"
    assert relay.ask("GET", "/v1/tasks/digits/status", relay.tokens["viewer"]).json()["clients"] == 0
    assert "bob has no token in digits" in run("revoke", "bob", "--task", "digits", expect=2).err
    log = (relay.folder / "audit.jsonl").read_text()
    lines = [json.loads(line) for line in log.splitlines()]
    done = [(line["action"], line["by"]) for line in lines if line["client"] == "bob" and line["action"] != "publish"]
    assert done == [(each, {"role": "admin", "name": "root"}) for each in ("invite", "invite", "revoke", "withdraw")]
    assert token.split("_", 2)[2] not in log + relay.err.read_text()


@pytest.mark.parametrize("holder", ["alice", "viewer", "elsewhere", "nobody", "none"])
def test_nobody_but_the_tasks_admin_may_invite_or_revoke(relay, holder):
    before = stored_tokens(relay)
    token = {"none": None, "nobody": "rs_00_x"}.get(holder, relay.tokens.get(holder))
    expected = 401 if holder in ("none", "nobody") else 403
    assert relay.ask("POST", CLIENTS, token, json={"name": "mallory"}).status_code == expected
    assert relay.ask("DELETE", f"{CLIENTS}/alice", token).status_code == expected
    assert stored_tokens(relay) == before


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"name": "alice"}, 409),
        ({"name": "ward", "renew": True}, 409),  # an admin's: not by another admin
        ({"name": "x", "role": "admin"}, 422),
        ({"name": "x", "task": "other"}, 422),
        ({"name": "../x"}, 422),
        ({"name": "a/release"}, 422),
        ({"name": ".."}, 422),
        ({"name": "a\nb"}, 422),
        ({"name": "\u202egnp"}, 422),
        ({"name": ""}, 422),
        ({"name": "x" * 65}, 422),
        ({"name": "x", "days": -1}, 422),
        ({"name": "x", "days": 1e9}, 422),
        ({"name": "x", "renew": "yes"}, 422),
        ({"name": 7}, 422),
        ([], 422),
        (None, 400),
        ({"name": "x" * 5000}, 413),
    ],
)
def test_an_invitation_that_makes_no_sense_is_refused_and_changes_nothing(relay, body, status):
    before = stored_tokens(relay)
    answer = relay.ask("POST", CLIENTS, relay.tokens["root"], json=body)
    assert answer.status_code == status, answer.text
    assert "token" not in answer.json()
    assert stored_tokens(relay) == before


def test_an_admins_token_is_ended_on_the_relays_machine_only(relay):
    assert relay.ask("DELETE", f"{CLIENTS}/ward", relay.tokens["root"]).status_code == 403
    assert relay.ask("GET", "/v1/me", relay.tokens["ward"]).status_code == 200
    answer = relay.ask("POST", CLIENTS, relay.tokens["ward"], json={"name": "zoe", "role": "viewer"})
    assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
    assert relay.ask("GET", "/v1/tasks/digits/page", answer.json()["token"]).status_code == 200
    assert relay.ask("GET", "/v1/tasks/other/page", answer.json()["token"]).status_code == 403


def test_the_command_refuses_what_it_should_not_send(relay, run):
    for arguments, at, words in (
        (["invite", "bob", "--task", "digits"], "http://relay.example.org", "over plain http"),
        (["invite", "bob", "--task", "digits"], "ftp://x", "must look like https://"),
        (["invite", "a/release", "--task", "digits"], None, "cannot name a client"),
        (["revoke", "alice/release", "--task", "digits"], None, "cannot name a client"),
        (["invite", "bob", "--task", "../x"], None, "cannot name a task"),
        (["invite", "bob", "--role", "admin"], None, "on the relay's machine only"),
        (["invite", "bob"], None, "and --task"),
        (["invite", "bob", "--task", "digits", "--db", "relay.db"], None, "leave --db"),
        (["invite", "bob", "--task", "nothing"], None, "there is no task 'nothing'"),
    ):
        said = run(*arguments, at=at, expect=2).err
        assert words in said, said
    assert "role is client" in run("invite", "bob", "--task", "digits", holder="alice", expect=2).err
    assert relay.ask("GET", "/v1/me", relay.tokens["alice"]).status_code == 200


def test_a_relay_without_tokens_invites_nobody(tmp_path):
    with start_open_relay(tmp_path) as relay:
        assert relay.ask("POST", CLIENTS, json={"name": "mallory"}).status_code == 403


def test_metrics_need_a_viewers_or_admins_token_unless_they_are_public(relay, tmp_path):
    answers = {who: relay.ask("GET", "/metrics", relay.tokens.get(who)).status_code for who in (*relay.tokens, "none")}
    assert answers == {"root": 200, "ward": 200, "elsewhere": 200, "viewer": 200, "alice": 403, "none": 401}
    prepare("relay", "tasks", "create", "digits", "--classes", 2, "--dimension", 2, cwd=tmp_path)
    with start_relay(tmp_path, "--public-metrics") as other:
        assert "repshare_request_seconds" in other.ask("GET", "/metrics").text
        with socket.create_connection(("127.0.0.1", other.port)) as https:
            https.sendall(bytes.fromhex("16030100a5010000a10303") + bytes(160))  # TLS's first message
            https.recv(1000)
        line = other.logged(event="invalid request")
        assert line["address"] == "127.0.0.1"
        assert "TLS on a port without TLS" in line["reason"]
