"""Releases and meetings age while a relay runs, whatever the clock on the wall says: real relays under wrong clocks."""

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


def is_ahead(relay, name):
    assert there(relay)[name]["published"] > time.time() + YEAR / 2, "the clock was not wrong"


@pytest.mark.parametrize("place", ["sqlite", "redis"])
def test_a_clock_that_was_once_ahead_does_not_stop_releases_from_growing_old(tmp_path, clock, place, request):
    where = ("--db", request.getfixturevalue("redis_url")) if place == "redis" else ("--db", "relay.db")
    clock(YEAR)
    with start_relay(tmp_path, *where, *TASK) as relay:
        relay.publish("early", release())
        is_ahead(relay, "early")
    clock(0)
    with start_relay(tmp_path, *where, *TASK) as relay:
        relay.publish("right", release())
        assert set(there(relay)) == {"early", "right"}
        gone(relay, "early", "right")


def test_a_clock_that_is_set_while_a_relay_runs_neither_stops_nor_hastens_anything(tmp_path, clock):
    with start_relay(tmp_path, *TASK[:-1], 10) as relay:
        begun = time.monotonic()
        relay.publish("silent", release())
        round = 1
        for wrong in (YEAR, 0, -YEAR, YEAR, 0):
            clock(wrong)
            relay.publish("busy", release(round := round + 1))
            time.sleep(1.3)  # a look for old releases or two
            assert time.monotonic() - begun > 10 or set(there(relay)) == {"silent", "busy"}
        assert there(relay)["busy"]["published"] < time.time() + YEAR / 2
        gone(relay, "silent", "busy")
        assert time.monotonic() - begun > 10


def test_a_clock_that_is_wrong_after_a_restart_forgets_nobody_early(tmp_path, clock):
    task = (*TASK[:-1], 3600)
    with start_relay(tmp_path, *task) as relay:
        relay.publish("alice", release())
    for wrong in (YEAR, -YEAR):
        clock(wrong)
        with start_relay(tmp_path, *task) as relay:
            time.sleep(2.5)
            assert set(there(relay)) == {"alice"}


def test_the_time_that_relays_ran_adds_up(tmp_path, clock):
    """Killed and started again, a relay goes on counting where it was."""
    lives = 0
    with start_relay(tmp_path, *TASK) as relay:
        relay.publish("alice", release())
    while lives < 20:
        with start_relay(tmp_path, *TASK) as relay:
            if not there(relay):
                break
            time.sleep(2.6)
            relay.stop()
        lives += 1
    assert 1 <= lives < 20


def test_a_step_of_a_meeting_ends_in_time_though_the_clock_is_set_back(tmp_path, clock):
    members = {"members": ["alice", "bob"]}

    def number(relay):
        return relay.ask("GET", "/v1/tasks/digits/meetings", params=members).json()["number"]

    with start_relay(tmp_path, *TASK) as relay:
        clock(7200)
        asked = {**members, "patience": 2}
        said = relay.ask("PUT", "/v1/tasks/digits/meetings/1/0/clients/alice", params=asked, content=b"hello")
        assert said.status_code == 200, said.text
        assert number(relay) == 1
        clock(0)
        eventually(lambda: number(relay) == 2, "the first meeting is over")
        clock(YEAR)
        asked = {**members, "patience": 500}
        relay.ask("PUT", "/v1/tasks/digits/meetings/2/0/clients/alice", params=asked, content=b"hello")
        for wrong in (2 * YEAR, 0):
            clock(wrong)
            assert number(relay) == 2, "nor is it over early"


def test_a_client_that_was_seen_by_a_clock_ahead_is_not_online_for_ever(tmp_path, clock):
    clock(YEAR)
    with start_relay(tmp_path, *TASK[:-2], "--away-seconds", 2) as relay:
        relay.publish("alice", release())

        def online():
            return json.loads(relay.ask("GET", "/v1/tasks/digits/page").content)["members"][0]["online"]

        eventually(online, "alice is online")
        clock(0)
        eventually(lambda: not online(), "alice is away")
