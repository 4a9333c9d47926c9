"""The database that a command of an operator works on: a file, or Redis."""

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

VARIABLE, AUDIT_VARIABLE, OLD_VARIABLE = "REPSHARE_DB", "REPSHARE_AUDIT_LOG", "REPSHARE_REDIS"
MEMORY, USUAL_FILE = "memory", "relay.db"


class Stored(NamedTuple):
    """The stored state of a relay, and the log of accepted actions."""

    place: str  # for people: a path, or Redis without its password
    database: Database
    tasks: Tasks
    access: Access
    audit: AuditLog

    def get_task(self, name: str) -> OpenTask:
        """The task of this name. Raises ConfigError that says where it was looked for."""
        opened = self.tasks.find(name)
        if opened is None:
            raise ConfigError(f"there is no task {name[:80]!r} in {self.place}")
        return opened


@dataclass(frozen=True)
class DatabaseOptions:
    """The database of a relay."""

    db: str | None = None
    """Database file; `memory`, which ends with the process; or Redis, for several relays side by side, such as
    redis://host:port/0; with ?replicas=1 nothing is acknowledged that one replica does not have, too.
    Commands that only read or delete never create a file.
    Default: the environment variable REPSHARE_DB, else relay.db. Other users can see command lines: hide a password
    in the variable."""

    @contextmanager
    def open(self, *, create: bool = False, audited: bool = True, audit_log: str | None = None) -> Iterator[Stored]:
        """Open the database for the length of a block; if something may be done in it, the audit log before.

        `create`: make a file that does not exist. Otherwise that is a ConfigError, which names it.
        """
        place = self.find()
        if not create and place != MEMORY and not place.startswith(REDIS) and not Path(place).is_file():
            raise ConfigError(
                f"there is no database {shown(place)}: name it with --db or {VARIABLE}, or create a task, "
                "which makes one"
            )
        audit = open_audit_log(audit_log) if audited else AuditLog(None)
        with closing(open_database(place)) as database:
            database.inspect()  # one that may drop what it is given is refused
            yield Stored(shown(place), database, Tasks(database), Access(database), audit)

    def find(self) -> str:
        """The database's path or address: from the option, else from the environment."""
        if os.environ.get(OLD_VARIABLE):
            raise ConfigError(f"{OLD_VARIABLE} is not read any more: rename it to {VARIABLE}")
        chosen = self.db or os.environ.get(VARIABLE) or USUAL_FILE
        if "://" in chosen and not chosen.startswith(REDIS):  # it may hold a password: not shown
            known = "redis:// or rediss:// (befa941 is the last commit that uses a Redis Cluster)"
            raise ConfigError(f"the address in --db or {VARIABLE} must begin with {known}")
        return chosen


def open_audit_log(path: str | None = None) -> AuditLog:
    """The log of accepted actions: by default the one that the environment names, if it does."""
    return AuditLog(path or os.environ.get(AUDIT_VARIABLE) or None)


def shown(place: str) -> str:
    """A database's place for people: a path from the root, or Redis without a password."""
    if place.startswith(REDIS):
        scheme, _, rest = place.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
    return "memory" if place == MEMORY else str(Path(place).absolute())
