"""Rates and bodies: how much and how fast, to the byte and the second."""

from contextlib import ExitStack

import pytest

from repshare.relay import limits
from repshare.relay.limits import ConnectionQuota, MemoryBudget, RateLimiter
from repshare.relay.problems import Problem


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_a_bucket_gives_its_burst_and_then_its_rate():
    clock = Clock()
    rates = RateLimiter(2.0, 5.0, clock)
    assert [rates.take("a") for _ in range(6)] == [0, 0, 0, 0, 0, 0.5]
    clock.now += 0.25
    assert rates.take("a") == pytest.approx(0.25)
    clock.now += 0.25
    assert rates.take("a") == 0
    assert rates.take("a") > 0
    clock.now += 100  # no more than a burst is saved up
    assert [rates.take("a") > 0 for _ in range(6)] == [False] * 5 + [True]


def test_what_is_large_costs_more_and_may_leave_a_debt():
    clock = Clock()
    rates = RateLimiter(10.0, 20.0, clock)
    assert rates.take("a") == rates.take("a", 15) == 0
    assert rates.take("a", 5) == pytest.approx(0.1)
    assert [rates.take("a") for _ in range(4)] == [0] * 4
    clock.now += 2
    assert rates.take("a") == rates.take("a", 50) == 0  # a full bucket lets anything in
    assert rates.take("a") == pytest.approx(3.2)  # of 31 in debt, and the one
    clock.now += 3.1
    assert rates.take("a") == pytest.approx(0.1)
    clock.now += 0.2
    assert rates.take("a") == 0


def test_no_debt_takes_longer_than_ten_seconds_of_a_relays_rate():
    clock = Clock()
    rates = RateLimiter(10.0, 20.0, clock)
    assert rates.take("a", 1_000_000) == 0
    clock.now += 8.2
    assert rates.take("a") == 0


def test_everyone_has_a_bucket_of_their_own():
    rates = RateLimiter(1.0, 1.0, Clock())
    assert rates.take("a") == rates.take("b") == 0
    assert rates.take("a") > 0


def test_a_rate_of_0_is_no_limit():
    rates = RateLimiter(0, 0, Clock())
    assert not any(rates.take("a") for _ in range(1000))


def test_buckets_are_bounded(monkeypatch):
    monkeypatch.setattr(limits, "MOST_BUCKETS", 100)
    clock = Clock()
    rates = RateLimiter(1.0, 1.0, clock)
    for number in range(1000):
        clock.now += 0.5
        rates.take(number)
    assert len(rates._buckets) <= 100


def test_bodies_have_room_in_all_and_for_each(monkeypatch):
    monkeypatch.setattr(limits, "MEMORY_BYTES", 800)
    room = MemoryBudget(10)
    with ExitStack() as held:
        for name in "abcd":
            held.enter_context(room.hold(name))(150)
            take = held.enter_context(room.hold(name))
            take(50)
            with pytest.raises(Problem, match="more than 200 bytes under way with one token") as refused:
                take(1)
            assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "1"})
        with pytest.raises(Problem, match="more than 800 bytes under way") as refused, room.hold("e") as take:
            take(1)
        assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "1"})
    with room.hold("e") as take:
        take(200)
    assert not room._taken, "nothing piles up"
    with MemoryBudget(1000).hold("a") as take:
        take(2000)


def test_where_a_crowd_takes_too_much_the_largest_address_loses_its_oldest():
    crowd = ConnectionQuota(100)
    assert crowd.add("one", "a", 40) == crowd.add("first", "b", 30) == crowd.add("second", "b", 30) == []
    assert crowd.add("third", "b", 30) == ["first"]
    assert crowd.add("second", "b", 50) == ["third"], "it takes more, and is not counted twice"
    for each in ("one", "second", "never came"):
        crowd.remove(each)
    assert not crowd._taking
    assert not crowd._sizes, "nothing piles up"
    assert crowd.add("large", "a", 1000) == [], "one may be of any size"
