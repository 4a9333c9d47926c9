"""A party in a masked group: the samples it brings, and its waiting for enough others before each meeting."""

import time
from collections.abc import Callable, Iterator
from functools import partial

from repshare.client import Client
from repshare.errors import ExchangeError
from repshare.exchange import Exchange
from repshare.party.state import State
from repshare.secure import MOST_MEMBERS, newcomers_behind

PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 0.5


def count_company(client: Client) -> int:
    """The newcomers, with this client, that must join at once, so that a difference of totals shows none."""
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


def _hide(client: Client, hidden: frozenset[int], fewest: int, tell: Callable[[str], None]) -> None:
    learner = client.learner
    if learner.hide(hidden):
        names = learner.class_names or range(learner.classes)
        named = ", ".join(str(names[label]) for label in sorted(hidden)) or "none"
        tell(f"classes that stay hidden, as fewer than {fewest} members have them: {named}")
