"""Files that are there whole or not at all, files that only their owner may read, and locks between processes."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from filelock import lock_descriptor

from repshare.errors import ConfigError

OWNER_ONLY = 0o600
HAS_MODES = os.name == "posix"  # on Windows a file is as private as its folder, and its mode says nothing
LOCK_POLL_SECONDS = 0.005
PART = ".part"  # the end of the name of a file that is being written


def write_atomically(path: Path, content: str | bytes, *, private: bool = False) -> None:
    """Write the whole content, or leave the file as it was.

    `private`: only the owner may read it. Otherwise a file that was there keeps its mode.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{PART}")
    try:
        temporary.unlink(missing_ok=True)  # left by a killed process; or a link, through which nothing is written
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(os.open(temporary, how, OWNER_ONLY if private else 0o666), "wb") as file:
            if HAS_MODES and not private and path.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def explain_errors(what: str) -> Iterator[None]:
    """Raise ConfigError where the system refuses something: `what`, and the system's reason."""
    try:
        yield
    except OSError as error:  # ssl.SSLError is one, too
        raise ConfigError(f"{what}: {error.strerror or error}") from error


def open_private(path: Path, mode: str) -> IO[Any]:
    """Open a file that only its owner may read, also if it was there before and others could."""
    file = open(path, mode, opener=lambda name, flags: os.open(name, flags, OWNER_ONLY))  # noqa: SIM115
    if HAS_MODES and os.fstat(file.fileno()).st_mode & 0o077:
        os.fchmod(file.fileno(), OWNER_ONLY)
    return file


def others_may_read(path: Path) -> bool:
    """Whether other users of this machine may read the file, as far as its mode says so."""
    return HAS_MODES and bool(path.stat().st_mode & 0o077)


def lock(file: IO[Any], *, wait: bool = True) -> bool:
    """Lock an open file until it is closed or its process ends, however that happens. Whether that worked.

    `wait` for another process that has locked it; otherwise it does not work.
    """
    return lock_descriptor(file.fileno(), blocking=wait, poll_interval=LOCK_POLL_SECONDS)


def sync_folder(path: Path) -> None:
    """Make durable that a file in this folder was created or renamed. Windows has no such call."""
    if os.name == "nt":
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
