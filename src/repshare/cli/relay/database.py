"""The database that a command of an operator works on: a file (--db), or Redis (--redis)."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from repshare.errors import ConfigError
from repshare.relay.auth import Access
from repshare.relay.monitoring.audit_log import AuditLog
from repshare.relay.tasks import OpenTask, Tasks
from repshare.stores import REDIS, Database, open_database

FILE_VARIABLE, REDIS_VARIABLE, AUDIT_VARIABLE = "REPSHARE_DB", "REPSHARE_REDIS", "REPSHARE_AUDIT_LOG"
MEMORY, USUAL_FILE = "memory", "relay.db"


class Stored(NamedTuple):
    """The stored state of a relay, and the log of accepted actions."""

    place: str  # for people: a path, or Redis without its password
    database: Database
    tasks: Tasks
    access: Access
    audit: AuditLog

    def get_task(self, name: str) -> OpenTask:
        """Return the task of this name. Raises ConfigError that says where it was looked for."""
        opened = self.tasks.find(name)
        if opened is None:
            raise ConfigError(f"there is no task {name[:80]!r} in {self.place}")
        return opened


@dataclass(frozen=True)
class DatabaseOptions:
    """The database of a relay."""

    db: str | None = None
    """Database file; or `memory`, which ends with the process. Commands that only read or delete never create one.
    Default: the environment variable REPSHARE_DB, else relay.db."""
    redis: str | None = None
    """Redis instead of a file, for several relays side by side, such as redis://host:port/0. A cluster:
    redis+cluster://host:port,host:port?replicas=1, which acknowledges nothing that one replica does not have, too.
    Other users can see command lines: to hide a password, set the environment variable REPSHARE_REDIS instead."""

    audit_log: str | None = None
    """Write accepted actions (created, invited, published …) to this file as JSON lines; `-` for standard output.
    Default: the environment variable REPSHARE_AUDIT_LOG, else no log."""

    @contextmanager
    def open(self, *, create: bool = False, audited: bool = True) -> Iterator[Stored]:
        """Open the database for the length of a block; if something may be done in it, the audit log before.

        `create`: make a file that does not exist. Otherwise that is a ConfigError, which names it.
        """
        place = self.find()
        if not create and place != MEMORY and not place.startswith(REDIS) and not Path(place).is_file():
            raise ConfigError(
                f"there is no database {shown(place)}: name it with --db or {FILE_VARIABLE}, or create a task, "
                "which makes one"
            )
        audit = self.open_audit_log() if audited else AuditLog(None)
        with closing(open_database(place)) as database:
            yield Stored(shown(place), database, Tasks(database), Access(database), audit)

    def open_audit_log(self) -> AuditLog:
        """Return the log of accepted actions."""
        return AuditLog(self.audit_log or os.environ.get(AUDIT_VARIABLE) or None)

    def find(self) -> str:
        """Return the database's path or address: from the options, else from the environment."""
        chosen = [each for each in (self.db, self.redis) if each]
        if not chosen:
            chosen = [value for name in (FILE_VARIABLE, REDIS_VARIABLE) if (value := os.environ.get(name))]
        if len(chosen) > 1:
            given = "--db and --redis are" if self.db else f"{FILE_VARIABLE} and {REDIS_VARIABLE} are"
            raise ConfigError(f"{given} both given: a relay has one database")
        redis = self.redis or (os.environ.get(REDIS_VARIABLE) if self.db is None else None)
        if redis and not redis.startswith(REDIS):
            raise ConfigError(
                f"--redis and {REDIS_VARIABLE} must begin with redis:// or rediss:// (a cluster: redis+cluster://)"
            )  # may be a password
        return chosen[0] if chosen else USUAL_FILE


def shown(place: str) -> str:
    """Return a database's place for people: a path from the root, or Redis without a password."""
    if place.startswith(REDIS):
        scheme, _, rest = place.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
    return "memory" if place == MEMORY else str(Path(place).absolute())
