"""Workers that begin in this process. Processes take over when there is enough work to be worth their start."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from repshare.learning.measures import Score
from repshare.simulation.checkpoint import SavedState, States
from repshare.simulation.plan import Plan
from repshare.simulation.pools import Inline, Processes, Workers
from repshare.simulation.starting import leave_if_unguarded, prepare
from repshare.simulation.workers import RESIDENT, Bodies, RoundResult

PREPARE_SECONDS, MOVE_SECONDS = 0.5, 2.0  # of work: when processes begin to start, and when they take over


class Growing(Workers):
    """This process, and after two seconds of work one for each core: clients move there with their states.

    Args:
        count: Number of processes.
        resident: Number of clients that each process keeps in memory.
        clock: Returns the time in seconds.
    """

    def __init__(self, count: int, resident: int = RESIDENT, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._began, self._prepared = clock, 0.0, False
        self._processes = Processes(count, resident)
        self._now: Workers = Inline(resident)
        self.count = self._now.count
        self._versions: dict[int, SavedState] = {}  # each client's state on disk
        self._unlisted: dict[int, SavedState] = {}  # those with which clients moved, and no checkpoint lists

    def __enter__(self) -> Self:
        leave_if_unguarded()
        self._entered = ExitStack()
        self._entered.enter_context(self._now)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        self._entered.__exit__(*error)
        super().__exit__()

    def begin(self, plan: Plan, folder: Path | None, versions: Mapping[int, SavedState]) -> None:
        """Make room for this plan's clients."""
        self._versions, self._unlisted = dict(versions), {}
        self._began = self._began or self._clock()
        super().begin(plan, folder, versions)

    def round(self, number: int, teachers: Bodies, apart: Collection[int]) -> RoundResult:
        """Carry out this round of these clients: one after the other, until processes take over the rest."""
        together = RoundResult({}, {}, [])
        for share in self._shares(teachers):
            records, releases, sums = super().round(number, share, apart)
            together.records.update(records)
            together.releases.update(releases)
            together.sums.extend(sums)
        return together

    def evaluate(self, bodies: Bodies) -> dict[int, Score]:
        """Test these clients, likewise."""
        return {i: score for share in self._shares(bodies) for i, score in super(Growing, self).evaluate(share).items()}

    def save(self) -> dict[int, SavedState]:
        """Write the state of every client that has changed since the last time."""
        written = self._unlisted | super().save()
        for client, version in self._unlisted.items():
            if version.round != written[client].round:
                States(self._states).remove(client, version)
        self._versions |= written
        self._unlisted = {}
        return written

    def _shares(self, bodies: Bodies) -> Iterator[Bodies]:
        rest = dict(bodies)
        while rest and not self._has_moved():
            client = next(iter(rest))
            yield {client: rest.pop(client)}
        if rest:
            yield rest

    def _has_moved(self) -> bool:
        """Return whether processes have the clients. They get them if it is time."""
        if self._now is self._processes:
            return True
        passed = self._clock() - self._began
        if passed > PREPARE_SECONDS and not self._prepared:
            prepare()
            self._prepared = True
        if passed > MOVE_SECONDS:
            self._unlisted = self.save()
            self._entered.close()
            self._now = self._entered.enter_context(self._processes)
            self.count = self._now.count
            self._hand_over(self._plan, self._room, self._states, self._deal(self._versions))
        return passed > MOVE_SECONDS

    def _hand_over(self, plan: Plan, room: Path, states: Path, shares: list[dict[int, SavedState]]) -> None:
        self._room, self._states = room, states
        self._now._plan = plan
        self._now._hand_over(plan, room, states, shares)

    def _ask(self, verb: str, questions: list[tuple[Any, ...]]) -> list[Any]:
        return self._now._ask(verb, questions)
