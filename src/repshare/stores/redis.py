"""Stores in Redis: any number of relays may share them.

A store is one Redis hash. A transaction reads what it needs, then hands its changes to a script on the server, which
makes them only if the store still has the version that was read; otherwise the work begins again.

#       the store's version: another word after each change
.KEY    a value
"""

import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, urlencode

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from repshare.errors import ConfigError, StoreError
from repshare.stores.store import Changes, Database, Result, Store, Transaction

SECONDS = 5.0  # to connect, to wait for an answer, and to keep trying while others change the same store
REPLICA_SECONDS = 2.0  # for replicas to have a change
VERSION = "#"
AT_ONCE = 500  # keys, where all are read one after the other

# KEYS: the hash. ARGV: the version read, the next one, how many to set, each with its value, then those to delete.
# Without any of these, the version is written as it is, so that replicas can be asked whether they have it.
CHANGE = """
local version = redis.call('HGET', KEYS[1], '#') or '0'
if version ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], '#', #ARGV == 3 and version or ARGV[2])
local last = 3 + 2 * tonumber(ARGV[3])
for i = 4, last, 2 do redis.call('HSET', KEYS[1], '.' .. ARGV[i], ARGV[i + 1]) end
for i = last + 1, #ARGV do redis.call('HDEL', KEYS[1], '.' .. ARGV[i]) end
return 1
"""
CLEAR = "redis.call('UNLINK', KEYS[1]) return 1"

EVICTING = "allkeys"  # how policies begin that drop what has no end, as nothing of ours has
DROPS = (
    "this Redis may drop what it was given: its maxmemory-policy is {policy}. Releases, tokens and tasks would be lost "
    "silently: set maxmemory-policy noeviction"
)


class RedisDatabase(Database):
    """One Redis server, as `redis://host:port/number`. Durable as far as that server is (AOF).

    With `?replicas=1` a change is durable when this number of replicas has it, too; otherwise it is a StoreError.
    """

    remote = True

    def __init__(self, url: str, prefix: str = "repshare") -> None:
        self.prefix = prefix
        try:
            address, self.replicas = _split(url)
            self.connection = redis.Redis.from_url(
                address,
                socket_timeout=SECONDS,
                socket_connect_timeout=SECONDS,
                # A connection that Redis closed is opened again, once. A change that was made before its connection
                # broke is refused the second time, and the work, begun again, finds it made.
                retry=Retry(NoBackoff(), 1),
            )
        except (redis.RedisError, ValueError):  # the driver's words may have part of a password
            raise StoreError(
                f"{_where(url)} cannot be the address of a Redis: it looks like redis://:password@host:6379/0, "
                "with special characters of the password written as %XX"
            ) from None

    def store(self, name: str) -> "RedisStore":
        """The store of this name."""
        return RedisStore(self, name)

    def run(self, script: str, keys: Sequence[str], args: Sequence[Any]) -> bool:
        """Run a script that changes something, and return whether it did; not before replicas have it."""
        with self.connection.pipeline(transaction=False) as pipe:  # over one connection, which WAIT is about
            pipe.eval(script, len(keys), *keys, *args)
            if self.replicas:
                pipe.execute_command("WAIT", self.replicas, int(1000 * REPLICA_SECONDS))  # type: ignore[no-untyped-call]
            done, *there = answers = pipe.execute(raise_on_error=False)  # else errors would repeat all values
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        if done and there and there[0] < self.replicas:
            raise StoreError(f"Redis: {there[0]} of {self.replicas} replicas have a change after {REPLICA_SECONDS:g} s")
        return bool(done)

    def inspect(self) -> list[str]:
        """Check that this Redis keeps what it is given. Raises ConfigError if it may drop any of it."""
        if _ask(self.connection.info, "cluster", "cluster_enabled") == "1":
            raise ConfigError(
                "this Redis is a node of a cluster, which befa941 is the last commit to use: give a single one"
            )
        setting, info = self.connection.config_get, self.connection.info  # fewer users may ask for settings
        policy = _read_policy(self.connection)
        log = _ask(setting, "appendonly") or {"0": "no", "1": "yes"}.get(_ask(info, "persistence", "aof_enabled"), "")
        sync = _ask(setting, "appendfsync")
        if policy.startswith(EVICTING):
            raise ConfigError(DROPS.format(policy=policy))
        warnings = {
            "its maxmemory-policy cannot be read: it must be noeviction, or stored values may be lost": not policy,
            "it cannot be read whether appendonly is on: it must be": not log,
            "appendonly is off: all that was acknowledged may be lost when Redis stops. Set appendonly yes": log
            == "no",
            "its appendfsync cannot be read: with anything but always, its machine may lose the last moments": not sync,
            "appendfsync is no: its machine may lose the last half minute": log == "yes" and sync == "no",
        }
        return [f"Redis: {warning}" for warning, so in warnings.items() if so]

    def check(self) -> None:
        """Write something and read it back, and see that nothing is dropped: the policy may have been changed."""
        super().check()
        if (policy := _read_policy(self.connection)).startswith(EVICTING):
            raise StoreError(DROPS.format(policy=policy))

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
        """Run `work` in one atomic transaction; again, if another changed the store in between."""
        return self._repeat(work, writing=True)

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Run work that only reads; again, if another changed the store in between."""
        return self._repeat(work, writing=False)

    def _repeat(self, work: Callable[[Transaction], Result], *, writing: bool) -> Result:
        end, tries = time.monotonic() + SECONDS, 0
        with _errors():
            while True:
                try:
                    return self._transact(work, writing=writing)
                except _Conflict:
                    tries += 1
                    if time.monotonic() > end:
                        raise StoreError(f"Redis: too many changes at once, gave up after {tries} tries") from None
                    time.sleep(random.uniform(0, 0.0005 * min(tries, 40)))

    def clear(self) -> None:
        """Forget everything."""
        with _errors():
            self.database.run(CLEAR, [self.hash], [])

    def _transact(self, work: Callable[[Transaction], Result], *, writing: bool) -> Result:
        reading = _RedisReading(self)
        changes = Changes(reading.read, reading.scan)
        result = work(changes)
        # What work found made already must be at the replicas, too: a try before this one may have failed at that.
        if changes.made or (writing and self.database.replicas):
            parts, gone = list[str | bytes](), list[str]()
            for key, value in changes.made.items():
                if value is None:
                    gone.append(key)
                else:
                    parts += key, value
            args = [reading.version(), os.urandom(8).hex(), len(parts) // 2, *parts, *gone]
            if not self.database.run(CHANGE, [self.hash], args):
                raise _Conflict
        return result


class _RedisReading:
    """The reads of one transaction: all of one version."""

    def __init__(self, store: RedisStore) -> None:
        self._store, self._connection = store, store.database.connection
        self._version = b""  # not known yet

    def version(self) -> bytes:
        """The store's version."""
        if not self._version:
            self._ask([])
        return self._version

    def read(self, keys: Sequence[str]) -> list[bytes | None]:
        """The values of these keys."""
        return self._ask([_value(key) for key in keys])

    def scan(self, prefix: str) -> Iterator[tuple[str, bytes]]:
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
    """A value from a command's answer; nothing where this user may not ask."""
    with _errors(), suppress(redis.ResponseError):
        return str(command(about).get(name or about, ""))
    return ""


def _read_policy(server: "redis.Redis") -> str:
    return _ask(server.config_get, "maxmemory-policy") or _ask(server.info, "memory", "maxmemory_policy")


def _where(url: str) -> str:
    """Host and port of an address that makes no sense; never a password."""
    scheme, _, rest = url.partition("://")
    place = re.split("[/?#]", rest.rpartition("@")[2])[0]
    return f"{scheme}://…" if place.startswith(":") else f"{scheme}://{place}"


def _value(key: str) -> bytes:
    return f".{key}".encode()


def _split(url: str) -> tuple[str, int]:
    """An address without its option `replicas`, and the value of that. Raises ValueError."""
    address, _, query = url.partition("?")
    options = parse_qs(query, strict_parsing=bool(query))
    replicas = options.pop("replicas", ["0"])
    if len(replicas) > 1 or not (replicas[0].isascii() and replicas[0].isdigit()):
        raise ValueError(replicas)
    return f"{address}?{urlencode(options, doseq=True)}" if options else address, int(replicas[0])


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except redis.RedisError as error:
        raise StoreError(f"Redis: {error}") from error
