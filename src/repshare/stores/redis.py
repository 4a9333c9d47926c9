"""Stores in Redis: any number of relays may share them.

A store has a version that every change adds to. A transaction reads what it needs, then hands its changes to a script
on the server, which makes them only if the version is still the one that was read; otherwise the work begins again.
A store is one Redis hash, so that it lives on one node of a cluster; the name in its key is a hash tag.
"""

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from repshare.errors import StoreError
from repshare.stores.memory import Changes
from repshare.stores.store import Result, Transaction

SECONDS = 5.0  # to connect, to wait for an answer, and to keep trying while others change the same store
VERSION = "#"  # the field of a store's version; those of keys begin with a dot

# KEYS: the hash. ARGV: the version read, how many to set, each with its value, then those to delete.
CHANGE = """
if (redis.call('HGET', KEYS[1], '#') or '0') ~= ARGV[1] then return 0 end
redis.call('HINCRBY', KEYS[1], '#', 1)
local last = 2 + 2 * tonumber(ARGV[2])
for i = 3, last, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
for i = last + 1, #ARGV do redis.call('HDEL', KEYS[1], ARGV[i]) end
return 1
"""

# The version goes on: whoever has read something before it was cleared must notice.
CLEAR = """
local version = redis.call('HGET', KEYS[1], '#')
redis.call('UNLINK', KEYS[1])
if version then redis.call('HSET', KEYS[1], '#', version + 1) end
"""


class RedisDatabase:
    """One Redis server, or cluster node, as `redis://host:port/number`. Durable as far as that server is (AOF)."""

    slow = True

    def __init__(self, url: str, prefix: str = "repshare") -> None:
        self.prefix = prefix
        try:
            self.connection = redis.Redis.from_url(
                url,
                socket_timeout=SECONDS,
                socket_connect_timeout=SECONDS,
                # A connection that Redis closed is opened again, once. A change that was made before its connection
                # broke is refused the second time, and the work, begun again, finds it made.
                retry=Retry(NoBackoff(), 1),
            )
        except (redis.RedisError, ValueError):  # whose words may have a part of the password in them
            raise StoreError(
                f"{_where(url)} cannot be the address of a Redis: it looks like redis://:password@host:6379/0, "
                "with %XX for signs in the password that mean something in an address"
            ) from None
        self.change = self.connection.register_script(CHANGE)
        self.clear = self.connection.register_script(CLEAR)

    def store(self, name: str) -> "RedisStore":
        """The store of this name."""
        return RedisStore(self, name)

    def check(self) -> None:
        """Write something and read it back."""
        self.store("check").transact(lambda state: state.set({"alive": b"yes"}))
        if self.store("check").transact(lambda state: state.get(["alive"])) != [b"yes"]:
            raise StoreError("Redis: what was written is not there")

    def close(self) -> None:
        """Let go of the connections."""
        self.connection.close()


class _Conflict(Exception):
    """Another transaction came in between."""


class RedisStore:
    """The hash `PREFIX:{NAME}`."""

    def __init__(self, database: RedisDatabase, name: str) -> None:
        self.database, self.hash = database, f"{database.prefix}:{{{name}}}"

    def transact(self, work: Callable[[Transaction], Result]) -> Result:
        """Do this work alone, all of it or nothing; again, if another changed the store in between."""
        end, tries = time.monotonic() + SECONDS, 0
        with _errors():
            while True:
                try:
                    return self._transact(work)
                except _Conflict:
                    tries += 1
                    if time.monotonic() > end:
                        raise StoreError(f"Redis: too many changes at once, gave up after {tries} tries") from None
                    time.sleep(random.uniform(0, 0.0005 * min(tries, 40)))

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Do work that only reads; again, if another changed the store in between."""
        return self.transact(work)

    def items(self) -> Mapping[str, bytes]:
        """Everything kept."""
        with _errors():
            kept: Any = self.database.connection.hgetall(self.hash)
        return {key[1:].decode(): value for key, value in kept.items() if key != VERSION.encode()}

    def clear(self) -> None:
        """Forget everything."""
        with _errors():
            self.database.clear(keys=[self.hash])

    def _transact(self, work: Callable[[Transaction], Result]) -> Result:
        version: list[bytes | None] = []

        def read(keys: Sequence[str]) -> list[bytes | None]:
            answer: Any = self.database.connection.hmget(self.hash, [VERSION, *map(_field, keys)])
            found: list[bytes | None]
            now, *found = answer
            if version and version[0] != now:
                raise _Conflict
            version[:] = [now]
            return found

        changes = Changes(read)
        result = work(changes)
        if changes.made:
            if not version:
                read([])
            self._change(version[0] or b"0", changes.made)
        return result

    def _change(self, version: bytes, made: Mapping[str, bytes | None]) -> None:
        kept = [part for key, value in made.items() if value is not None for part in (_field(key), value)]
        gone = [_field(key) for key, value in made.items() if value is None]
        if not self.database.change(keys=[self.hash], args=[version, len(kept) // 2, *kept, *gone]):
            raise _Conflict


def _where(url: str) -> str:
    """Host and port of an address that makes no sense; never a password."""
    scheme, _, rest = url.partition("://")
    place = re.split("[/?#]", rest.rpartition("@")[2])[0]
    return f"{scheme}://…" if place.startswith(":") else f"{scheme}://{place}"


def _field(key: str) -> str:
    return f".{key}"


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except redis.RedisError as error:
        raise StoreError(f"Redis: {error}") from error
