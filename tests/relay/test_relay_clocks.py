"""A wall clock that is wrong delays or hastens, and stops nothing: real relays under wrong clocks."""

import json
import time

import pytest

from support.clocks import YEAR, WrongClock
from support.processes import eventually
from support.relays import release, start_relay

TASK = ("--insecure", "--task", "digits", "--classes", 10, "--dimension", 8, "--max-age", 4)


@pytest.fixture
def clock(tmp_path, monkeypatch):
    """Sets the wall clock of processes that are started from now on, and of those that run."""
    wrong = WrongClock(tmp_path)
    for name, value in wrong.environment.items():
        monkeypatch.setenv(name, value)
    return wrong.set


def there(relay):
    return {member["name"]: member for member in relay.ask("GET", "/v1/tasks/digits/status").json()["shown"]}


def gone(relay, *names):
    eventually(lambda: not there(relay).keys() & set(names), f"{names} are forgotten")


@pytest.mark.parametrize("place", ["sqlite", "redis"])
def test_releases_grow_old_also_while_no_relay_runs(tmp_path, place, request):
    where = ("--db", request.getfixturevalue("redis_url")) if place == "redis" else ("--db", "relay.db")
    with start_relay(tmp_path, *where, *TASK) as relay:
        relay.publish("early", release())
        assert set(there(relay)) == {"early"}
    time.sleep(4.6)
    with start_relay(tmp_path, *where, *TASK) as relay:
        relay.publish("fresh", release())
        gone(relay, "early")
        assert set(there(relay)) == {"fresh"}
        gone(relay, "fresh")


def test_a_clock_that_jumps_ahead_hastens_once_and_one_that_is_set_back_forgets_nobody(tmp_path, clock):
    with start_relay(tmp_path, *TASK[:-1], 3600) as relay:
        relay.publish("silent", release())
        clock(-YEAR)
        relay.publish("busy", release())
        time.sleep(2.5)  # two looks for old releases
        assert set(there(relay)) == {"silent", "busy"}
        assert there(relay)["busy"]["published"] < time.time() - YEAR / 2, "the clock was not wrong"
        clock(0)
        gone(relay, "busy")
        assert set(there(relay)) == {"silent"}
        relay.publish("busy", release())
        time.sleep(1.5)
        assert set(there(relay)) == {"silent", "busy"}


def test_a_release_of_a_day_to_come_is_replaced_and_dated_anew(tmp_path, clock):
    clock(YEAR)
    with start_relay(tmp_path, *TASK) as relay:
        for name in ("new", "same"):
            relay.publish(name, release())
        assert there(relay)["new"]["published"] > time.time() + YEAR / 2, "the clock was not wrong"
        clock(0)
        relay.publish("new", release(2))
        relay.publish("same", release())
        gone(relay, "new", "same")


def test_a_client_that_was_seen_by_a_clock_ahead_is_not_online_for_ever(tmp_path, clock):
    clock(YEAR)
    with start_relay(tmp_path, *TASK[:-2], "--away-seconds", 2) as relay:
        relay.publish("alice", release())

        def online():
            return json.loads(relay.ask("GET", "/v1/tasks/digits/status").content)["shown"][0]["online"]

        eventually(online, "alice is online")
        clock(0)
        eventually(lambda: not online(), "alice is away")
