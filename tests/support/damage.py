"""Damage to stored values, done behind a store's back: bit rot, a torn write, a slip by hand."""

import redis


class Vandal:
    """Changes the raw value under a key of a store, without its checksum."""

    def __init__(self, database, store):
        self.database, self.name = database, getattr(store, "name", store)
        self.change = {
            "MemoryDatabase": self._in_memory,
            "SqliteDatabase": self._in_sqlite,
            "RedisDatabase": self._in_redis,
        }[type(database).__name__]

    def flip(self, key, at=None):
        """Another bit somewhere."""
        self.change(key, lambda value: _flip(value, len(value) // 2 if at is None else at))

    def truncate(self, key):
        self.change(key, lambda value: value[: len(value) // 2])

    def remove(self, key):
        self.change(key, lambda value: None)

    def copy(self, source, key):
        """What stands under one key under another, with the source's checksum where it has one."""
        seen = []
        self.change(source, lambda value: seen.append(value) or value)
        self.change(key, lambda value: seen[0])

    def _in_memory(self, key, change):
        kept = self.database.store(self.name)._kept
        value, check = kept.pop(key)
        if (changed := change(value)) is not None:
            kept[key] = (changed, check)

    def _in_sqlite(self, key, change):
        with self.database.begin() as connection:
            full = f"{self.name}/{key}"
            (value,) = connection.execute("SELECT value FROM kept WHERE key = ?", [full]).fetchone()
            if (changed := change(value)) is None:
                connection.execute("DELETE FROM kept WHERE key = ?", [full])
            else:
                connection.execute("UPDATE kept SET value = ? WHERE key = ?", [changed, full])

    def _in_redis(self, key, change):
        connection: redis.Redis = self.database.connection
        place = f"{self.database.prefix}:{{{self.name}}}"
        changed = change(connection.hget(place, f".{key}"))
        if changed is None:
            connection.hdel(place, f".{key}")
        else:
            connection.hset(place, f".{key}", changed)


def _flip(value, at):
    return value[:at] + bytes([value[at] ^ 0x10]) + value[at + 1 :]
