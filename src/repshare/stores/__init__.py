"""Where a board keeps its state."""

from repshare.stores.memory import MemoryDatabase, MemoryStore
from repshare.stores.opening import open_database
from repshare.stores.sqlite import SqliteDatabase
from repshare.stores.store import Database, Store, Transaction

__all__ = [
    "Database",
    "MemoryDatabase",
    "MemoryStore",
    "SqliteDatabase",
    "Store",
    "Transaction",
    "open_database",
]
