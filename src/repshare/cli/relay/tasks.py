"""Create, list and delete tasks: the collaborations that go through a relay."""

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, make_dataclass, replace
from json import loads as parse_json
from pathlib import Path
from typing import Annotated, Any

from repshare.cli.parsing import Json, print_json
from repshare.cli.relay.database import DatabaseOptions, Stored
from repshare.cli.relay.people import UNTIL_NOTICED_SECONDS
from repshare.config import SpaceLoss
from repshare.errors import ConfigError
from repshare.fields import check_least
from repshare.relay.auth import TokenEntry
from repshare.relay.tasks import OpenTask, make_task
from repshare.sharing.columns import bound_inputs, read_columns
from repshare.sharing.task import describe_fields


def _options() -> Iterator[tuple[str, Any, Any]]:
    """Yield an option for each field of a task that does not come from a client's space."""
    for name, kind, default, help in describe_fields():
        if default is ...:
            kind, default, help = kind | None, None, f"{help} A new task needs it."
        if name not in ("space", "format", "description"):
            yield name, Annotated[kind, help], field(default=default)


@dataclass(frozen=True)
class TaskValues(make_dataclass("TaskValues", _options(), frozen=True)):  # type: ignore[misc]
    """The values that a task's clients agree on: the fields of `Task`."""


@dataclass(frozen=True)
class AgreementOptions:
    """A common space (CS), for a task whose clients learn one classifier: --input-shape or --columns asks for it."""

    input_shape: tuple[int, ...] = ()
    """Shape of a sample: channels, height and width of an image, or the length of a vector."""
    input_range: tuple[float, float] | None = None
    """The least and the largest value of an input, such as 0 255. Inputs of clients must be in it.
    Default: all clients bring inputs to about −4 … 4 by the same constants, which are nobody's data."""
    columns: Path | None = None
    """CSV file that describes the columns of a table, one in each row: name, unit, least, largest, categories, missing.
    Categories are divided by |. What is in `missing` stands for a missing value; without it, its row is left out.
    Clients' tables are read by these names; each range is brought to −1 … 1."""
    class_names: tuple[str, ...] = ()
    """Names of the classes, in the order of their labels. A client with others is refused."""
    space: tuple[str, ...] = ()
    """The space: patches, fourier, efficientnet-lite0 (extra `backbone`), or your own module as file.py:function.
    A module gets fp32 of (n, channels, height, width) in 0 … 1, from --input-range; it resizes and normalises itself.
    The task pins its weights by a hash, and what it computes by a probe.
    Default: by the shape."""
    loss: SpaceLoss | None = None
    """Loss of the common classifier. discriminant is the one that takes --epsilon: clients share sums of classes.
    Default: squared, or what --samples-expected chooses."""
    shrinkage: float | None = None
    """Regularisation ρ / n of the common classifier. Default: by the clients' votes."""
    class_weights: tuple[float, ...] = ()
    """How much a sample of each class counts, such as 1 12 where the second is rare. Default: all count the same."""
    samples_expected: int | None = None
    """Samples that all clients together will have.
    With --members it chooses vectors and loss so that nobody can tell who is among them, and says how clients join."""
    members: int | None = None
    """Number of clients expected."""

    def __post_init__(self) -> None:
        check_least(self, samples_expected=1, members=1)
        if (self.samples_expected is None) != (self.members is None):
            raise ConfigError("--samples-expected and --members belong together: give both")


def create(name: str, /, storage: DatabaseOptions, values: TaskValues, common: AgreementOptions) -> None:
    """Create a task. If it exists, the values must be the same.

    repshare relay tasks create mnist --classes 10 --dimension 84

    repshare relay tasks create wards --classes 4 --dimension 128 --minimum-count 20

    repshare relay tasks create scans --input-shape 1 28 28 --input-range 0 255 --class-names healthy ill

    repshare relay tasks create scans --input-shape 1 28 28 --classes 2 --samples-expected 1200 --members 10

    repshare relay tasks create patients --columns columns.csv --class-names benign malignant

    Args:
        name: The task's name.
    """
    agreed = {} if common == AgreementOptions() else _agree(values, common)
    with storage.open(create=True) as relay:
        create_task(relay, name, values, **agreed)


def _agree(values: TaskValues, options: AgreementOptions) -> dict[str, Any]:
    """The values of a task that follow from a common space."""
    if bool(options.input_shape) == bool(options.columns):
        raise ConfigError("a common space needs --input-shape, or --columns, which says it")
    if options.columns and options.input_range:
        raise ConfigError("--columns has the range of each column: leave --input-range out")
    if options.columns and options.space[:1] not in ((), ("fourier",)):
        raise ConfigError(f"columns are for the space fourier, not {options.space[0]}: leave --space or --columns out")
    if values.dimension is not None or values.norm_bound is not None:
        raise ConfigError("--dimension and --norm-bound follow from the common space: leave them out")
    if not values.weighted:
        raise ConfigError("a common classifier is the sum of all parts: leave --no-weighted out")
    import numpy as np

    from repshare.space import RECIPES, Fourier, choose, exposure, shorten
    from repshare.space.agreement import Agreement

    classes = values.classes or len(options.class_names)
    if not classes:
        raise ConfigError("a common classifier needs --classes or --class-names")
    columns = read_columns(options.columns) if options.columns else ()
    shape = options.input_shape or (len(bound_inputs(columns)[0]),)
    example, inputs, words, loss = np.zeros((1, *shape), np.float32), options.input_range, options.space, options.loss
    group_members = values.group_members
    if options.samples_expected and options.members:
        if loss or words[:1] not in ((), *((name,) for name in RECIPES)):
            raise ConfigError(
                "--samples-expected chooses --loss and, but for a recipe, --space: leave these out, or it"
            )
        chosen = exposure.propose(options.samples_expected, options.members, classes)
        words = (*words, f"components={chosen.numbers}") if words else shorten(chosen.numbers, example)
        loss = "discriminant" if chosen.noisy else "squared"
        print(chosen, file=sys.stderr)
        group_members = values.group_members or chosen.group_members
    if columns:
        usual, names = loss or "squared", options.class_names
        common = Agreement.of_table(
            columns, names, options=words[1:], loss=usual, shrinkage=options.shrinkage,
            class_weights=options.class_weights,
        )  # fmt: skip
    else:
        space = choose(words, example, 0)
        if space.name == "backbone" and len(shape) == 3 and inputs is None:
            raise ConfigError("a backbone of images needs --input-range, such as 0 255, which becomes 0 … 1 for it")
        if isinstance(space, Fourier) and inputs is not None:
            numbers = len(space.low)
            space, inputs = replace(space, low=(inputs[0],) * numbers, high=(inputs[1],) * numbers), None
        common = Agreement(
            space, loss or "squared", options.shrinkage, class_names=options.class_names, inputs=inputs,
            class_weights=options.class_weights,
        )  # fmt: skip
    space = common.space
    task = common.task(classes)
    if not options.samples_expected and common.loss == "squared":
        least = exposure.fewest_samples(space.dimension, classes)
        told = f"with vectors of {space.dimension:,} numbers, clients share from {least:,} samples on"
        print(f"{told}; --samples-expected and --members choose other ways", file=sys.stderr)
    agreed = ("classes", "dimension", "norm_bound", "space", "format", "description")
    return {**{name: getattr(task, name) for name in agreed}, "group_members": group_members}


def describe(name: str, /, storage: DatabaseOptions) -> None:
    """Print what the clients of a task in a common space agree on, as JSON: for `repshare join --agreement`.

    repshare relay tasks describe scans > scans.json

    Args:
        name: The task's name.
    """
    with storage.open(audited=False) as relay:
        task = relay.get_task(name).entry.task
    if task.description is None:
        raise ConfigError(f"the task {name} has no common space: its clients share features of their own models")
    print_json(parse_json(task.description))


def list_tasks(storage: DatabaseOptions, json: Json = False) -> None:
    """List the tasks, and who has a token.

    repshare relay tasks list

    repshare relay tasks list --json
    """
    with storage.open(audited=False) as relay:
        entries, opened = relay.access.entries(), [relay.tasks.get(entry.name) for entry in relay.tasks.entries()]
        rows = [_list_task(each, entries) for each in opened]
        if relay.tasks.find_faults():
            print("some descriptions of tasks cannot be read: see repshare relay check", file=sys.stderr)
    everywhere = [
        {"name": token.grant.name, "role": token.grant.role} | ({"expires": _end(token)} if token.expires else {})
        for token in entries
        if token.grant.task is None
    ]
    if json:
        print_json({"tasks": rows, "tokens_for_all_tasks": everywhere})
        return
    for row in rows:
        ends = row["expire"]
        invited = ", ".join(f"{who} (until {ends[who]})" if who in ends else who for who in row["tokens"]) or "none"
        size = f"{row['classes']} classes of {row['dimension']} numbers"
        if row["space"] is not None:
            size = f"{row['classes']} classes in the common space {row['space']}"
            size += f" of {len(row['columns'])} named columns" if row["columns"] else ""
        print(f"{row['name']}: {size}; {row['published']} published; invited: {invited}")
        for who, why in row["left_out"].items():
            print(f"  left out: {who}: {why}")
    if everywhere:
        print("for all tasks:", ", ".join(map(_show_token, everywhere)))
    none = f"no tasks yet in {relay.place}: repshare relay tasks create NAME --classes C --dimension D"
    print(f"in {relay.place}" if rows else none, file=sys.stderr)


def _list_task(opened: OpenTask, tokens: list[TokenEntry]) -> dict[str, Any]:
    task, board = opened.entry.task, opened.board
    own = [token for token in tokens if token.grant.task == opened.entry.name]
    return {
        "name": opened.entry.name,
        **asdict(task),
        "columns": _list_columns(task.description),
        "published": board.status(limit=0).clients,
        "left_out": opened.left_out(),
        "tokens": [token.grant.name for token in own],
        "expire": {token.grant.name: _end(token) for token in own if token.expires},
    }


def _end(token: TokenEntry) -> str:
    """When a token ends, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(token.expires))


def _list_columns(description: str | None) -> list[Any]:
    """The columns that a task names; none, if it has none."""
    try:
        told = parse_json(description or "{}").get("columns", [])
    except (ValueError, AttributeError):  # an admin's text
        return []
    return told if isinstance(told, list) else []


def delete(name: str, /, storage: DatabaseOptions, yes: bool = False) -> None:
    """Delete a task, everything published in it, and its tokens. On a terminal, it asks first.

    repshare relay tasks delete mnist

    repshare relay tasks delete mnist --yes

    Args:
        name: The task's name.
        yes: Delete without asking.
    """
    with storage.open() as relay:
        releases = relay.get_task(name).board.status(limit=0).clients
        tokens = sum(entry.grant.task == name for entry in relay.access.entries())
        what = f"{_count(releases, 'release')}, {_count(tokens, 'token')}"
        if not yes:
            _confirm(f"delete the task {name} ({what}) in {relay.place}? There is no way back")
        relay.access.revoke_all(name)
        if tokens:
            time.sleep(UNTIL_NOTICED_SECONDS)  # nobody publishes in it any more
        relay.tasks.delete(name)
        relay.audit.note_operator("delete", task=name)
    print(f"task {name} deleted: {what}", file=sys.stderr)


def _confirm(question: str) -> None:
    """Ask on the terminal. Raises ConfigError without one, and unless the answer is yes."""
    if not sys.stdin.isatty():
        raise ConfigError(f"{question}: say so with --yes")
    if input(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
        raise ConfigError("nothing was deleted")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def create_task(relay: Stored, name: str, values: TaskValues, **agreed: Any) -> None:
    """Create a task, and say so. One that is there needs no values."""
    there, given = relay.tasks.find(name), asdict(values) | agreed
    if given["classes"] is None or given["dimension"] is None:
        if values == TaskValues() and there is not None:
            return
        raise ConfigError(f"a new task needs --classes and --dimension: {name} does not exist yet")
    if not given["norm_bound"] and there is not None:
        given["norm_bound"] = there.entry.task.norm_bound
    if given["compared"] is None and there is not None:
        given["compared"] = there.entry.task.compared
    new = relay.tasks.create(name, make_task(given))
    if new:
        relay.audit.note_operator("create", task=name)
    print(f"task {name} {'created' if new else 'already exists'}", file=sys.stderr)


def _show_token(token: dict[str, Any]) -> str:
    until = f", until {token['expires']}" if "expires" in token else ""
    return f"{token['name']} ({token['role']}{until})"
