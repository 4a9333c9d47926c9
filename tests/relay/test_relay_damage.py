"""A relay whose stored values are damaged while it runs: who is concerned, what is told, and how it is put right."""

import json

import pytest

from repshare.relay.auth import Access, Grant
from repshare.relay.tasks import Tasks
from repshare.stores import open_database
from support.damage import Vandal
from support.processes import eventually
from support.relays import create_task, invite, release, repshare, start_relay

NAMES = ("alice", "bob", "carol")


@pytest.fixture
def vandal(tmp_path):
    """Damages values of tmp_path's relay.db."""
    database = open_database(str(tmp_path / "relay.db"))

    def of(kind, task="digits"):
        name = kind if kind == "access" else f"{kind}:{task}:{Tasks(database).get(task).entry.identity}"
        return Vandal(database, name)

    yield of
    database.close()


@pytest.fixture
def served(tmp_path):
    """A relay with three clients that have published, and their tokens; root may do everything."""
    create_task(tmp_path, "digits", "--classes", 10, "--dimension", 8, "--max-age", 3600)
    tokens = {name: invite(tmp_path, name, "--task", "digits") for name in NAMES}
    tokens["root"] = invite(tmp_path, "root", "--role", "admin")
    with start_relay(tmp_path) as relay:
        for name in NAMES:
            assert relay.publish(name, release(), tokens[name]).status_code == 200
        yield relay, tokens


def withdraw(relay, name, token):
    return relay.ask("DELETE", f"/v1/tasks/digits/clients/{name}/release", token)


ASKED = {
    "publish": lambda relay, tokens: relay.publish("bob", release(2), tokens["bob"]),
    "withdraw": lambda relay, tokens: withdraw(relay, "bob", tokens["bob"]),
    "the admin withdraws": lambda relay, tokens: withdraw(relay, "bob", tokens["root"]),
    "status": lambda relay, tokens: relay.ask("GET", "/v1/tasks/digits/status", tokens["alice"]),
    "page": lambda relay, tokens: relay.ask("GET", "/v1/tasks/digits/page", tokens["root"]),
    "map": lambda relay, tokens: relay.ask("GET", "/v1/tasks/digits/map", tokens["root"]),
    "teacher": lambda relay, tokens: relay.teacher(tokens["alice"], observations=10),
    "another publishes": lambda relay, tokens: relay.publish("carol", release(2), tokens["carol"]),
}
REPLACED = ("publish", "withdraw", "the admin withdraws")  # by what the relay remembers: these do not read the release


@pytest.mark.parametrize("asked", ASKED)
def test_a_flipped_bit_in_a_release_fails_nobodys_request(served, vandal, asked):
    relay, tokens = served
    vandal("task").flip("release/bob")
    answer = ASKED[asked](relay, tokens)
    assert answer.status_code == 200, answer.text
    assert relay.ask("GET", "/v1/tasks/digits/status?limit=10", tokens["root"]).json()["clients"] >= 2
    if asked in REPLACED:
        assert not Tasks(vandal("task").database).get("digits").board.find_faults()
        assert not [line for line in relay.log() if line["event"] == "stored values were damaged"]
    else:
        told = relay.logged(event="stored values were damaged")
        assert told["damaged"] == {"release/bob": "its checksum does not fit"}
        assert relay.logged(event="a store was repaired")["lost"] == ["the release of bob"]
    assert relay.publish("bob", release(9), tokens["bob"]).status_code == 200
    assert not [line for line in relay.log() if "traceback" in line]


def test_what_the_page_has_of_a_client_may_be_damaged(served, vandal):
    relay, tokens = served
    report = {"round": 1, "test_accuracy": 0.5}
    assert relay.ask("PUT", "/v1/tasks/digits/clients/bob/report", tokens["bob"], json=report).status_code == 200
    notes = vandal("notes")
    kept = notes.database.store(notes.name)
    eventually(lambda: kept.items().keys() >= {"frames", "traffic", "report/bob", "seen/bob"}, "notes are there")
    for key in kept.items():
        notes.flip(key)
        assert relay.ask("GET", "/v1/tasks/digits/page", tokens["root"]).status_code == 200
    assert relay.ask("GET", "/v1/tasks/digits/map", tokens["root"]).status_code == 200
    assert relay.ask("PUT", "/v1/tasks/digits/clients/bob/report", tokens["bob"], json=report).status_code == 200
    assert withdraw(relay, "bob", tokens["bob"]).status_code == 200


def test_damage_to_one_groups_meeting_ends_that_meeting(served, vandal):
    relay, tokens = served

    def say(name, *members, number):
        path = f"/v1/tasks/digits/meetings/{number}/0/clients/{name}"
        return relay.ask("PUT", path, tokens[name], params={"members": members, "patience": 60}, content=b"hello")

    def number(name, *members):
        asked = relay.ask("GET", "/v1/tasks/digits/meetings", tokens[name], params={"members": members})
        return asked.json()["number"]

    assert say("alice", "alice", "bob", number=1).status_code == 200
    assert say("carol", "bob", "carol", number=1).status_code == 200
    room = vandal("meetings")
    keys = [key for key in room.database.store(room.name).items() if key.endswith("/0/alice")]
    room.flip(keys[0])
    assert say("alice", "alice", "bob", number=1).status_code == 422, "there is no meeting 1 any more"
    assert number("alice", "alice", "bob") == 2
    assert number("bob", "bob", "carol") == 1
    assert say("bob", "bob", "carol", number=1).status_code == 200
    room.flip("groups")
    assert say("alice", "alice", "bob", number=2).status_code == 200
    assert number("bob", "bob", "carol") == 2
    room.flip("forgotten")
    assert number("carol", "carol", "alice") > 1_000_000
    assert say("carol", "carol", "alice", number=number("carol", "carol", "alice")).status_code == 200


def test_a_damaged_token_is_not_called_a_wrong_one_and_costs_its_holder_only(served, vandal, tmp_path):
    relay, tokens = served
    vandal("access").flip(f"token/{tokens['bob'].split('_')[1]}")
    eventually(lambda: relay.teacher(tokens["bob"]).status_code != 200, "the relay looks at the token again")
    assert relay.teacher(tokens["bob"]).status_code == 503
    assert relay.teacher(tokens["alice"]).status_code == 200
    again = invite(tmp_path, "bob", "--task", "digits", "--renew")
    assert relay.teacher(again).status_code == 200
    assert repshare("relay", "check", cwd=tmp_path) == ""


@pytest.mark.parametrize("renew", [True, False])
def test_a_token_ends_also_if_it_is_no_longer_known_whose_it_is(tmp_path, renew):
    database = open_database(str(tmp_path / "relay.db"))
    access = Access(database)
    token = access.invite(Grant("client", "bob", "digits"))
    Vandal(database, "access").flip('holder/["digits", "bob"]')
    if renew:
        access.invite(Grant("client", "bob", "digits"), renew=True)
    else:
        assert access.revoke("bob", "digits") == ("client", "bob", "digits")
    assert access.find_all([token])[0] is None
    assert access.find_faults() == {}
    access.revoke_all("digits")
    assert database.store("access").items() == {}
    database.close()


def test_everything_that_is_damaged_is_named_and_can_be_repaired(served, vandal, tmp_path):
    relay, tokens = served
    eventually(lambda: "traffic" in (notes := vandal("notes")).database.store(notes.name).items(), "notes are there")
    assert repshare("relay", "check", cwd=tmp_path) == ""
    relay.stop()
    vandal("task").flip("release/bob")
    vandal("task").flip("row/0/2")
    vandal("notes").flip("traffic")
    vandal("access").flip(f"token/{tokens['carol'].split('_')[1]}")
    told = repshare("relay", "check", cwd=tmp_path, expect=1)
    assert told == "repshare: 5 stored values are damaged: repshare relay check --repair\n"
    shown = repshare("relay", "check", "--repair", cwd=tmp_path).splitlines()
    assert shown == [
        'tokens: holder/["digits", "carol"]: there is no such token (repaired)',
        f"tokens: token/{tokens['carol'].split('_')[1]}: its checksum does not fit (repaired)",
        "task digits: release/bob: its checksum does not fit (repaired)",
        "task digits: row/0/2: its checksum does not fit (repaired)",
        "page of digits: traffic: its checksum does not fit (repaired)",
    ]
    assert json.loads(repshare("relay", "check", "--json", cwd=tmp_path)) == {"damaged": []}
    with start_relay(tmp_path) as again:
        there = again.ask("GET", "/v1/tasks/digits/status", tokens["root"]).json()
        assert {member["name"] for member in there["shown"]} == {"alice", "carol"}
