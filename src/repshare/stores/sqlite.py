"""Stores in one SQLite file: durable, nothing to install, open to several processes at once."""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Literal

from repshare.errors import StoreError
from repshare.stores.memory import Changes, only_read
from repshare.stores.store import Database, Result, Store, Transaction

BUSY_SECONDS = 10.0
AT_ONCE = 500  # keys in one query
Purpose = Literal["write", "read", "glance"]
CONNECTIONS: dict[Purpose, tuple[int, float]] = {
    "write": (1, BUSY_SECONDS),
    "read": (2, BUSY_SECONDS),
    "glance": (1, 0),
}
"""How many there are, and the seconds that each waits for another process."""

SETUP = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA wal_autocheckpoint = 4000;
CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, value BLOB NOT NULL);
"""
FORMAT = 2  # PRAGMA user_version. 1: with a checksum in each row
UPGRADE = "ALTER TABLE kept DROP COLUMN checksum"  # earlier versions refuse the file then

# A row that is replaced stays where it is, next to those that were first written with it: fewer pages change.
INSTEAD = "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
ROWS = 64  # in one statement: between statements, and rows of executemany, another thread takes its turn
LONG_BYTES = 4096  # of a value that gets a statement of its own: one with several rows copies their values


class SqliteDatabase(Database):
    """One file. A transaction is on the disk when it ends, and survives a crash and a power cut."""

    slow, near = True, True

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            make_private(path)
            # Readers do not wait until what another thread writes is on the disk; and there are two, so that a short
            # read does not wait for a long one.
            # One is for those who must not wait at all.
            self._pools = {each: _connect(path, *how) for each, how in CONNECTIONS.items()}
        except sqlite3.Error as error:
            raise StoreError(f"{path}: {error}") from error
        self._upgrade()

    def store(self, name: str) -> "SqliteStore":
        """Return the store of this name."""
        return SqliteStore(self, name)

    def find_faults(self) -> list[str]:
        """Return what SQLite's own check of the file finds."""
        with self.begin("DEFERRED", "read") as connection:
            return [text for (text,) in connection.execute("PRAGMA integrity_check") if text != "ok"]

    def close(self) -> None:
        """Close the file, once no thread uses it."""
        for kind, pool in self._pools.items():
            for connection in [pool.get() for _ in range(CONNECTIONS[kind][0])]:
                connection.close()
                pool.put(connection)  # later users get SQLite's error that it is closed

    def _upgrade(self) -> None:
        with self.begin("DEFERRED", "read") as connection:
            (format,) = connection.execute("PRAGMA user_version").fetchone()
        if format > FORMAT:
            raise StoreError(
                f"{self.path} was written by a later version of repshare: it has format {format}, and this version "
                f"reads formats up to {FORMAT}. Update repshare, or restore a backup that this version made"
            )
        if format < FORMAT:
            with self.begin() as connection:  # another process may have done it meanwhile
                if "checksum" in [row[1] for row in connection.execute("PRAGMA table_info(kept)")]:
                    connection.execute(UPGRADE)
                connection.execute(f"PRAGMA user_version = {FORMAT}")

    @contextmanager
    def begin(
        self, how: str = "IMMEDIATE", to: Purpose = "write", *, waiting: bool = True
    ) -> Iterator[sqlite3.Connection]:
        """Yield a transaction of SQLite's: kept if the block ends without an error.

        Not `waiting`: raise StoreError rather than wait until another thread or process has written.
        """
        pool = self._pools[to]
        try:
            connection = pool.get(waiting)  # no other thread has it now
        except Empty:
            raise StoreError(f"{self.path}: another thread writes") from None
        try:
            if waiting:
                connection.execute(f"BEGIN {how}")
            else:
                _begin_at_once(connection, how)
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            _roll_back(connection)
            busy = getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY")
            if busy and how == "DEFERRED" and to == "write":
                raise _Busy from error
            raise StoreError(f"{self.path}: {error}") from error
        except BaseException:
            _roll_back(connection)
            raise
        finally:
            pool.put(connection)


def _connect(path: Path, count: int, seconds: float) -> "SimpleQueue[sqlite3.Connection]":
    """Return this many connections to the file."""
    pool = SimpleQueue[sqlite3.Connection]()
    for _ in range(count):
        connection = sqlite3.connect(
            path, timeout=seconds, isolation_level=None, check_same_thread=False, cached_statements=1000
        )
        connection.executescript(SETUP)
        pool.put(connection)
    return pool


def make_private(path: Path) -> None:
    """Make the file, if it does not exist, for its owner alone. What SQLite makes next to it gets the same mode."""
    with suppress(OSError):  # it exists; or it cannot be made, which SQLite will report
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _roll_back(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):  # SQLite may have done so itself; a closed file has nothing to roll back
        connection.execute("ROLLBACK")


def _begin_at_once(connection: sqlite3.Connection, how: str) -> None:
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        connection.execute(f"BEGIN {how}")
    finally:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")


class _Busy(Exception):
    """Another process came in between."""


class SqliteStore(Store):
    """The keys of a database that begin with the store's name."""

    def __init__(self, database: SqliteDatabase, name: str) -> None:
        self.database, self.name, self.prefix = database, name, f"{name}/"

    def transact(self, work: Callable[[Transaction], Result]) -> Result:
        """Do this work alone, all of it or nothing."""
        try:
            return self._transact(work, "DEFERRED")  # readers need not wait for a writer in another process
        except _Busy:  # another process writes, or wrote after this one had read: begin again, as a writer
            return self._transact(work, "IMMEDIATE")

    def prepare(self, work: Callable[[Transaction], Result]) -> Callable[[], Result]:
        """Do this work now, without waiting for others; the function that is returned has it on the disk."""
        with ExitStack() as stack:
            connection = stack.enter_context(self.database.begin(waiting=False))
            result = self._work(connection, work)
            commit = stack.pop_all()

        def finish() -> Result:
            commit.close()
            return result

        return finish

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Do work that only reads, while another may write."""
        with self.database.begin("DEFERRED", "read") as connection:
            return only_read(work, self._changes(connection))

    def glance(self, work: Callable[[Transaction], Result]) -> Result:
        """Do work that reads a little, without waiting for others."""
        with self.database.begin("DEFERRED", "glance") as connection:
            return only_read(work, self._changes(connection))

    def clear(self) -> None:
        """Forget everything."""
        with self.database.begin() as connection:
            connection.execute("DELETE FROM kept WHERE key >= ? AND key < ?", _range(self.prefix))

    def _transact(self, work: Callable[[Transaction], Result], how: str) -> Result:
        with self.database.begin(how) as connection:
            return self._work(connection, work)

    def _work(self, connection: sqlite3.Connection, work: Callable[[Transaction], Result]) -> Result:
        changes = self._changes(connection)
        result = work(changes)
        kept = [(self.prefix + key, value) for key, value in changes.written()]
        short = [row for row in kept if len(row[1]) < LONG_BYTES]
        parts = [short[start : start + ROWS] for start in range(0, len(short), ROWS)]
        for part in parts + [[row] for row in kept if len(row[1]) >= LONG_BYTES]:
            marks = ",".join(["(?,?)"] * len(part))
            connection.execute(f"INSERT INTO kept VALUES {marks} {INSTEAD}", [x for row in part for x in row])
        if gone := [(self.prefix + key,) for key in changes.deleted()]:
            connection.executemany("DELETE FROM kept WHERE key = ?", gone)
        return result

    def _changes(self, connection: sqlite3.Connection) -> Changes:
        return Changes(lambda keys: self._read(connection, keys), lambda prefix: self._scan(connection, prefix))

    def _read(self, connection: sqlite3.Connection, keys: Sequence[str]) -> list[bytes | None]:
        found = dict[str, bytes]()
        for start in range(0, len(keys), AT_ONCE):
            part = [self.prefix + key for key in keys[start : start + AT_ONCE]]
            marks = ",".join("?" * len(part))
            found.update(self._select(connection, f"key IN ({marks})", part))
        return [found.get(key) for key in keys]

    def _scan(self, connection: sqlite3.Connection, prefix: str) -> Iterator[tuple[str, bytes]]:
        return self._select(connection, "key >= ? AND key < ?", _range(self.prefix + prefix))

    def _select(self, connection: sqlite3.Connection, which: str, values: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        for key, value in connection.execute(f"SELECT key, value FROM kept WHERE {which}", values):
            yield key.removeprefix(self.prefix), value


def _range(prefix: str) -> tuple[str, str]:
    """Return the bounds of the keys with this prefix: from the first one on, and below the second."""
    return prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)
