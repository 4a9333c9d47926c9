"""From the name of a place to the database there."""

from pathlib import Path

from repshare.imports import missing
from repshare.stores.memory import MemoryDatabase
from repshare.stores.sqlite import SqliteDatabase
from repshare.stores.store import Database


def open_database(place: str) -> Database:
    """`memory`, `redis://…` (or `rediss://…`), or a file's path."""
    if place == "memory":
        return MemoryDatabase()
    if place.startswith(("redis://", "rediss://")):
        try:
            from repshare.stores.redis import RedisDatabase
        except ModuleNotFoundError as error:
            raise missing(error) from error
        return RedisDatabase(place)
    return SqliteDatabase(Path(place))
