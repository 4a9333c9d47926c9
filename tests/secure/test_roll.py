"""Who meets next in a masked group."""

import pytest

from repshare.errors import Refused
from repshare.secure import STEPS, Meetings, Roll

INVITED = ("alice", "bob", "carol", "dave")


class Relay:
    """A roll with a clock, whose members ask each with a call of its own."""

    def __init__(self):
        self.now, self.calls = 1000.0, {}
        self.meetings = Meetings(clock=lambda: self.now)
        self.roll = Roll(self.meetings, 3)

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
        return self.roll.call(name, name, call, base, company, invited=INVITED, patience=60.0)

    def meet(self, *names, steps=STEPS):
        number = self.meetings.number(names)
        for step in range(steps):
            for name in names:
                self.meetings.put(names, number, step, name, b"", 60.0)


@pytest.fixture
def relay():
    return Relay()


def test_the_first_meeting_waits_for_all_who_are_invited_but_not_for_ever(relay):
    three = INVITED[:3]
    assert relay.gather(*three, seconds=55)["alice"] == ({}, [*three], [], "")
    assert set(relay.gather(*three, seconds=10)["alice"].members) == set(three)


def test_the_same_call_has_the_same_answer(relay):
    relay.gather(*INVITED[:3])
    answers = [relay.roll.call("dave", "dave", "0", "", 1, invited=INVITED, patience=60.0) for _ in range(2)]
    assert answers[0] == answers[1]
    assert set(answers[0].members) == set(INVITED)


def test_one_that_stays_away_is_not_ready_any_more(relay):
    relay.ask("alice")
    relay.ask("bob")
    relay.now += 11
    assert relay.ask("carol").ready == ["carol"]
    assert relay.roll.ready() == ["carol"]


def test_after_a_loss_the_rest_wait_for_nobody_and_begin_from_the_total_that_all_know(relay):
    relay.gather(*INVITED)
    relay.meet(*INVITED)
    relay.gather(*INVITED, base="aa")
    relay.meet(*INVITED, steps=1)
    for name in INVITED[:3]:
        relay.meetings.put(INVITED, 2, 1, name, b"", 60.0)
    relay.now += 61  # dave is late
    found = relay.gather(*INVITED[:3], base="aa")["bob"]
    assert (set(found.members), found.base, found.newcomers) == (set(INVITED[:3]), "aa", [])
    relay.meet(*INVITED[:3])
    relay.ask("dave", base="aa")
    found = relay.gather(*INVITED, base="bb")["dave"]
    assert (set(found.members), found.base, found.newcomers) == (set(INVITED), "", []), "no part need be kept"


def test_those_who_know_different_totals_make_a_new_one(relay):
    relay.gather(*INVITED)
    relay.meet(*INVITED)
    found = relay.gather("alice", "bob", "carol", seconds=65, base="aa")["bob"]
    assert (set(found.members), found.base) == (set(INVITED[:3]), "aa")
    relay.meet(*INVITED[:3])
    relay.ask("alice", base="cc")
    relay.ask("bob", base="cc")
    found = relay.ask("carol", base="dd")
    assert (set(found.members), found.base) == (set(INVITED[:3]), "")


def test_newcomers_wait_until_they_are_as_many_as_they_want(relay):
    relay.gather(*INVITED)
    relay.meet(*INVITED)
    relay.gather("erin", base="", company=2)
    assert relay.roll.ready() == [], "nobody needs to come for erin alone"
    found = relay.gather(*INVITED, base="aa")["alice"]
    assert (set(found.members), found.newcomers) == (set(INVITED), [])
    relay.meet(*INVITED)
    relay.gather("erin", "frank", company=2)
    assert relay.roll.ready() == ["erin", "frank"]
    found = relay.gather(*INVITED, base="aa")["alice"]
    assert (set(found.members), found.newcomers) == ({*INVITED, "erin", "frank"}, ["erin", "frank"])


def test_a_first_meeting_that_one_left_in_the_middle_has_no_total_to_wait_for_company_with(relay):
    relay.gather(*INVITED)
    relay.meet(*INVITED, steps=1)
    for name in INVITED[:3]:
        relay.meetings.put(INVITED, 1, 1, name, b"", 60.0)
    relay.now += 61
    relay.gather("erin", company=2)
    assert relay.roll.ready() == ["erin"]


def test_another_key_of_a_name_is_refused(relay):
    relay.ask("alice")
    with pytest.raises(Refused, match="alice is known here by the key alice, not another: put its state folder back"):
        relay.roll.call("alice", "another", "1", "", 1, invited=INVITED, patience=60.0)
