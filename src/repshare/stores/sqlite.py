"""Stores in one SQLite file: durable, nothing to install, open to several processes at once."""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Literal

from repshare.errors import StoreError
from repshare.stores.store import Changes, Database, Result, Store, Transaction, only_read

BUSY_SECONDS = 10.0
AT_ONCE = 500  # keys in one query
Purpose = Literal["write", "read"]

SETUP = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA wal_autocheckpoint = 4000;
CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, value BLOB NOT NULL);
"""
FORMAT = 3  # PRAGMA user_version

# A row that is replaced stays where it is, next to those that were first written with it: fewer pages change.
INSTEAD = "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
ROWS = 64  # in one statement: between statements, and rows of executemany, another thread takes its turn


class SqliteDatabase(Database):
    """One file. A transaction is on the disk when it ends, and survives a crash and a power cut."""

    path: Path

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            make_private(path)
            self._free: dict[Purpose, SimpleQueue[sqlite3.Connection]] = {"write": SimpleQueue(), "read": SimpleQueue()}
            self._free["write"].put(_connect(path))
            self._readers = list[sqlite3.Connection]()  # as many as ever read at the same time
        except sqlite3.Error as error:
            raise StoreError(f"{path}: {error}") from error
        self._check_format()

    def store(self, name: str) -> "SqliteStore":
        """The store of this name."""
        return SqliteStore(self, name)

    def find_faults(self) -> list[str]:
        """Faults that SQLite's own check of the file finds."""
        with self.begin("read") as connection:
            return [text for (text,) in connection.execute("PRAGMA integrity_check") if text != "ok"]

    def close(self) -> None:
        """Close the file, once no thread uses it."""
        for free, count in ((self._free["write"], 1), (self._free["read"], len(self._readers))):
            for connection in [free.get() for _ in range(count)]:
                connection.close()
                free.put(connection)  # later users get SQLite's error that it is closed

    def _check_format(self) -> None:
        """Raise StoreError if the file is another version's. A new one gets this version's format."""
        with self.begin("read") as connection:
            (format,) = connection.execute("PRAGMA user_version").fetchone()
            empty = connection.execute("SELECT 1 FROM kept LIMIT 1").fetchone() is None
        if format > FORMAT:
            raise StoreError(
                f"{self.path} was written by a later version of repshare: it has format {format}, and this version "
                f"reads format {FORMAT}. Update repshare, or restore a backup that this version made"
            )
        if format == 0 and empty:
            with self.begin() as connection:
                connection.execute(f"PRAGMA user_version = {FORMAT}")
        elif format < FORMAT:
            raise StoreError(
                f"{self.path} was written by an earlier version of repshare: it has format {format}, which commit "
                "15ddcbb is the last to upgrade. Open it there once, with repshare relay check"
            )

    @contextmanager
    def begin(self, to: Purpose = "write") -> Iterator[sqlite3.Connection]:
        """Yield a transaction of SQLite's: kept if the block ends without an error."""
        free = self._free[to]
        connection = free.get() if to == "write" else self._take_reader()  # no other thread has it now
        try:
            connection.execute("BEGIN IMMEDIATE" if to == "write" else "BEGIN")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            _roll_back(connection)
            raise StoreError(f"{self.path}: {error}") from error
        except BaseException:
            _roll_back(connection)
            raise
        finally:
            free.put(connection)

    def _take_reader(self) -> sqlite3.Connection:
        """A connection that no thread reads from: a read waits neither for a writer nor for longer reads."""
        try:
            return self._free["read"].get_nowait()
        except Empty:
            try:
                connection = _connect(self.path)
            except sqlite3.Error as error:
                raise StoreError(f"{self.path}: {error}") from error
            self._readers.append(connection)
            return connection


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=1000
    )
    connection.executescript(SETUP)
    return connection


def make_private(path: Path) -> None:
    """Make the file, if it does not exist, for its owner alone. What SQLite makes next to it gets the same mode."""
    with suppress(OSError):  # it exists; or it cannot be made, which SQLite will report
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _roll_back(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):  # SQLite may have done so itself; a closed file has nothing to roll back
        connection.execute("ROLLBACK")


class SqliteStore(Store):
    """The keys of a database that begin with the store's name."""

    def __init__(self, database: SqliteDatabase, name: str) -> None:
        self.database, self.name, self.prefix = database, name, f"{name}/"

    def transact(self, work: Callable[[Transaction], Result]) -> Result:
        """Run `work` in one atomic transaction. Readers need not wait."""
        with self.database.begin() as connection:
            changes = Changes(partial(self._read, connection), partial(self._scan, connection))
            result = work(changes)
            gone = [(self.prefix + key,) for key, value in changes.made.items() if value is None]
            connection.executemany("DELETE FROM kept WHERE key = ?", gone)
            kept = [(self.prefix + key, value) for key, value in changes.made.items() if value is not None]
            for start in range(0, len(kept), ROWS):
                part = kept[start : start + ROWS]
                marks = ",".join(["(?,?)"] * len(part))
                connection.execute(f"INSERT INTO kept VALUES {marks} {INSTEAD}", [each for row in part for each in row])
            return result

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Run work that only reads, while another may write."""
        with self.database.begin("read") as connection:
            return only_read(work, Changes(partial(self._read, connection), partial(self._scan, connection)))

    def clear(self) -> None:
        """Forget everything."""
        with self.database.begin() as connection:
            connection.execute("DELETE FROM kept WHERE key >= ? AND key < ?", _range(self.prefix))

    def _read(self, connection: sqlite3.Connection, keys: Sequence[str]) -> list[bytes | None]:
        found, names = dict[str, bytes](), list(map(self.prefix.__add__, keys))
        for start in range(0, len(names), AT_ONCE):
            part = names[start : start + AT_ONCE]
            marks = ",".join("?" * len(part))
            found.update(connection.execute(f"SELECT key, value FROM kept WHERE key IN ({marks})", part))
        return list(map(found.get, names))

    def _scan(self, connection: sqlite3.Connection, prefix: str) -> Iterator[tuple[str, bytes]]:
        asked = "SELECT key, value FROM kept WHERE key >= ? AND key < ?"
        for key, value in connection.execute(asked, _range(self.prefix + prefix)):
            yield key.removeprefix(self.prefix), value


def _range(prefix: str) -> tuple[str, str]:
    """The bounds of the keys with this prefix: from the first one on, and below the second."""
    return prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)
