"""A party in a masked group: what it brings, and what it does before each meeting."""

import time
from collections.abc import Callable, Generator, Iterator
from functools import partial

import numpy as np

from repshare.client import Client
from repshare.errors import ExchangeError
from repshare.exchange import Exchange
from repshare.party.state import OwnRecord, State
from repshare.secure import MOST_MEMBERS, newcomers_behind
from repshare.sharing.representations import Integers, may_share

PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 0.5


def count_shared(client: Client) -> Integers:
    """Return how many samples of each class a client shares."""
    learner = client.learner
    if learner.space is not None:
        return np.bincount(learner.space.model.labels, minlength=learner.classes)
    labels = client.samples.labels.numpy()
    counts = np.bincount(labels[may_share(labels, client.policy)], minlength=learner.classes)
    return np.where(counts >= client.policy.fewest, counts, 0)


def count_company(client: Client) -> int:
    """Return how many newcomers, with this client, must join at once, so that a difference of totals shows none."""
    for newcomers in range(1, MOST_MEMBERS):
        shown = client.exposure(partial(newcomers_behind, newcomers=newcomers))
        if shown is None or shown.allowed or client.policy.accept_exposure:
            return newcomers
    return MOST_MEMBERS


def gather(state: State, group: Exchange, tell: Callable[[str], None]) -> Iterator[None]:
    """Yield until it is known whom to meet, and they are enough; leave out classes that too few of them have."""
    client, told, pause = state.client, "", PAUSE_SECONDS
    while True:
        try:
            if group.gather():
                _hide(client, group.hidden, state.membership.agreed.class_members, tell)
                shown = client.exposure(group.behind)
                if shown is None or shown.allowed or client.policy.accept_exposure:
                    return
                group.wait_for_more()
                now = f"waiting for more members, or --accept-exposure: {shown}"
                pause = LONGEST_PAUSE_SECONDS
                if now != told:
                    tell(told := now)
        except ExchangeError as error:
            if (now := str(error)) != told:
                tell(told := now)
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        yield None


def take_part_masked(
    state: State, group: Exchange, rounds: int | None, *, eval_every: int, tell: Callable[[str], None]
) -> Generator[OwnRecord | None]:
    """Yield round after round of a client with a network, up to round number `rounds`, and None while it waits."""
    while rounds is None or state.client.round_number < rounds:
        yield from gather(state, group, tell)
        number = state.client.round_number + 1
        yield state.play(test=number % eval_every == 0 or number == rounds)


def _hide(client: Client, hidden: frozenset[int], fewest: int, tell: Callable[[str], None]) -> None:
    space = client.learner.space
    if space is not None and space.hidden != hidden:
        space.hide(hidden)
        names = space.agreement.class_names or range(space.classes)
        named = ", ".join(str(names[label]) for label in sorted(hidden)) or "none"
        tell(f"classes that stay hidden, as fewer than {fewest} members have them: {named}")
