"""Time by which releases and meetings age: it passes while a process looks after a store, whatever the wall clock says.

Clocks are set, and some are wrong for years. So ages are not counted in dates: every process adds what has passed by
its own monotonic clock to what stands in the store, and writes that down now and then. It never runs faster than real
time, however many do so; and it stands still while no process runs.

time   seconds so far, as a float64
"""

import math
import struct
import threading
import time
from collections.abc import Callable

from repshare.errors import Damaged
from repshare.stores import Transaction, decoding

KEY = "time"
KEPT_SECONDS = 60.0  # at least so often: what has passed since is forgotten if the process is killed


class StoreClock:
    """The time of one store, as this process knows it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds since whenever. If it goes back, no time has passed."""
        self._clock, self._alone = clock, threading.Lock()
        self._before, self._passed = clock(), 0.0

    def now(self, state: Transaction) -> float:
        """Return the seconds so far."""
        kept = _read(state)
        with self._alone:
            clock = self._clock()
            self._passed = max(self._passed + max(0.0, clock - self._before), kept)
            self._before = clock
            return self._passed

    def keep(self, state: Transaction, interval: float = 0.0) -> float:
        """Return the seconds so far, written down if the last time was more than `interval` ago."""
        now = self.now(state)
        if now - _read(state) > min(interval, KEPT_SECONDS):
            write(state, now)
        return now

    def repair(self, state: Transaction) -> float:
        """Return the seconds so far, also if they cannot be read."""
        try:
            return self.now(state)
        except Damaged:
            state.delete([KEY])
            return self.now(state)


def write(state: Transaction, now: float) -> None:
    """Write down how much time has passed: with every moment that is kept, so that no process is behind it."""
    state.set({KEY: struct.pack("<d", now)})


def over(since: float, seconds: float, now: float) -> bool:
    """Return whether this much time has passed. A moment yet to come is of a clock that was wrong."""
    return now >= since + seconds or since > now


def _read(state: Transaction) -> float:
    (kept,) = state.get([KEY])
    if kept is None:
        return 0.0
    with decoding(KEY):
        (passed,) = struct.unpack("<d", kept)
        if not 0 <= passed < math.inf:
            raise ValueError(passed)
        return float(passed)
