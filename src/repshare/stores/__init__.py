"""Where a board keeps its state."""

from repshare.stores.memory import MemoryStore

__all__ = ["MemoryStore"]
