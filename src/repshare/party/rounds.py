"""A party's rounds: one after the other; or until they change little, and again when another client changes."""

import math
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress

from repshare.errors import ExchangeError
from repshare.exchange import Exchange
from repshare.party.grouping import gather
from repshare.party.state import OwnRecord, State

SLICE_SECONDS = 2.0  # of waiting, so that an interrupt is noticed
LATE_SECONDS = 6.0  # after which a round begins without the clients that have not published since the last one
GATHER_SECONDS = 0.005  # for each of the others, between two looks at what they have published
POLL_SECONDS = 0.5  # how soon a member takes part in a meeting that another one begins


def take_part(state: State, rounds: int | None = None) -> Generator[OwnRecord]:
    """Yield round after round, up to round number `rounds`; each is kept before it is yielded."""
    while rounds is None or state.client.round_number < rounds:
        yield state.play()


def take_part_until_settled(
    state: State,
    exchange: Exchange,
    rounds: int | None = None,
    *,
    settled: Callable[[], None] = lambda: None,
) -> Generator[OwnRecord | None]:
    """Yield round after round, up to round number `rounds`, and None now and then while there is nothing to do.

    A round begins when the others have published since the last one, or are late. After some of them the client
    calls `settled` and only watches, until the number of samples behind the total changes. A round without an
    exchange does not count.
    """
    client, progress = state.client, _Progress(state)
    before: int | None = None
    while not progress.ended(rounds):
        began, released = _version(exchange), client.released
        yield progress.play()
        if progress.ended(rounds):
            return
        if progress.failed:
            time.sleep(SLICE_SECONDS)
            yield None
        elif progress.known is None or progress.is_settled:
            if progress.known is not None:
                settled()
            yield from _watch(state, exchange)
            before = None
        else:
            came = None if before is None or progress.improved == 1 else began - before
            before = began + client.released - released  # the version if nobody else had published since then
            yield from _wait(exchange, before, came)


def take_part_in_group(
    state: State,
    group: Exchange,
    rounds: int | None = None,
    *,
    settled: Callable[[], None] = lambda: None,
    tell: Callable[[str], None] = lambda _: None,
) -> Generator[OwnRecord | None]:
    """Yield a round for every meeting, up to round number `rounds`, and None now and then while there is none.

    After some meetings of the same samples, a member calls `settled` and takes part only in meetings that another
    one begins.
    """
    progress = _Progress(state)
    while not progress.ended(rounds):
        yield from gather(state, group, tell)
        was_settled = progress.is_settled
        yield progress.play(meets=True)
        if progress.failed and not progress.ended(rounds):
            time.sleep(SLICE_SECONDS)
            yield None
        if progress.is_settled and not was_settled and not progress.ended(rounds):
            settled()
        while not progress.ended(rounds) and progress.is_settled and not _has_begun(group):
            time.sleep(POLL_SECONDS)
            yield None


class _Progress:
    """A client's rounds since the samples behind the total changed."""

    def __init__(self, state: State) -> None:
        self.state, self.known, self.improved, self.failed = state, state.client.learner.behind, 0, False

    def ended(self, rounds: int | None) -> bool:
        return rounds is not None and self.state.client.round_number >= rounds

    @property
    def is_settled(self) -> bool:
        """Whether more rounds would change little."""
        enough = self.state.client.learner.enough
        return enough is not None and self.improved >= enough

    def play(self, *, meets: bool = False) -> OwnRecord:
        record = self.state.play()
        self.failed = isinstance(self.state.client.trouble, ExchangeError)
        if meets and not self.failed:
            with suppress(ExchangeError):  # the round that follows will say so
                self.state.refresh()  # the total of this very meeting
        before, self.known = self.known, self.state.client.learner.behind
        if not self.failed:
            self.improved = self.improved + 1 if self.known == before else 1
        return record


def _version(exchange: Exchange) -> int:
    try:
        return exchange.wait(0, 0)
    except ExchangeError:  # the round that follows will say so
        return 0


def _wait(exchange: Exchange, since: int, came: int | None) -> Iterator[None]:
    """Wait until each of the others can have published once since this version, or some are late.

    `came` is how many did so in the last round, if that is known: those that are gone are late once.
    """
    late = time.monotonic() + LATE_SECONDS
    try:
        version, wanted = exchange.wait(0, 0), exchange.others() or 0
        if came is not None:
            wanted = max(1, min(wanted, came))
        while version < since + wanted and (left := late - time.monotonic()) > 0:
            version = exchange.wait(version, min(SLICE_SECONDS, left))
            yield None
            time.sleep(min(SLICE_SECONDS, GATHER_SECONDS * wanted))  # not every release should wake every client
    except ExchangeError:
        time.sleep(SLICE_SECONDS)
        yield None


def _watch(state: State, exchange: Exchange) -> Iterator[None]:
    """Wait until the number of samples behind the total is another one, and keep the last release from expiring."""
    known, version, renewed = state.client.learner.behind, 0, time.monotonic()
    max_age = state.membership.agreed.max_age or math.inf
    while state.client.learner.behind == known:
        yield None
        try:
            if time.monotonic() - renewed >= max_age / 4:
                state.renew()
                renewed = time.monotonic()
            seen = exchange.wait(version, SLICE_SECONDS)
            if seen != version:
                state.send_again()
                state.refresh()
            version = seen
        except ExchangeError:
            time.sleep(SLICE_SECONDS)


def _has_begun(group: Exchange) -> bool:
    try:
        return group.has_begun()
    except ExchangeError:
        return False
