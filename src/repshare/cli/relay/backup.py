"""`repshare relay backup`, `restore` and `check`: copies of a relay's database, and damage in it."""

import sys
from pathlib import Path

from repshare.cli.relay.database import MEMORY, DatabaseOptions, open_audit_log, shown
from repshare.errors import ConfigError, StoreError
from repshare.relay.auth import Access
from repshare.relay.checking import check_all
from repshare.relay.tasks import Tasks
from repshare.stores import REDIS, Database
from repshare.stores.copies import back_up
from repshare.stores.copies import restore as restore_file


def backup(file: Path, /, storage: DatabaseOptions, replace: bool = False) -> None:
    """Copy everything that a relay keeps to one file, also while it is running: tasks, releases and tokens' hashes.

    repshare relay backup monday.db

    repshare relay backup relay-backup.db --replace    (for a job that runs every night)

    The file is as the database was at one moment. It is there whole or not at all, and only you can read it.

    Args:
        file: The file to write.
        replace: Replace the file if it exists, once the new one is complete.
    """
    if file.exists() and not replace:
        raise ConfigError(f"{file} already exists: choose another name, or --replace it")
    with storage.open() as relay:
        if (database := relay.database.path) is None:
            raise ConfigError(f"{relay.place} is no file: see docs/relay.md for backups of Redis")
        if database.absolute() == file.absolute():
            raise ConfigError(f"{file} is the database itself")
        back_up(database, file)
        relay.audit.note_operator("backup", file=str(file))
        what = _describe(relay.database)
    print(f"{what} copied to {file}", file=sys.stderr)


def restore(file: Path, /, storage: DatabaseOptions, replace: bool = False) -> None:
    """Make a relay's database (--db) from a backup, once all of it has been read and is consistent.

    repshare relay restore monday.db

    repshare relay restore monday.db --db /var/lib/repshare/relay.db --replace    (stop the relay first)

    Tokens that were revoked after the backup are valid again.

    Args:
        file: The backup. It stays as it is.
        replace: Replace the database if it exists. What is in it is lost.
    """
    place, what = storage.find(), ""
    if place == MEMORY or place.startswith(REDIS):
        raise ConfigError(f"{shown(place)} is no file: a backup is restored to a file, see docs/relay.md for Redis")
    audit = open_audit_log()

    def check_copy(database: Database) -> None:
        nonlocal what
        for finding in check_all(database):
            raise StoreError(
                f"{file} is damaged ({finding.where}: {finding.key}: {finding.reason}), nothing was restored: restore "
                f"an older backup; repshare relay check --db {file} names all of the damage"
            )
        what = _describe(database)

    restore_file(file, Path(place), check_copy, replace=replace)
    audit.note_operator("restore", file=str(file))
    print(
        f"{what} restored to {shown(place)}. Tokens revoked since the backup are valid again: see "
        "repshare relay tasks list",
        file=sys.stderr,
    )


def _describe(database: Database) -> str:
    return f"{len(Tasks(database).entries())} tasks and {len(Access(database).entries())} tokens"


def check(storage: DatabaseOptions) -> None:
    """Read everything that a relay has stored, and report what is damaged. The exit code is 1 if anything is.

    repshare relay check    (also while the relay is running)

    A relay refuses what needs a damaged value, and logs which; this command looks at everything. The cure is a backup.
    """
    with storage.open(audited=False) as relay:
        findings = list(check_all(relay.database))
    for finding in findings:
        print(f"{finding.where}: {finding.key}: {finding.reason}")
    if findings:
        raise StoreError(f"{len(findings)} stored values are damaged: restore a backup (repshare relay restore)")
    print("everything that is stored can be read and is consistent", file=sys.stderr)
