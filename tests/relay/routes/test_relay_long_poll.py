"""Waiting for a change: woken by a change here or elsewhere, by the clock, or by the relay's end."""

import asyncio
import time
from contextlib import contextmanager

import pytest

from repshare.errors import StoreError
from repshare.relay import watch as module
from repshare.relay.watch import VersionWatch


class Counted:
    """A board's version, and how often it was looked at."""

    def __init__(self):
        self.version, self.looks, self.error = 1, 0, None

    async def look(self):
        self.looks += 1
        if self.error:
            raise self.error
        return self.version


def in_a_loop(test):
    def run():
        asyncio.run(asyncio.wait_for(test(VersionWatch(), Counted()), 20))

    return run


@contextmanager
def unwatched():
    """Nothing is noticed but what somebody tells."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "POLL_SECONDS", 15.0)
        yield


@in_a_loop
async def test_who_does_not_know_the_version_is_answered_at_once(watch, board):
    assert await watch.wait("t", 0, 60, board.look) == 1
    assert await watch.wait("t", 5, 60, board.look) == 1
    assert (watch.waiting, board.looks) == (0, 2)


@in_a_loop
async def test_a_change_here_wakes_everyone_at_once(watch, board):
    with unwatched():
        waiting = [asyncio.create_task(watch.wait("t", 1, 60, board.look)) for _ in range(100)]
        await asyncio.sleep(0.1)
    assert watch.waiting == 100
    board.version, begun, before = 2, time.monotonic(), board.looks
    watch.notify("t")
    assert await asyncio.gather(*waiting) == [2] * 100
    assert time.monotonic() - begun < 5
    assert board.looks - before <= 2  # one look for all of them
    assert watch.waiting == 0


@in_a_loop
async def test_a_change_elsewhere_is_noticed_soon(watch, board):
    waiting = asyncio.create_task(watch.wait("t", 1, 60, board.look))
    await asyncio.sleep(0.1)
    board.version = 2  # nobody tells
    assert await asyncio.wait_for(waiting, 2) == 2


@in_a_loop
async def test_one_who_waits_does_not_keep_the_store_busy(watch, board):
    assert await watch.wait("t", 1, 1.2, board.look) == 1
    assert board.looks <= 6


@in_a_loop
async def test_a_change_of_another_task_is_no_change(watch, board):
    waiting = asyncio.create_task(watch.wait("t", 1, 0.3, board.look))
    await asyncio.sleep(0.05)
    watch.notify("other")
    assert await waiting == 1


@in_a_loop
async def test_at_the_end_nobody_waits_any_longer(watch, board):
    waiting = asyncio.create_task(watch.wait("t", 1, 60, board.look))
    await asyncio.sleep(0.05)
    watch.stop()
    assert await asyncio.wait_for(waiting, 1) == 1
    assert await asyncio.wait_for(watch.wait("t", 1, 60, board.look), 1) == 1


@in_a_loop
async def test_who_waits_is_told_when_the_store_goes_away(watch, board):
    waiting = asyncio.create_task(watch.wait("t", 1, 60, board.look))
    await asyncio.sleep(0.05)
    board.error = StoreError("gone")
    with pytest.raises(StoreError):
        await asyncio.wait_for(waiting, 3)


@in_a_loop
async def test_nothing_runs_on_when_nobody_waits(watch, board):
    waiting = [asyncio.create_task(watch.wait("t", 1, 60, board.look)) for _ in range(3)]
    await asyncio.sleep(0.05)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    before = board.looks
    await asyncio.sleep(module.POLL_SECONDS + 0.2)
    assert board.looks == before
    assert not [task for task in asyncio.all_tasks() if "_watch" in repr(task)]
