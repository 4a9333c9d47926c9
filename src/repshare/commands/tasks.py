"""Create, list, export, import and delete tasks: the collaborations that go through a relay."""

import json as jsonlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from repshare.errors import ConfigError

if TYPE_CHECKING:
    from repshare.stores import Database

VARIABLE = "REPSHARE_REDIS"
Name = Annotated[str, tyro.conf.Positional]
Aggregation = Literal["mean", "median", "trimmed", "geometric"]


@dataclass(frozen=True)
class Place:
    """Where a relay keeps what it knows."""

    db: str | None = None
    """A file, made if it is not there; or `memory`, which ends with the process. Default: relay.db."""
    redis: str | None = None
    """Redis instead, for several relays side by side: redis://host:port/0.
    Without --redis and --db, the environment variable REPSHARE_REDIS: everyone on a machine can see command lines."""

    def address(self) -> str:
        """What `open_database` takes."""
        redis = self.redis or (os.environ.get(VARIABLE) if self.db is None else None)
        if redis and not redis.startswith(("redis://", "rediss://")):
            raise ConfigError(f"--redis and {VARIABLE} must begin with redis:// or rediss://")  # it may be a password
        return redis or self.db or "relay.db"


@dataclass(frozen=True)
class Values:
    """What a task's clients agree on."""

    classes: int | None = None
    """C, the number of classes."""
    dimension: int | None = None
    """d', the length of a representation."""
    norm_bound: float = 1000.0
    """Longer vectors are refused. Tanh features are never longer than √d'."""
    minimum_count: Annotated[int, tyro.conf.arg(aliases=("--min-count",))] = 2
    """Averages over fewer samples than this are refused: by default, single samples' features."""
    weighted: bool = True
    """Weigh a client's class mean by its samples; off, each client counts the same."""
    aggregation: Aggregation = "mean"
    """How clients' class means become one. All but mean bear some clients that lie.
    median: of each coordinate. trimmed: the mean without the largest and smallest fifth. geometric: the median."""
    max_age: float | None = None
    """Seconds after which a release is forgotten if no newer one came. Default: never."""


def create(name: Name, place: Place, values: Values) -> None:
    """Create a task. The same values again are fine; others are refused.

    repshare relay tasks create mnist --classes 10 --dimension 84

    repshare relay tasks create wards --classes 4 --dimension 128 --aggregation trimmed --minimum-count 20

    Args:
        name: The task's name.
        place: Where the relay keeps what it knows.
        values: What its clients agree on.
    """
    with opened(place) as database:
        create_task(database, name, values)


def list_tasks(place: Place, json: bool = False) -> None:
    """List the tasks, and who has a token.

    repshare relay tasks list

    repshare relay tasks list --json

    Args:
        place: Where the relay keeps what it knows.
        json: Print one JSON document on standard output and nothing else there.
    """
    from repshare.relay.access import Access
    from repshare.relay.tasks import Tasks

    with opened(place) as database:
        tokens = [entry.grant for entry in Access(database).entries()]
        tasks = Tasks(database)
        rows = [
            {
                "name": entry.name,
                **asdict(entry.task),
                "published": tasks.get(entry.name).board.status(limit=0).clients,
                "tokens": [grant.name for grant in tokens if grant.task == entry.name],
            }
            for entry in tasks.entries()
        ]
    everywhere = [{"name": grant.name, "role": grant.role} for grant in tokens if grant.task is None]
    if json:
        print_json({"tasks": rows, "tokens_for_all_tasks": everywhere})
        return
    for row in rows:
        invited = ", ".join(row["tokens"]) or "nobody"
        size = f"{row['classes']} classes of {row['dimension']} numbers, {row['aggregation']}"
        print(f"{row['name']}: {size}; {row['published']} published; invited: {invited}")
    if everywhere:
        print("for all tasks:", ", ".join(f"{token['name']} ({token['role']})" for token in everywhere))
    if not rows:
        print("no tasks yet: repshare relay tasks create NAME --classes C --dimension D", file=sys.stderr)


def export(name: Name, file: Annotated[Path, tyro.conf.Positional], place: Place) -> None:
    """Write a task, with all that is published in it, to a file. Tokens are not in it.

    repshare relay tasks export mnist mnist.task

    Args:
        name: The task's name.
        file: Where to.
        place: Where the relay keeps what it knows.
    """
    from repshare.relay.tasks import Tasks
    from repshare.results import write_atomically

    with opened(place) as database:
        write_atomically(file, Tasks(database).export(name))


def import_task(file: Annotated[Path, tyro.conf.Positional], place: Place, name: str | None = None) -> None:
    """Create a task from a file that `export` wrote.

    repshare relay tasks import mnist.task --redis redis://127.0.0.1:6379/0

    Args:
        file: The file.
        place: Where the relay keeps what it knows.
        name: Another name for the task. Default: the one that it had.
    """
    from repshare.relay.tasks import Tasks

    try:
        exported = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    with opened(place) as database:
        print(f"imported {Tasks(database).import_task(exported, name)}", file=sys.stderr)


def delete(name: Name, place: Place) -> None:
    """Delete a task with all that was published in it, and end its tokens.

    repshare relay tasks delete mnist

    Args:
        name: The task's name.
        place: Where the relay keeps what it knows.
    """
    from repshare.relay.tasks import Tasks

    with opened(place) as database:
        Tasks(database).delete(name)


def create_task(database: "Database", name: str, values: Values) -> None:
    """Create a task, and say so. One that is there needs no values."""
    from repshare.relay.tasks import Tasks
    from repshare.task import Task

    tasks = Tasks(database)
    if values.classes is None or values.dimension is None:
        if values == Values() and tasks.find(name) is not None:
            return
        raise ConfigError(f"a new task needs --classes and --dimension: {name} is not there yet")
    new = tasks.create(name, Task(**asdict(values)))
    print(f"task {name} {'created' if new else 'is there already'}", file=sys.stderr)


@contextmanager
def opened(place: Place) -> "Iterator[Database]":
    """The database at this place, closed in the end."""
    from repshare.stores import open_database

    database = open_database(place.address())
    try:
        yield database
    finally:
        database.close()


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    print(jsonlib.dumps(document, indent=2))
