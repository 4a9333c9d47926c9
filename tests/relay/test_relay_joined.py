"""Relays that are joined: what each may do at the other, and what does not leave a relay. A tree: test_relay_tree."""

import signal

import numpy as np

from repshare.relay.tasks import Tasks
from repshare.sharing import wire
from repshare.sharing.joined import Total
from repshare.stores import open_database
from support.processes import Process, eventually
from support.relays import create_task, invite, release, repshare, start_open_relay, start_relay


def make_total(number=2):
    sums = np.array([[2**32] * 8 + [20, 20, 4]], np.int64)
    return wire.encode_total(Total(1, np.array([0]), sums, np.array([number], np.uint64)))


def test_totals_are_for_relays_and_releases_for_clients(tmp_path):
    create_task(tmp_path)
    tokens = {role: invite(tmp_path, role, "--task", "digits", "--role", role) for role in ("client", "relay")}
    with start_relay(tmp_path) as relay:
        ask, path = relay.ask, "/v1/tasks/digits/relays/{}/total"
        assert relay.publish("client", make_total(), tokens["client"]).status_code == 422
        assert ask("PUT", path.format("client"), tokens["client"], content=make_total()).status_code == 403
        assert ask("GET", path.format("client"), tokens["client"]).status_code == 403
        assert relay.publish("relay", release(), tokens["relay"]).status_code == 403
        assert relay.teacher(tokens["relay"]).status_code == 403
        assert ask("PUT", path.format("client"), tokens["relay"], content=make_total()).status_code == 403
        assert ask("PUT", path.format("relay"), tokens["relay"], content=release()).status_code == 400
        assert ask("PUT", path.format("relay"), tokens["relay"], content=make_total()).status_code == 200
        assert relay.publish("client", release(), tokens["client"]).status_code == 200
        got = ask("GET", path.format("relay"), tokens["relay"])
        assert wire.decode_total(got.content).sums[:, -1].tolist() == [1, 1], "only the other one's"
        known = {"If-None-Match": got.headers["ETag"]}
        assert ask("GET", path.format("relay"), tokens["relay"], headers=known).status_code == 304
        assert ask("DELETE", path.format("relay"), tokens["relay"]).status_code == 200
        assert ask("GET", "/v1/tasks/digits/status", tokens["client"]).json()["clients"] == 1


def taught(relay):
    """The classes that a client learns there."""
    return wire.decode_teacher(relay.teacher(client="bob").content).means.labels.tolist()


def test_what_fewer_clients_share_than_they_agreed_on_does_not_go_upstream(tmp_path):
    (tmp_path / "leaf").mkdir()
    create_task(tmp_path / "leaf")
    database = open_database(str(tmp_path / "leaf" / "relay.db"))
    board = Tasks(database).get("digits").board
    with start_open_relay(tmp_path) as root:
        join = ("relay", "uplink", root.url, "--name", "leaf", "--task", "digits", "--every", 0.05)
        uplink = Process(*join, cwd=tmp_path / "leaf", name="uplink")
        try:
            for number in range(3):
                board.accept(f"client {number}", release(classes=(0, 1) if number else (0,)))
            eventually(lambda: taught(root) == [0], "upstream knows the class of three")
            board.withdraw("client 0")
            eventually(lambda: taught(root) == [], "upstream knows nothing")
        finally:
            uplink.stop(signal.SIGTERM)
            database.close()


def test_tasks_that_differ_are_not_joined(tmp_path):
    (tmp_path / "leaf").mkdir()
    create_task(tmp_path / "leaf", "digits", "--classes", 10, "--dimension", 8, "--no-weighted")
    with start_open_relay(tmp_path) as root:
        join = ("relay", "uplink", root.url, "--name", "leaf", "--task", "digits")
        told = repshare(*join, cwd=tmp_path / "leaf", expect=2)
    assert "the tasks cannot be joined: weighted False here, True upstream" in told
