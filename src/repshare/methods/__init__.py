"""The ways to learn together, and alone, by their letters.

RS is the paper's method: class means and observations of features go out, global means and others' come back. IL is its
measure: every client alone.

In CS, clients share class-shaped averages of fixed features over all their samples, in which each sample counts as much
as the classifier still needs it. The board adds them up, and the total is the classifier: see `repshare.space`. CA is
its measure.

Another package adds a `Method` as an entry point of the group `repshare.methods`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from repshare.board import Board
from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.methods.method import Method, make_wants
from repshare.sharing.task import Task
from repshare.space.learner import SpaceLearner

__all__ = ["CA", "CS", "IL", "METHODS", "RS", "Method", "make_wants", "serve"]

FIRST = ("CL", "IL", "FL", "FD", "RS", "CA", "CS")  # the paper's table begins like this, and so does the help


def serve(task: Task, start: Any = None, options: Any = None) -> Board:
    """Make a board in memory."""
    return Board(task)


def adapt_to_space(policy: Policy) -> Policy:
    """Use no observations and no distillation, and half the bytes."""
    if policy.epsilon is not None:  # one release, unless told otherwise: it takes the whole budget
        policy = replace(policy, releases=policy.releases or 1)
    if policy.peers is not None:
        raise ConfigError("the classifier of a space is made by all clients: leave peers or CS out")
    if policy.precision == "int8":
        raise ConfigError("sums of a space are shared as fp32 or fp16, not as int8")
    precision = policy.precision or "fp16"
    return replace(policy, lambda_kd=0.0, lambda_disc=0.0, lambda_length=0.0, m_up=0, m_down=0, precision=precision)


def adapt_alone(policy: Policy) -> Policy:
    """As CS, without samples held out: there are no other clients to judge."""
    return replace(adapt_to_space(policy), held_out=0.0, epsilon=None)


IL = Method("IL", "independent learning")
RS = Method(
    "RS", "representation sharing (the paper)", serve=serve, control=IL,
    source="Berdoz et al., 2022: Scalable collaborative learning via representation sharing",
)  # fmt: skip
CA = Method(
    "CA", "the common space alone (a control: nothing is shared)", SpaceLearner.open,
    adapt=adapt_alone, source="new here", in_space=True,
)  # fmt: skip
CS = Method(
    "CS", "sharing in a common space", SpaceLearner.open, serve,
    adapt=adapt_to_space, control=CA, models="part", source="new here", in_space=True,
)  # fmt: skip
OWN = {method.name: method for method in (RS, IL, CS, CA)}


class _Installed(Mapping[str, Method]):
    """All methods by name. The module of another package's is imported when it is asked for."""

    @cached_property
    def _found(self) -> dict[str, EntryPoint | None]:
        found = {each.name: each for each in entry_points(group="repshare.methods")} | dict.fromkeys(OWN)
        return {name: found[name] for name in [*filter(found.__contains__, FIRST), *sorted(found.keys() - {*FIRST})]}

    def __getitem__(self, name: str) -> Method:
        entry = self._found[name]
        method: Method = OWN[name] if entry is None else entry.load()
        return method

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


METHODS: Mapping[str, Method] = _Installed()
