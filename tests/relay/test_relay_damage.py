"""A relay whose stored values are damaged while it runs: who is refused, what is told, and how it is put right."""

import pytest

from repshare.relay.tasks import Tasks
from repshare.stores import open_database
from support.damage import garble
from support.processes import eventually
from support.relays import create_task, invite, release, repshare, start_relay

NAMES = ("alice", "bob", "carol")


@pytest.fixture
def stores(tmp_path):
    """The stores of tmp_path's relay.db, by kind."""
    database = open_database(str(tmp_path / "relay.db"))

    def of(kind, task="digits"):
        entry = Tasks(database).get(task).entry
        return database.store(kind if kind == "access" else f"{kind}:{task}:{entry.identity}")

    yield of
    database.close()


@pytest.fixture
def served(tmp_path):
    """A relay with three clients that have published, and their tokens."""
    create_task(tmp_path, "digits", "--classes", 10, "--dimension", 8, "--max-age", 3600)
    tokens = {name: invite(tmp_path, name, "--task", "digits") for name in NAMES}
    tokens["viewer"] = invite(tmp_path, "viewer", "--role", "viewer")
    with start_relay(tmp_path) as relay:
        for name in NAMES:
            assert relay.publish(name, release(), tokens[name]).status_code == 200
        yield relay, tokens


def withdraw(relay, name, token):
    return relay.ask("DELETE", f"/v1/tasks/digits/clients/{name}/release", token)


def damaged(answer, relay, key):
    """Whether this answer says that a value is damaged, and the log names it."""
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:repshare:problem:damaged")
    assert key not in answer.text, "names and keys are the operator's"
    return any(line.get("kind") == "damaged" and key in line["reason"] for line in relay.log())


def test_a_damaged_release_refuses_its_owner_and_nobody_else(served, stores):
    relay, tokens = served
    garble(stores("task"), "release/bob")
    assert damaged(relay.publish("bob", release(2), tokens["bob"]), relay, "release/bob")
    assert damaged(withdraw(relay, "bob", tokens["bob"]), relay, "release/bob")
    for name in ("alice", "carol"):
        assert relay.publish(name, release(2), tokens[name]).status_code == 200
        assert relay.teacher(tokens[name], observations=0).status_code == 200
    answer = relay.ask("GET", "/v1/tasks/digits/status", tokens["viewer"])
    assert answer.status_code == 200
    refusals = answer.json()["refusals"]
    assert {(each["client"], each["kind"]) for each in refusals} == {("bob", "damaged")}
    counted = relay.ask("GET", "/metrics", tokens["viewer"]).text
    assert 'repshare_refusals_total{kind="damaged"} 2.0' in counted
    assert not [line for line in relay.log() if "traceback" in line]


def test_a_damaged_report_refuses_the_page_until_the_next_one(served, stores):
    relay, tokens = served
    report = {"round": 1, "test_accuracy": 0.5}
    path = "/v1/tasks/digits/clients/bob/report"
    assert relay.ask("PUT", path, tokens["bob"], json=report).status_code == 200
    garble(stores("activity"), "report/bob")
    assert damaged(relay.ask("GET", "/v1/tasks/digits/status", tokens["viewer"]), relay, "report/bob")
    assert relay.publish("bob", release(2), tokens["bob"]).status_code == 200
    assert relay.ask("PUT", path, tokens["bob"], json=report).status_code == 200
    assert relay.ask("GET", "/v1/tasks/digits/status", tokens["viewer"]).status_code == 200


def test_a_damaged_token_is_not_called_a_wrong_one_and_costs_its_holder_only(served, stores, tmp_path):
    relay, tokens = served
    garble(stores("access"), f"token/{tokens['bob'].split('_')[1]}")
    eventually(lambda: relay.teacher(tokens["bob"]).status_code != 200, "the relay looks at the token again")
    assert relay.teacher(tokens["bob"]).status_code == 503
    assert relay.teacher(tokens["alice"]).status_code == 200
    again = invite(tmp_path, "bob", "--task", "digits")
    assert relay.teacher(again).status_code == 200
    assert "1 stored values are damaged" in repshare("relay", "check", cwd=tmp_path, expect=1)


def test_everything_that_is_damaged_is_named_and_a_backup_is_the_cure(served, stores, tmp_path):
    relay, tokens = served
    path = "/v1/tasks/digits/clients/alice/report"
    assert relay.ask("PUT", path, tokens["alice"], json={"round": 1}).status_code == 200
    assert repshare("relay", "check", cwd=tmp_path) == ""
    repshare("relay", "backup", "good.db", cwd=tmp_path)
    relay.stop()
    for kind, key in (("task", "release/bob"), ("task", "row/0/2"), ("activity", "report/alice")):
        garble(stores(kind), key)
    garble(stores("access"), f"token/{tokens['carol'].split('_')[1]}")
    told = repshare("relay", "check", cwd=tmp_path, expect=1)
    assert told == "repshare: 4 stored values are damaged: restore a backup (repshare relay restore)\n"
    assert "nothing was restored" in repshare(
        "relay", "restore", "relay.db", "--db", "other.db", cwd=tmp_path, expect=1
    )
    repshare("relay", "restore", "good.db", "--db", "cured.db", cwd=tmp_path)
    assert repshare("relay", "check", "--db", "cured.db", cwd=tmp_path) == ""
    with start_relay(tmp_path, "--db", "cured.db") as again:
        there = again.ask("GET", "/v1/tasks/digits/status", tokens["viewer"]).json()
        assert {member["name"] for member in there["shown"]} == set(NAMES)
