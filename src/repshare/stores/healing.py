"""A store in which one damaged value does not stop other clients: it is repaired if possible, and work is repeated."""

import logging
from collections.abc import Callable
from typing import NamedTuple

from repshare.errors import Damaged
from repshare.stores.store import Result, Store, Transaction

log = logging.getLogger(__name__)


class Healed(NamedTuple):
    """The result of a repair: what was wrong, and what it cost."""

    faults: dict[str, str]  # key -> what is wrong with it
    lost: list[str]  # a description of each thing that could not be rebuilt


class Healing(Store):
    """A store that repairs itself: if work finds a damaged value, `heal` repairs the store, and work is repeated."""

    def __init__(self, store: Store, heal: Callable[[Transaction, Damaged], Healed]) -> None:
        self.store, self.name, self._heal = store, store.name, heal

    def transact(self, work: Callable[[Transaction], Result]) -> Result:
        """Do this work alone, all of it or nothing."""
        return self._healed(lambda: self.store.transact(work))

    def prepare(self, work: Callable[[Transaction], Result]) -> Callable[[], Result]:
        """Do this work without waiting. Raises Damaged: a repair takes its time."""
        return self.store.prepare(work)

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Do work that only reads."""
        return self._healed(lambda: self.store.read(work))

    def glance(self, work: Callable[[Transaction], Result]) -> Result:
        """Do work that reads a little, without waiting. Raises Damaged: a repair takes its time."""
        return self.store.glance(work)

    def clear(self) -> None:
        """Forget everything."""
        self.store.clear()

    def find_faults(self) -> dict[str, str]:
        """Return the values that are not what was written: key -> what is wrong with it."""
        return self.store.read(find_faults)

    def heal(self, fault: Damaged) -> Healed:
        """Repair the store, and tell the log."""
        healed = self.store.transact(lambda state: self._heal(state, fault))
        named = healed.faults or {fault.key: fault.reason}
        log.error("stored values were damaged", extra={"fields": {"store": self.name, "damaged": named}})
        log.error("a store was repaired", extra={"fields": {"store": self.name, "lost": healed.lost}})
        return healed

    def _healed(self, work: Callable[[], Result]) -> Result:
        try:
            return work()
        except Damaged as fault:
            self.heal(fault)
        return work()


def find_faults(state: Transaction) -> dict[str, str]:
    """Return the values that are not what was written: key -> what is wrong with it."""
    return {key: kept.reason for key, kept in state.scan("") if isinstance(kept, Damaged)}


def drop_damaged(state: Transaction, fault: Damaged) -> Healed:
    """Heal a store whose values can be done without: what is damaged goes."""
    faults = {fault.key: fault.reason} | find_faults(state)
    state.delete(faults)
    return Healed(faults, list(faults))
