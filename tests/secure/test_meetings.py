"""Meetings: a step ends when all are there or time is up, then never changes; and nothing piles up."""

import pytest

from repshare.errors import Refused
from repshare.secure import meetings
from repshare.secure.meetings import KEPT, MOST_GROUPS, MOST_OPENED, STEPS, Meetings
from repshare.stores import open_database

GROUP = ("alice", "bob", "carol")


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture(params=["memory", "sqlite", "redis"])
def kept(request, tmp_path):
    """Meetings over each kind of store, and their clock."""
    clock = Clock()
    places = {"memory": lambda: "memory", "sqlite": lambda: str(tmp_path / "relay.db")}
    place = places.get(request.param, lambda: request.getfixturevalue("redis_url"))()
    database = open_database(place)
    yield Meetings(database.store("meetings"), clock), clock
    database.close()


def put(place, name, step=0, number=1, body=None, members=GROUP):
    place.put(members, number, step, name, body or f"{name} {step}".encode(), 10.0)


def test_a_step_is_over_when_everyone_has_said_something(kept):
    place, _ = kept
    for name in GROUP:
        assert place.get(GROUP, 1, 0) is None
        put(place, name)
    assert place.get(GROUP, 1, 0) == {name: f"{name} 0".encode() for name in GROUP}
    assert place.get(("carol", "alice", "bob"), 1, 0) is not None, "the order of names says nothing"


def test_time_ends_a_step_and_who_was_missing_is_out(kept):
    place, clock = kept
    put(place, "alice")
    put(place, "bob")
    clock.now += 9.9
    assert place.get(GROUP, 1, 0) is None
    clock.now += 0.2
    assert sorted(place.get(GROUP, 1, 0)) == ["alice", "bob"]
    with pytest.raises(Refused, match="step 0 of meeting 1 is over"):
        put(place, "carol")
    with pytest.raises(Refused, match="continued without carol"):
        put(place, "carol", 1)
    put(place, "alice", 1)
    put(place, "bob", 1)
    assert sorted(place.get(GROUP, 1, 1)) == ["alice", "bob"], "nobody waits for one who is out"


def test_a_message_that_comes_too_late_is_refused_also_if_nobody_has_looked(kept):
    place, clock = kept
    put(place, "alice")
    clock.now += 10
    with pytest.raises(Refused, match="is over"):
        put(place, "bob")
    assert sorted(place.get(GROUP, 1, 0)) == ["alice"]


def test_the_same_again_changes_nothing_and_something_else_is_refused(kept):
    place, _ = kept
    for name in GROUP:
        put(place, name)
    put(place, "alice")
    with pytest.raises(Refused, match="another message"):
        put(place, "alice", body=b"other")
    assert place.get(GROUP, 1, 0)["alice"] == b"alice 0"


def test_steps_come_one_after_the_other(kept):
    place, _ = kept
    put(place, "alice")
    with pytest.raises(Refused, match="step 0 is not over"):
        put(place, "alice", 1)
    with pytest.raises(Refused, match="steps are 0 to 1"):
        put(place, "alice", 5)


def test_strangers_and_odd_groups_stay_out(kept):
    place, _ = kept
    with pytest.raises(Refused, match="eve is not in the group"):
        put(place, "eve")
    for members in (("alice",), ("alice", "alice"), tuple(map(str, range(101)))):
        with pytest.raises(Refused, match="different members"):
            place.number(members)


def test_one_comes_to_the_meeting_that_has_not_begun_without_one(kept):
    place, clock = kept
    assert place.number(GROUP) == 1
    put(place, "alice")
    assert place.number(GROUP) == 1
    with pytest.raises(Refused, match="next meeting is number 1, not 2"):
        put(place, "bob", number=2)
    clock.now += 10
    assert place.number(GROUP) == 2
    put(place, "bob", number=2)
    assert place.number(GROUP) == 2


def test_there_is_no_meeting_before_the_first(kept):
    """It would have been in no group's list, so that any number of groups could have kept something there."""
    place, _ = kept
    for number in range(MOST_OPENED + 2):
        with pytest.raises(Refused, match="next meeting is number 1, not 0"):
            put(place, "alice", number=0, members=("alice", f"nobody {number}"))
    assert dict(place.store.items()) == {}


def test_only_the_last_meetings_are_kept(kept):
    place, _ = kept
    sizes = []
    for number in range(1, 6):
        for step in range(STEPS):
            for name in GROUP:
                put(place, name, step, number)
        sizes.append(len(place.store.items()))
    assert sizes[KEPT - 1 :] == [sizes[KEPT - 1]] * (6 - KEPT)
    assert place.get(GROUP, 3, 0) is None
    assert place.get(GROUP, 4, 0) is not None


def test_a_group_that_was_forgotten_does_not_count_from_one_again():
    """Its members would refuse to come: they take part in no meeting twice."""
    clock = Clock()
    place = Meetings(clock=clock)
    for number in (1, 2):
        put(place, "alice", number=number)
        clock.now += 10
    clock.now += meetings.IDLE_SECONDS
    put(place, "eve", members=("eve", "fay"))
    assert place.number(GROUP) == 3
    put(place, "alice", number=3)
    assert place.number(("gil", "eve")) == 3, "new ones may as well begin there"


def test_groups_that_meet_no_more_make_room_for_others(monkeypatch):
    monkeypatch.setattr(meetings, "MOST_GROUPS", 3)
    clock = Clock()
    place = Meetings(clock=clock)
    for other in "bcd":
        put(place, other, members=("alice", other))
    with pytest.raises(Refused, match="groups of this task"):
        put(place, "alice", members=("alice", "e"))
    clock.now += meetings.IDLE_SECONDS + 1
    put(place, "alice", members=("alice", "e"))
    assert len(place.store.items()) == 5, "the list, a number, and three keys of the one group that is left"
    assert MOST_GROUPS > 3


def test_one_client_cannot_open_groups_until_nobody_else_can(kept):
    place, clock = kept
    put(place, "alice", members=("alice", "mallory"))
    for number in range(MOST_OPENED):
        put(place, "mallory", members=("mallory", f"nobody {number}"))
    with pytest.raises(Refused, match=f"{MOST_OPENED} groups that mallory opened meet already"):
        put(place, "mallory", members=("mallory", "alice", "bob"))
    put(place, "mallory", members=("alice", "mallory"))  # which alice opened
    put(place, "alice", members=("mallory", "alice", "bob"))
    clock.now += 10
    put(place, "mallory", members=("mallory", "nobody 0"), number=2)
    clock.now += meetings.IDLE_SECONDS
    put(place, "mallory", members=("mallory", "one more"))
