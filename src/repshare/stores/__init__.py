"""Where a board keeps its state."""

from repshare.stores.damage import decoding
from repshare.stores.healing import Healed, Healing, drop_damaged, find_faults
from repshare.stores.memory import MemoryDatabase, MemoryStore
from repshare.stores.opening import open_database
from repshare.stores.sqlite import SqliteDatabase
from repshare.stores.store import Database, Kept, Store, Transaction, get_each, sound

__all__ = [
    "Database",
    "Healed",
    "Healing",
    "Kept",
    "MemoryDatabase",
    "MemoryStore",
    "SqliteDatabase",
    "Store",
    "Transaction",
    "decoding",
    "drop_damaged",
    "find_faults",
    "get_each",
    "open_database",
    "sound",
]
