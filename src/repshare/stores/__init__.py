"""Where a board keeps its state."""

from repshare.stores.memory import MemoryStore
from repshare.stores.store import Store, Transaction

__all__ = ["MemoryStore", "Store", "Transaction"]
