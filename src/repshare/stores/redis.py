"""Stores in Redis: any number of relays may share them.

A store has a version that every change adds to. A transaction reads what it needs, then hands its changes to a script
on the server, which makes them only if the version is still the one that was read; otherwise the work begins again.
All keys of a store carry its name as a hash tag, so that they live on one node of a cluster.
"""

import random
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
AT_ONCE = 1000  # keys in one command

# KEYS: version, those to set, those to delete. ARGV: the version read, how many to set, their values.
CHANGE = """
if (redis.call('GET', KEYS[1]) or '0') ~= ARGV[1] then return 0 end
redis.call('INCR', KEYS[1])
local set = tonumber(ARGV[2])
for i = 1, set do redis.call('SET', KEYS[1 + i], ARGV[2 + i]) end
for i = set + 2, #KEYS do redis.call('DEL', KEYS[i]) end
return 1
"""


class RedisDatabase:
    """One Redis server, or cluster node, as `redis://host:port/number`. Durable as far as that server is (AOF)."""

    slow_reads = slow_writes = True

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
        except (redis.RedisError, ValueError) as error:
            raise StoreError(f"{url}: {error}") from error
        self.change = self.connection.register_script(CHANGE)

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
    """The keys `PREFIX:{NAME}:…`."""

    def __init__(self, database: RedisDatabase, name: str) -> None:
        self.database, self.tag = database, f"{database.prefix}:{{{name}}}:"

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
            keys = sorted(set(self._keys()))
            found = [
                value for start in range(0, len(keys), AT_ONCE) for value in self._many(keys[start : start + AT_ONCE])
            ]
        pairs = zip((key.removeprefix(self.tag) for key in keys), found, strict=True)
        return {key: value for key, value in pairs if value is not None and key != "#"}

    def clear(self) -> None:
        """Forget everything."""
        with _errors():
            keys = list(self._keys())
            for start in range(0, len(keys), AT_ONCE):
                self.database.connection.delete(*keys[start : start + AT_ONCE])

    def _transact(self, work: Callable[[Transaction], Result]) -> Result:
        version: list[bytes | None] = []

        def read(keys: Sequence[str]) -> list[bytes | None]:
            now, *found = self._many([self.tag + "#", *(self.tag + key for key in keys)])
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
        kept = {key: value for key, value in made.items() if value is not None}
        gone = [key for key, value in made.items() if value is None]
        keys = [self.tag + key for key in ("#", *kept, *gone)]
        if not self.database.change(keys=keys, args=[version, len(kept), *kept.values()]):
            raise _Conflict

    def _many(self, keys: Sequence[str]) -> list[bytes | None]:
        found: Any = self.database.connection.mget(keys)
        return list(found)

    def _keys(self) -> Iterator[str]:
        pattern = "".join(f"\\{char}" if char in "*?[]\\" else char for char in self.tag) + "*"
        for key in self.database.connection.scan_iter(match=pattern, count=AT_ONCE):
            yield key.decode()


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except redis.RedisError as error:
        raise StoreError(f"Redis: {error}") from error
