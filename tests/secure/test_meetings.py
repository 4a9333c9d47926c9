"""Meetings: who meets next in a masked group; a step is over when all have sent a message, or the meeting is."""

import pytest

from repshare.errors import Refused
from repshare.secure import STEPS, Meetings
from repshare.stores import open_database

INVITED = ("alice", "bob", "carol", "dave")


class Relay:
    """Meetings with a clock, whose members ask each with a call of its own."""

    def __init__(self, store=None):
        self.now, self.calls = 1000.0, {}
        self.meetings = Meetings(store, clock=lambda: self.now)

    def gather(self, *names, seconds=0, **how):
        """All ask every five seconds, for so many seconds, and then once more: what each hears last."""
        for wait in [5] * (seconds // 5) + [0]:
            for name in names:
                self._call(name, **how)
            self.now += wait
        return {name: self.ask(name, **how) for name in names}

    def ask(self, name, **how):
        found = self._call(name, **how)
        if found.members:
            self.calls[name] = self.calls.get(name, 0) + 1
        return found

    def _call(self, name, *, base="", company=1):
        call = f"{self.calls.get(name, 0):x}"
        return self.meetings.call(name, name, call, base, company, invited=INVITED, patience=60.0)

    def put(self, name, step=0, number=1, body=None):
        self.meetings.put(name, number, step, body or f"{name} {step}".encode())

    def meet(self, *names, number=1, steps=STEPS):
        for step in range(steps):
            for name in names:
                self.put(name, step, number)


@pytest.fixture
def relay():
    return Relay()


@pytest.fixture(params=["memory", "sqlite", "redis"])
def kept(request, tmp_path):
    """Meetings over each kind of store, of all who are invited."""
    places = {"memory": lambda: "memory", "sqlite": lambda: str(tmp_path / "relay.db")}
    place = places.get(request.param, lambda: request.getfixturevalue("redis_url"))()
    database = open_database(place)
    made = Relay(database.store("meetings"))
    made.gather(*INVITED)
    yield made
    database.close()


def test_a_step_is_over_when_everyone_has_sent_a_message(kept):
    for name in INVITED:
        assert kept.meetings.get("alice", 1, 0) is None
        kept.put(name)
    assert kept.meetings.get("dave", 1, 0) == {name: f"{name} 0".encode() for name in INVITED}


def test_time_ends_a_meeting_and_names_who_was_missing(kept):
    for name in INVITED[:3]:
        kept.put(name)
    kept.now += 59
    assert kept.meetings.get("alice", 1, 0) is None
    kept.now += 2
    for ask in (lambda: kept.meetings.get("alice", 1, 0), lambda: kept.put("dave")):
        with pytest.raises(Refused, match=r"sent nothing in step 0 of meeting 1|is over"):
            ask()


def test_the_same_again_changes_nothing_and_something_else_is_refused(kept):
    kept.put("alice")
    kept.put("alice")
    with pytest.raises(Refused, match="alice has already sent another message in step 0"):
        kept.put("alice", body=b"other")


def test_steps_come_one_after_the_other_and_strangers_stay_out(kept):
    kept.put("alice")
    for step, words in ((1, "step 0 is not over yet"), (STEPS, "steps are 0 to 2")):
        with pytest.raises(Refused, match=words):
            kept.put("alice", step)
    for name, number in (("eve", 1), ("alice", 2), ("alice", 0)):
        for ask in (lambda name=name, number=number: kept.put(name, number=number),
                    lambda name=name, number=number: kept.meetings.get(name, number, 0)):  # fmt: skip
            with pytest.raises(Refused, match=f"meeting {number} is over, or continued without {name}"):
                ask()


def test_only_the_last_meeting_is_kept(kept):
    for number in (1, 2):
        kept.meet(*INVITED, number=number)
        kept.gather(*INVITED)
    assert [key for key in kept.meetings.store.items() if key.startswith(("1/", "2/"))] == []
    assert kept.meetings.find_faults() == {}


def test_the_first_meeting_waits_for_all_who_are_invited_but_not_for_ever(relay):
    three = INVITED[:3]
    assert relay.gather(*three, seconds=55)["alice"] == (0, {}, [*three], [], "", {})
    assert set(relay.gather(*three, seconds=10)["alice"].members) == set(three)


def test_the_same_call_has_the_same_answer(relay):
    relay.gather(*INVITED[:3])
    answers = [relay.meetings.call("dave", "dave", "0", "", 1, invited=INVITED, patience=60.0) for _ in range(2)]
    assert answers[0] == answers[1]
    assert set(answers[0].members) == set(INVITED)


def test_one_that_stays_away_is_not_ready_any_more(relay):
    relay.ask("alice")
    relay.ask("bob")
    relay.now += 11
    assert relay.ask("carol").ready == ["carol"]
    assert relay.meetings.ready() == ["carol"]


def test_after_a_loss_the_rest_wait_for_nobody_and_begin_from_the_total_that_all_know(relay):
    relay.gather(*INVITED)
    relay.meet(*INVITED)
    relay.gather(*INVITED, base="aa")
    relay.meet(*INVITED, number=2, steps=1)
    for name in INVITED[:3]:
        relay.put(name, 1, 2)
    relay.now += 61  # dave is late
    found = relay.gather(*INVITED[:3], base="aa")["bob"]
    assert (set(found.members), found.base, found.newcomers) == (set(INVITED[:3]), "aa", [])
    relay.meet(*INVITED[:3], number=3)
    relay.ask("dave", base="aa")
    found = relay.gather(*INVITED, base="bb")["dave"]
    assert (set(found.members), found.base, found.newcomers) == (set(INVITED), "", []), "no part need be kept"


def test_those_who_know_different_totals_make_a_new_one(relay):
    relay.gather(*INVITED)
    relay.meet(*INVITED)
    found = relay.gather("alice", "bob", "carol", seconds=65, base="aa")["bob"]
    assert (set(found.members), found.base) == (set(INVITED[:3]), "aa")
    relay.meet(*INVITED[:3], number=2)
    relay.ask("alice", base="cc")
    relay.ask("bob", base="cc")
    found = relay.ask("carol", base="dd")
    assert (set(found.members), found.base) == (set(INVITED[:3]), "")


def test_newcomers_wait_until_they_are_as_many_as_they_want(relay):
    relay.gather(*INVITED)
    relay.meet(*INVITED)
    relay.gather("erin", base="", company=2)
    assert relay.meetings.ready() == [], "nobody needs to come for erin alone"
    found = relay.gather(*INVITED, base="aa")["alice"]
    assert (set(found.members), found.newcomers) == (set(INVITED), [])
    relay.meet(*INVITED, number=2)
    relay.gather("erin", "frank", company=2)
    assert relay.meetings.ready() == ["erin", "frank"]
    found = relay.gather(*INVITED, base="aa")["alice"]
    assert (set(found.members), found.newcomers) == ({*INVITED, "erin", "frank"}, ["erin", "frank"])


def test_another_key_of_a_name_is_refused(relay):
    relay.ask("alice")
    with pytest.raises(Refused, match="alice is known here by the key alice, not another: put its state folder back"):
        relay.meetings.call("alice", "another", "1", "", 1, invited=INVITED, patience=60.0)
