"""A party's rounds in a common space: improve while others do, then watch until somebody joins, leaves or changes."""

import time
from collections.abc import Generator, Iterator
from typing import Protocol

from repshare.client import Record
from repshare.errors import ExchangeError
from repshare.learning.common_learner import CommonLearner
from repshare.party.state import State

ROUNDS = 20  # after a change of who takes part: enough to come close to the classifier of all samples together
SLICE_SECONDS = 2.0  # of waiting, so that an interrupt is noticed
LATE_SECONDS = 6.0  # after which a round begins without the clients that have not published since the last one


class Watched(Protocol):
    """An exchange that tells when something was shared."""

    def others(self) -> int:
        """Return the number of other clients."""

    def news(self, since: int, wait: float) -> int:
        """Return a version, once it is not `since` any more or `wait` seconds have passed."""


def take_part_in_space(
    state: State, exchange: Watched, rounds: int | None = None, *, eval_every: int = 1
) -> Generator[Record | None]:
    """Yield round after round, up to round number `rounds`, and None now and then while there is nothing to do.

    A round begins when the others have published since the last one, or are late. After `ROUNDS` of them the client
    only watches, until the number of samples behind the total changes.
    """
    client, known, improved = state.client, _samples(state), 0
    while rounds is None or client.round_number < rounds:
        begun, released = _version(exchange), client.released
        record = state.play(test=(client.round_number + 1) % eval_every == 0 or client.round_number + 1 == rounds)
        yield record
        improved = improved + 1 if _samples(state) == known else 1
        known = _samples(state)
        if rounds is not None and client.round_number >= rounds:
            return
        if known is None or improved >= ROUNDS:
            yield from _watch(state, exchange)
        else:
            yield from _wait(exchange, begun + client.released - released)


def _version(exchange: Watched) -> int:
    try:
        return exchange.news(0, 0)
    except ExchangeError:  # the round will say so
        return 0


def _wait(exchange: Watched, since: int) -> Iterator[None]:
    """Wait until each of the others can have published once since this version, or some are late.

    It is the one before the round: those that publish during the round will not publish again before others do.
    """
    late = time.monotonic() + LATE_SECONDS
    try:
        version, others = max(exchange.news(0, 0), since), exchange.others()  # without a server, none is later
        while version < since + others and (left := late - time.monotonic()) > 0:
            version = exchange.news(version, min(SLICE_SECONDS, left))
            yield None
    except ExchangeError:  # the next round will say so
        time.sleep(SLICE_SECONDS)
        yield None


def _watch(state: State, exchange: Watched) -> Iterator[None]:
    """Wait until the number of samples behind the total is another one."""
    known, version = _samples(state), 0
    while _samples(state) == known:
        yield None
        try:
            seen = exchange.news(version, SLICE_SECONDS)
            if seen != version:
                state.refresh()
            version = seen
        except ExchangeError:
            time.sleep(SLICE_SECONDS)


def _samples(state: State) -> int | None:
    learner = state.client.learner
    total = learner.dual.total if isinstance(learner, CommonLearner) else None
    return None if total is None else total.samples
