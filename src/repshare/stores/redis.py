"""Stores in Redis: any number of relays may share them.

A store has a version that every change adds to. A transaction reads what it needs, then hands its changes to a script
on the server, which makes them only if the version is still the one that was read; otherwise the work begins again.
Work that had to begin again too often locks the store: then only the holder of the lock can change it.
A store is one Redis hash, so that it lives on one node of a cluster; the name in its key is a hash tag.

#       the store's version. Earlier versions of repshare kept a plain number, and fail to count up from this one: they
        would not keep checksums
.KEY    a value
~KEY    its checksum; none, if an earlier version wrote the value
"""

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import LockError
from redis.lock import Lock
from redis.retry import Retry

from repshare.errors import ConfigError, Damaged, StoreError
from repshare.stores.damage import verify
from repshare.stores.memory import Changes
from repshare.stores.store import Database, Kept, Result, Store, Transaction

SECONDS = 5.0  # to connect, to wait for an answer, and to keep trying while others change the same store
TRIES_BEFORE_LOCK = 10
LOCK_SECONDS = 30.0  # after which a lock ends by itself, should the process that holds it die
VERSION = "#"
AT_ONCE = 500  # keys, where all are read one after the other

# KEYS: the hash, its lock. ARGV: the version read, the token of the lock, how many to set, each with its value and
# checksum, then those to delete.
CHANGE = """
if (redis.call('HGET', KEYS[1], '#') or '0') ~= ARGV[1] then return 0 end
local holder = redis.call('GET', KEYS[2])
if holder and holder ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], '#', string.format('v%.0f', tonumber((string.gsub(ARGV[1], '%D', ''))) + 1))
local last = 3 + 3 * tonumber(ARGV[3])
for i = 4, last, 3 do
  redis.call('HSET', KEYS[1], '.' .. ARGV[i], ARGV[i + 1], '~' .. ARGV[i], ARGV[i + 2])
end
for i = last + 1, #ARGV do redis.call('HDEL', KEYS[1], '.' .. ARGV[i], '~' .. ARGV[i]) end
return 1
"""

# The version continues: a reader from before it was cleared must notice.
CLEAR = """
local version = redis.call('HGET', KEYS[1], '#')
redis.call('UNLINK', KEYS[1])
if version then
  redis.call('HSET', KEYS[1], '#', string.format('v%.0f', tonumber((string.gsub(version, '%D', ''))) + 1))
end
"""


class RedisDatabase(Database):
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
                "with special characters of the password written as %XX"
            ) from None
        self.change = self.connection.register_script(CHANGE)
        self.clear = self.connection.register_script(CLEAR)

    def store(self, name: str) -> "RedisStore":
        """Return the store of this name."""
        return RedisStore(self, name)

    def inspect(self) -> list[str]:
        """Check that this Redis keeps what it is given. Raises ConfigError if it may drop any of it."""
        setting, info = self.connection.config_get, self.connection.info  # fewer users may ask for settings
        policy = _ask(setting, "maxmemory-policy") or _ask(info, "memory", "maxmemory_policy")
        log = _ask(setting, "appendonly") or {"0": "no", "1": "yes"}.get(_ask(info, "persistence", "aof_enabled"), "")
        sync = _ask(setting, "appendfsync")
        if policy.startswith("allkeys"):  # volatile ones drop only what has an end, and nothing of ours has
            raise ConfigError(
                f"this Redis may drop what it was given: its maxmemory-policy is {policy}. Releases, tokens and tasks "
                "would be lost silently: set maxmemory-policy noeviction"
            )
        warnings = {
            "its maxmemory-policy cannot be read: it must be noeviction, or stored values may be lost": not policy,
            "it cannot be read whether appendonly is on: it must be": not log,
            "appendonly is off: all that was acknowledged may be lost when Redis stops. Set appendonly yes": log
            == "no",
            "its appendfsync cannot be read: with anything but always, its machine may lose the last moments": not sync,
            "appendfsync is no: its machine may lose the last half minute": log == "yes" and sync == "no",
        }
        return [f"Redis: {warning}" for warning, so in warnings.items() if so]

    def close(self) -> None:
        """Close the connections."""
        self.connection.close()


class _Conflict(Exception):
    """Another transaction came in between."""


class RedisStore(Store):
    """The hash `PREFIX:{NAME}`."""

    def __init__(self, database: RedisDatabase, name: str) -> None:
        self.database, self.name, self.hash = database, name, f"{database.prefix}:{{{name}}}"

    def transact(self, work: Callable[[Transaction], Result]) -> Result:
        """Do this work alone, all of it or nothing; again, if another changed the store in between."""
        end, tries, lock = time.monotonic() + SECONDS, 0, self.make_lock()
        with _errors():
            try:
                while True:
                    try:
                        return self._transact(work, lock)
                    except _Conflict:
                        tries += 1
                        if time.monotonic() > end:
                            raise StoreError(f"Redis: too many changes at once, gave up after {tries} tries") from None
                        if tries >= TRIES_BEFORE_LOCK and not lock.local.token and lock.acquire():
                            end = time.monotonic() + LOCK_SECONDS
                        time.sleep(random.uniform(0, 0.0005 * min(tries, 40)))
            finally:
                if lock.local.token:
                    with suppress(LockError):  # it has ended by itself
                        lock.release()

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Do work that only reads; again, if another changed the store in between."""
        return self.transact(work)

    def verified(self, key: str, value: bytes, kept: bytes | None) -> bytes | Damaged:
        """Return the value, if it fits what is kept as its checksum."""
        if kept is not None and not (kept.isascii() and kept.isdigit()):
            return Damaged(key, "its checksum is no number")
        return verify(self.name, key, value, None if kept is None else int(kept))

    def clear(self) -> None:
        """Forget everything."""
        with _errors():
            self.database.clear(keys=[self.hash])

    def make_lock(self) -> Lock:
        """Return the lock that makes all others wait."""
        connection = self.database.connection
        return Lock(connection, f"{self.hash}:door", timeout=LOCK_SECONDS, blocking=False, thread_local=False)

    def _transact(self, work: Callable[[Transaction], Result], lock: Lock) -> Result:
        reading = _RedisReading(self)
        changes = Changes(reading.read, reading.scan)
        result = work(changes)
        if changes.made:
            kept = changes.written(self.name)
            parts = [part for each in kept for part in each]
            args = [reading.version(), lock.local.token or b"", len(kept), *parts, *changes.deleted()]
            if not self.database.change(keys=[self.hash, lock.name], args=args):
                raise _Conflict
        return result


class _RedisReading:
    """The reads of one transaction: all of one version."""

    def __init__(self, store: RedisStore) -> None:
        self._store, self._connection = store, store.database.connection
        self._version = b""  # not known yet

    def version(self) -> bytes:
        """Return the store's version."""
        if not self._version:
            self._ask([])
        return self._version

    def read(self, keys: Sequence[str]) -> list[Kept]:
        """Return the values of these keys."""
        found = self._ask([*map(_value, keys), *map(_checksum, keys)])
        each = zip(keys, found[: len(keys)], found[len(keys) :], strict=True)
        return [None if value is None else self._store.verified(key, value, kept) for key, value, kept in each]

    def scan(self, prefix: str) -> Iterator[tuple[str, bytes | Damaged]]:
        """Yield everything whose key begins with this."""
        self._ask([])
        names: Any = self._connection.hkeys(self._store.hash)
        self._ask([])
        keys = [name[1:].decode() for name in names if name.startswith(_value(prefix))]
        for start in range(0, len(keys), AT_ONCE):
            some = keys[start : start + AT_ONCE]
            yield from ((key, kept) for key, kept in zip(some, self.read(some), strict=True) if kept is not None)

    def _ask(self, fields: Sequence[bytes]) -> list[bytes | None]:
        answer: Any = self._connection.hmget(self._store.hash, [VERSION, *fields])
        version = answer[0] or b"0"
        if self._version not in (b"", version):
            raise _Conflict
        self._version = version
        return list(answer[1:])


def _ask(command: Callable[[str], Any], about: str, name: str = "") -> str:
    """Return a value from a command's answer; nothing where this user may not ask."""
    with _errors(), suppress(redis.ResponseError):
        return str(command(about).get(name or about, ""))
    return ""


def _where(url: str) -> str:
    """Return host and port of an address that makes no sense; never a password."""
    scheme, _, rest = url.partition("://")
    place = re.split("[/?#]", rest.rpartition("@")[2])[0]
    return f"{scheme}://…" if place.startswith(":") else f"{scheme}://{place}"


def _value(key: str) -> bytes:
    return f".{key}".encode()


def _checksum(key: str) -> bytes:
    return f"~{key}".encode()


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except redis.RedisError as error:
        raise StoreError(f"Redis: {error}") from error
