"""Group commit: what waits for one store shares a transaction, and each work is done whole or not at all."""

import asyncio

import numpy as np
import pytest

from repshare.board import Board
from repshare.board.votes import ACCEPTED
from repshare.errors import Damaged, Malformed, Outdated, Refused, RepshareError, StoreError
from repshare.relay.batching import BATCH_BYTES, Batcher
from repshare.sharing import wire
from repshare.sharing.representations import Release, nothing, stack
from repshare.sharing.task import Task
from repshare.stores import MemoryStore


class Counting(MemoryStore):
    """Counts transactions."""

    begun = 0

    def transact(self, work):
        self.begun += 1
        return super().transact(work)


def together(*works, sizes=None):
    """What becomes of each of these works, a pair of what runs it and itself."""

    async def all_of_them():
        batcher = Batcher()
        waiting = [batcher.do(*each, size) for each, size in zip(works, sizes or [0] * len(works), strict=True)]
        return await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)

    return asyncio.run(all_of_them())


def add(key, then=None):
    def work(state):
        (before,) = state.get([key])
        state.set({key: (before or b"") + b"1"})
        if then:
            raise then
        return len(before or b"") + 1

    return work


def test_works_for_one_store_share_a_transaction_and_see_each_other():
    store, other = Counting(), Counting()
    outcomes = together(*[(store.transact, add("n"))] * 5, (other.transact, add("n")), (store.read, lambda state: 7))
    assert outcomes == [1, 2, 3, 4, 5, 1, 7]
    assert (store.begun, other.begun) == (1, 1)


@pytest.mark.parametrize("error", [Refused("no"), Damaged("key", "torn")])
def test_a_work_that_is_refused_changes_nothing_and_the_others_are_done(error):
    store = MemoryStore()
    outcomes = together(*[(store.transact, each) for each in (add("a"), add("a", error), add("b"))])
    assert outcomes == [1, error, 1]
    assert store.items() == {"a": b"1", "b": b"1"}


@pytest.mark.parametrize("error", [StoreError("disk full"), ZeroDivisionError("a bug")])
def test_where_the_transaction_fails_everyone_is_told_and_nothing_is_kept(error):
    store = MemoryStore()
    assert together((store.transact, add("a")), (store.transact, add("b", error))) == [error] * 2
    assert store.items() == {}


def test_a_batch_takes_no_more_memory_than_it_may():
    store = Counting()
    half = BATCH_BYTES // 2
    assert together(*[(store.transact, add("n"))] * 4, sizes=[half, half, half, BATCH_BYTES + 1]) == [1, 2, 3, 4]
    assert store.begun == 3


def body(rows, round=1):
    return wire.encode_release(Release(round, stack(rows, 2), stack(rows, 2)))


def row(*vector, label=0, count=1):
    return np.array(vector, float), label, count


def test_releases_that_are_accepted_together_give_what_they_give_one_by_one():
    releases = [
        ("a", body([row(1, 0)])),
        ("b", body([row(9, 9, label=7)])),
        ("b", b"nonsense"),
        ("b", body([row(4, 3, count=2)])),
        ("a", body([row(2, 1, label=1)], round=2)),
        ("a", body([row(1, 0)])),
        ("b", body([row(4, 3, count=2)])),
    ]
    one, other = (Board(Task(3, 2), Counting(), clock=lambda: 0.0) for _ in range(2))
    outcomes = together(
        *[(one.store.transact, lambda state, each=each: one.accept_in(state, *each)) for each in releases]
    )
    for each, outcome in zip(releases, outcomes, strict=True):
        if isinstance(outcome, RepshareError):
            with pytest.raises(type(outcome)):
                other.accept(*each)
        else:
            assert (other.accept(*each), ACCEPTED) == outcome
    assert [type(outcome) for outcome in outcomes] == [tuple, Refused, Malformed, tuple, tuple, Outdated, tuple]
    assert one.store.items() == other.store.items()
    assert one.store.begun == 1


def test_a_full_task_counts_nothing_of_those_it_refuses():
    full = Board(Task(classes=2, dimension=1, norm_bound=2.0**20), key=b"secret")

    def work(number, count):
        rows = stack([(np.array([2.0**20]), 0, count)], 1)
        sent = wire.encode_release(Release(1, rows, nothing(1)))
        return full.store.transact, lambda state: full.accept_in(state, f"client {number}", sent)

    outcomes = together(*[work(number, count) for number, count in enumerate((600, 600, 5))])
    assert (outcomes[0], outcomes[2]) == ((1, ACCEPTED), (2, ACCEPTED))
    assert "full" in str(outcomes[1])
    assert not full.find_faults()
