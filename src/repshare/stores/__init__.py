"""Stores, in which a board keeps its state."""

from pathlib import Path

from repshare.imports import missing
from repshare.stores.memory import MemoryDatabase, MemoryStore
from repshare.stores.sqlite import SqliteDatabase
from repshare.stores.store import Changes, Database, Store, Transaction, decoded, find_faults

__all__ = [
    "REDIS",
    "Changes",
    "Database",
    "MemoryDatabase",
    "MemoryStore",
    "SqliteDatabase",
    "Store",
    "Transaction",
    "decoded",
    "find_faults",
    "open_database",
]

REDIS = ("redis://", "rediss://")  # how an address of a Redis begins


def open_database(place: str) -> Database:
    """Open `memory`, `redis://…` (over TLS `rediss…`), or a file's path."""
    if place == "memory":
        return MemoryDatabase()
    if place.startswith(REDIS):
        try:
            from repshare.stores.redis import RedisDatabase
        except ModuleNotFoundError as error:
            raise missing(error) from error
        return RedisDatabase(place)
    return SqliteDatabase(Path(place))
