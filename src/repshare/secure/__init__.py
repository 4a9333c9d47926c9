"""Secure sums: a group learns the total of its members' vectors, and nothing else. See lab/notebook/secure-sums.md.

GroupExchange    a client's side: an exchange that shares class sums with a group that meets at a relay
RelayMeetings    where members meet through a relay
Meetings         a relay's side: who is there, who meets next, and the messages, which it does not read
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from repshare.secure.meetings import MOST_MEMBERS, STEPS, Called, Meetings, newcomers_behind

if TYPE_CHECKING:
    from repshare.secure.group import GroupExchange, RelayMeetings

__all__ = [
    "MOST_MEMBERS", "STEPS", "Called", "GroupExchange", "Meetings", "RelayMeetings", "newcomers_behind",
]  # fmt: skip

_MODULES = {"GroupExchange": "group", "RelayMeetings": "group"}


def __getattr__(name: str) -> Any:
    # Looked up when first used: they need `cryptography`, which a relay does not install.
    if name in _MODULES:
        return getattr(import_module(f"repshare.secure.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'repshare.secure' has no attribute {name!r}")
