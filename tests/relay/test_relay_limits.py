"""Rates and bodies: how much and how fast, to the byte and the second."""

import asyncio
from contextlib import ExitStack

import pytest
from starlette.requests import Request

from repshare.relay import limits
from repshare.relay.limits import ConnectionQuota, MemoryBudget, RateLimiter, read_body
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


def request_of(*parts, headers=(), pause=0.0):
    """A request whose body comes in these parts, and a list of those that were fetched."""
    fetched, waiting = [], list(parts)

    async def receive():
        await asyncio.sleep(pause)
        part = waiting.pop(0)
        fetched.append(part)
        return {"type": "http.request", "body": part, "more_body": bool(waiting)}

    return Request({"type": "http", "method": "PUT", "headers": list(headers)}, receive), fetched


def read(request, most=10, seconds=5.0):
    return asyncio.run(read_body(request, most, seconds))


def test_a_body_is_read_to_its_end():
    assert read(request_of(b"01234", b"56789")[0]) == b"0123456789"
    assert read(request_of(b"")[0]) == b""


def test_a_body_that_announces_too_much_is_not_read_at_all():
    request, fetched = request_of(b"0", headers=[(b"content-length", b"11")])
    with pytest.raises(Problem, match="a body of 11 bytes; at most 10 are accepted") as refused:
        read(request)
    assert (refused.value.status, fetched) == (413, [])


def test_a_body_that_does_not_announce_itself_is_read_only_so_far():
    request, fetched = request_of(*[b"01234"] * 1000)
    with pytest.raises(Problem, match="longer than the 10 bytes") as refused:
        read(request)
    assert (refused.value.status, len(fetched)) == (413, 3)


def test_a_body_that_lies_about_its_length_is_read_only_so_far():
    request, fetched = request_of(*[b"01234"] * 1000, headers=[(b"content-length", b"5")])
    with pytest.raises(Problem):
        read(request)
    assert len(fetched) == 3


def test_a_body_that_dawdles_is_given_up():
    request, fetched = request_of(*[b"0"] * 10, pause=0.05)
    with pytest.raises(Problem, match=r"had not arrived after 0\.12 seconds") as refused:
        read(request, seconds=0.12)
    assert refused.value.status == 408
    assert len(fetched) < 4
