"""A party: the model and the data that it brings, and whether they fit a task."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from repshare.client import Client
from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.exchange.relay import Membership
from repshare.imports import find_function, in_one_line, is_reference
from repshare.samples import Labelled
from repshare.sharing.columns import Frame
from repshare.sharing.task import Task, make_space_task
from repshare.space import compare
from repshare.space.agreement import Agreement, read_agreement
from repshare.table import is_table, read_table


@dataclass(frozen=True)
class Party:
    """A party's model and data, of its own choice. None of it leaves its machine."""

    model: nn.Module | None = None
    """Any classifier that ends in a linear layer with the task's d' inputs and its classes as outputs.
    In a space there is none; one that is given is only what `join --compare` trains alone."""
    data: Labelled | str | Path | Frame = None  # type: ignore[assignment] # checked: only what stands before it may be left out
    """A pair (inputs, labels) of tensors or arrays, or a map-style PyTorch or Hugging Face dataset.
    Where a task names its columns: the path of a .csv file, or a DataFrame."""
    test: Labelled | str | Path | Frame | None = None
    """The same for testing after each round."""
    policy: Policy | None = None
    """How it learns and what it shares."""
    head: str | None = None
    """The name of the model's last linear layer, where it cannot be found by what it computes."""
    class_names: Sequence[str] = ()
    """The names of its classes, in the order of its labels. A task that states others is refused."""
    space: Agreement | None = None
    """The agreement of clients in a space: needed without a relay; at a relay, the task's must be the same."""
    accept_space: bool = False
    """Take part in a task's space without a copy of its agreement, also where this package would choose another."""
    backbone: str = ""
    """Its own module as file.py:function, where the task's space is a backbone."""
    label: str = ""
    """The column of the class, where the data are a table."""
    ignore: Sequence[str] = ()
    """Columns of the table that are not for learning, such as a patient's number."""

    def __post_init__(self) -> None:
        if self.data is None:
            raise ConfigError("a party needs samples to learn from: Party(data=…, …)")
        if not self.label and is_table(self.data):
            raise ConfigError("which column of the table is the class? Party(data=…, label=…)")


def read_data(party: Party, agreement: Agreement | None) -> tuple[Labelled, Labelled | None]:
    """Return a party's data, and those for testing, if any. Tables are read by the names of the columns agreed on."""

    def read(given: Any) -> Any:
        if not is_table(given):
            return given
        if agreement is None or not agreement.columns:
            raise ConfigError(
                "what is in the columns of the table? The task's operator says so with `relay tasks create --columns`, "
                "and --agreement has it"
            )
        names = agreement.class_names
        return read_table(given, agreement.columns, party.label, class_names=names, ignored=party.ignore)

    return read(party.data), read(party.test)


def check_reference(reference: str) -> None:
    """Raise ConfigError unless this is `file.py:function`."""
    if not is_reference(reference):
        example = f"{reference}:function" if reference.endswith(".py") else "party.py:function"
        raise ConfigError(f"{reference!r} names no function in a file: give --party {example}")


def load_party(reference: str, seed: int) -> Party:
    """Call `file.py:function`. The same seed gives a model the same starting weights."""
    check_reference(reference)
    make = find_function(reference)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            party = make()
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            raise ConfigError(f"{reference} raised {in_one_line(error)}") from error
    if not isinstance(party, Party):
        raise ConfigError(f"{reference} must return a repshare.Party(data=…, …), not a {type(party).__name__}")
    return party


def agree(party: Party, task: Task | None) -> Agreement | None:
    """The agreement that a task states; None if its clients share features of their own models.

    Refuses, with both sides named, a party that has another one. Without a task, it is the party's own.
    """
    if task is None:
        if party.space is not None:
            _check_classes(party, party.space)
        return party.space
    if task.description is None:
        if task.space is not None:
            raise ConfigError(f"the task's space is {task.space}, which it does not describe: ask its operator")
        if party.space is not None:
            raise ConfigError(f"the party's space is {party.space.name}, but the task has none")
        return None
    common = read_agreement(task.description, module=party.backbone)
    if party.space is not None:
        compare(common.describe(), party.space.describe())
    _check_classes(party, common)
    made = make_space_task(task.classes, common.space.dimension, common.name, format=common.format)
    for name in ("dimension", "space", "format"):
        stated, described = getattr(task, name), getattr(made, name)
        if stated != described:
            raise ConfigError(f"the task has {name} {stated}, but what it describes has {described}: ask its operator")
    return common


def _check_classes(party: Party, common: Agreement) -> None:
    if party.class_names and common.class_names and tuple(party.class_names) != common.class_names:
        there, here = (", ".join(names)[:200] for names in (common.class_names, party.class_names))
        raise ConfigError(f"the task's classes are {there}; the party's are {here}")


def check_fit(client: Client, membership: Membership) -> None:
    """Refuse a model that cannot take part in the task, before it is trained, and peers by name."""
    learner, task = client.learner, membership.agreed
    if task.description is not None and learner.classes != task.classes:
        raise ConfigError(f"the party has {learner.classes} classes, the task {membership.task} {task.classes}")
    if task.description is None and (learner.classes, learner.dimension) != (task.classes, task.dimension):
        raise ConfigError(
            f"the model has {learner.classes} classes and d' = {learner.dimension}, but the task {membership.task} "
            f"has {task.classes} classes and d' = {task.dimension}"
        )
    if client.policy.peers is not None:
        raise ConfigError("a relay hands out nothing by name: leave peers out of the policy")
