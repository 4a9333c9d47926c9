"""The schedule of rounds: which clients are sampled, and which drop out.

A schedule is a function of the setting and the seed alone, the same for every method.
"""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from repshare.randomness import numpy_stream
from repshare_lab.config import ResolvedSetting

TESTS = 20  # of a run at least, if it has as many rounds


def attend(setting: ResolvedSetting, seed: int, clients: int) -> Iterator[tuple[int, ...]]:
    """Yield the clients that take part in each round, without end."""
    number = 0
    while True:
        number += 1
        rng = numpy_stream(seed, "attendance", number)
        present = np.flatnonzero(rng.random(clients) >= setting.dropout)
        if setting.participation < 1 and len(present):
            chosen = max(1, round(setting.participation * len(present)))
            present = np.sort(rng.choice(present, chosen, replace=False))
        yield tuple(present.tolist())


def test_is_due(setting: ResolvedSetting, number: int) -> bool:
    """Whether those who took part in this round are tested after it."""
    first = setting.eval_every is None and number == 1
    return first or number % test_interval(setting) == 0 or number == setting.rounds


def test_interval(setting: ResolvedSetting) -> int:
    """Return the number of rounds between tests. Default: a power of two, so that more rounds need no other tests."""
    return setting.eval_every or 1 << max(1, setting.rounds // TESTS).bit_length() - 1


def is_ever_tested(setting: ResolvedSetting, seed: int) -> bool:
    """Whether any client takes part when a test is due."""
    rounds = islice(attend(setting, seed, setting.clients), setting.rounds)
    return any(present for number, present in enumerate(rounds, start=1) if test_is_due(setting, number))
