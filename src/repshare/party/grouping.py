"""A party in a masked group: what it brings, and what it does before each meeting."""

import time
from collections.abc import Callable, Iterator

import numpy as np

from repshare.client import Client
from repshare.errors import ExchangeError
from repshare.exchange import Exchange
from repshare.party.state import State
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
    return 1


def gather(state: State, group: Exchange, tell: Callable[[str], None]) -> Iterator[None]:
    """Yield until it is known whom to meet, and leave out what too few of them have."""
    told, pause = None, PAUSE_SECONDS
    while True:
        try:
            if group.gather():
                break
        except ExchangeError as error:
            if (now := str(error)) != told:
                tell(told := now)
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        yield None
    space = state.client.learner.space
    if space is not None and space.hidden != group.hidden:
        space.hide(group.hidden)
        names = space.agreement.class_names or range(space.classes)
        hidden = ", ".join(str(names[label]) for label in sorted(group.hidden)) or "none"
        fewest = state.membership.agreed.class_members
        tell(f"classes that stay hidden, as fewer than {fewest} members have them: {hidden}")
