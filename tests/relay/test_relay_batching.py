"""Batches: what waits goes to a thread together, what need not wait is done before that."""

import asyncio
import threading

from repshare.relay.batching import QUICK_BYTES, Batcher


class Doubler:
    """Doubles numbers, and notes how."""

    def __init__(self, prepares=True):
        self.prepares, self.prepared, self.finished, self.done = prepares, [], [], []

    def do(self, numbers):
        self.done.append(list(numbers))
        return [2 * number for number in numbers]

    def prepare(self, numbers):
        if not self.prepares:
            raise ZeroDivisionError("not now")
        self.prepared.append((list(numbers), threading.current_thread()))

        def finish():
            self.finished.append(threading.current_thread())
            return [2 * number for number in numbers]

        return finish


def double(doubler, sizes):
    async def all_of_them():
        batcher = Batcher()
        waiting = [batcher.do(doubler.do, n, size, doubler.prepare) for n, size in enumerate(sizes)]
        return await asyncio.wait_for(asyncio.gather(*waiting), 10)

    return asyncio.run(all_of_them())


def test_a_batch_is_prepared_in_the_event_loop_and_finished_by_a_thread():
    doubler = Doubler()
    assert double(doubler, [0] * 5) == [0, 2, 4, 6, 8]
    assert doubler.prepared == [([0, 1, 2, 3, 4], threading.main_thread())]
    assert threading.main_thread() not in doubler.finished
    assert doubler.done == []


def test_what_cannot_be_prepared_is_done_by_the_thread_whatever_the_error():
    doubler = Doubler(prepares=False)
    assert double(doubler, [0] * 3) == [0, 2, 4]
    assert doubler.done == [[0, 1, 2]]


def test_what_takes_long_is_not_prepared_and_batches_that_are_stay_short():
    doubler = Doubler()
    half = QUICK_BYTES // 2
    assert double(doubler, [half, half, half, QUICK_BYTES + 1]) == [0, 2, 4, 6]
    assert [numbers for numbers, _ in doubler.prepared] == [[0, 1], [2]]
    assert doubler.done == [[3]]
