"""The schedule of rounds: which clients are sampled, drop out, join late, leave or are slow.

A schedule is a function of the setting and the seed alone, the same for every method.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.randomness import numpy_stream
from repshare_lab.config import ResolvedSetting

TESTS = 20  # of a run at least, if it has as many rounds
SLOWEST = 3  # rounds that a straggler may need beyond its own


class Attendance(NamedTuple):
    """One round."""

    present: tuple[int, ...]
    """Clients that begin the round: they collect and train."""
    delays: dict[int, int]
    """Those of them whose release arrives this number of rounds later, and who are busy until then."""


def attend(setting: ResolvedSetting, seed: int, clients: int) -> Iterator[Attendance]:
    """Yield the attendance of each round, without end."""
    joins, leaves = _stay(setting, seed, clients)
    busy_until = np.zeros(clients, int)  # the round in which a straggler is done
    number = 0
    while True:
        number += 1
        rng = numpy_stream(seed, "attendance", number)
        there = (joins <= number) & (number < leaves) & (busy_until < number)
        there &= rng.random(clients) >= setting.dropout
        present = np.flatnonzero(there)
        if setting.participation < 1 and len(present):
            chosen = max(1, round(setting.participation * len(present)))
            present = np.sort(rng.choice(present, chosen, replace=False))
        slow = present[rng.random(len(present)) < setting.stragglers]
        delays = rng.integers(1, SLOWEST + 1, len(slow))
        busy_until[slow] = number + delays
        yield Attendance(
            tuple(present.tolist()), dict(zip(slow.tolist(), (int(delay) for delay in delays), strict=True))
        )


def test_is_due(setting: ResolvedSetting, number: int) -> bool:
    """Return whether those who took part in this round are tested after it."""
    first = setting.eval_every is None and number == 1
    return first or number % test_interval(setting) == 0 or number == setting.rounds


def test_interval(setting: ResolvedSetting) -> int:
    """Return the number of rounds between tests. Default: a power of two, so that more rounds need no other tests."""
    return setting.eval_every or 1 << max(1, setting.rounds // TESTS).bit_length() - 1


def is_ever_tested(setting: ResolvedSetting, seed: int) -> bool:
    """Return whether any client takes part when a test is due."""
    rounds = islice(attend(setting, seed, setting.clients), setting.rounds)
    return any(present for number, (present, _) in enumerate(rounds, start=1) if test_is_due(setting, number))


def _stay(setting: ResolvedSetting, seed: int, clients: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the first round of each client, and the round by which it has left for good."""
    rng, last = numpy_stream(seed, "coming and going"), setting.rounds
    joins, leaves = np.ones(clients), np.full(clients, np.inf)
    late = rng.random(clients) < setting.late_joiners
    gone = rng.random(clients) < setting.leavers
    joins[late] = rng.integers(2, max(last, 2) + 1, clients)[late]
    leaves[gone] = joins[gone] + rng.integers(1, max(last, 1) + 1, clients)[gone]
    return joins, leaves
