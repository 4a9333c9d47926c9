"""Copies of a SQLite file: made while it is in use, whole or not at all, and put in the place of another."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from glob import escape
from pathlib import Path

from repshare.errors import ConfigError, StoreError
from repshare.files import HAS_MODES, PART, explain_errors, lock, sync_folder
from repshare.stores.sqlite import SqliteDatabase, make_private
from repshare.stores.store import Database

BESIDE = ("-wal", "-shm", "-journal")  # files that SQLite keeps next to a database


def back_up(file: Path, copy: Path) -> None:
    """Copy a database that may be in use, as it is at one moment, to a file of its own that only its owner may read."""
    try:
        with _replacing(copy) as temporary:
            _copy(file, temporary)
    except sqlite3.Error as error:
        raise StoreError(f"{copy} cannot be written: {error}") from error


def restore(backup: Path, path: Path, check: Callable[[Database], None], *, replace: bool) -> None:
    """Make a database from a backup, once `check` has accepted the copy. The backup itself is only read.

    Raises ConfigError if there is one already, unless `replace`; and if that one is in use.
    """
    if not backup.is_file():
        raise ConfigError(f"there is no file {backup}")
    if path.exists() and path.samefile(backup):
        raise ConfigError(f"{backup} is the database itself")
    if path.exists() and not replace:
        raise ConfigError(f"{path} already exists: restore to another --db, or say --replace to lose what is in it")
    with _replacing(path) as temporary:
        try:
            _copy(backup, temporary)
        except sqlite3.Error as error:
            raise ConfigError(f"{backup} cannot be read: {error}") from error
        try:
            with closing(SqliteDatabase(temporary)) as database:
                check(database)
        except StoreError as error:
            raise StoreError(str(error).replace(str(temporary), str(backup))) from error
        _release(path)


def _copy(source: Path, copy: Path) -> None:
    """Copy a database to an empty file, which can be read from anywhere: without a log beside it."""
    address = f"{source.absolute().as_uri()}?mode=rw"
    with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as opened:
        if not opened.execute("SELECT name FROM sqlite_master WHERE name = 'kept'").fetchone():
            raise ConfigError(f"{source} is not a relay's database")
        opened.execute("VACUUM INTO ?", (str(copy),))


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yield a file to write. It takes this path's place if the block ends without an error, and else is removed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{PART}")
    try:
        with explain_errors(f"{path} cannot be written"), ExitStack() as stack:
            _remove_left_over(path)
            temporary.unlink(missing_ok=True)
            make_private(temporary)
            if HAS_MODES:
                lock(stack.enter_context(temporary.open("rb")))
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
    finally:
        _remove(temporary)


def _remove_left_over(path: Path) -> None:
    """Remove unfinished copies whose process was killed: nobody locks them any more."""
    for left in path.parent.glob(f".{escape(path.name)}.*{PART}") if HAS_MODES else ():
        with left.open("rb") as file:
            if lock(file, wait=False):
                _remove(left)


def _remove(copy: Path) -> None:
    for end in ("", *BESIDE):
        copy.with_name(copy.name + end).unlink(missing_ok=True)


def _release(path: Path) -> None:
    """Make sure that nobody uses the database that is replaced, and remove what SQLite keeps next to it.

    A log that is left there would be applied to the file that comes in its place.
    """
    if path.exists():
        try:
            with closing(sqlite3.connect(path, timeout=0)) as connection:
                connection.execute("PRAGMA journal_mode = DELETE")  # fails while there are other connections
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise ConfigError(f"{path} is in use: stop the relay first") from error
    for end in BESIDE:
        path.with_name(path.name + end).unlink(missing_ok=True)
