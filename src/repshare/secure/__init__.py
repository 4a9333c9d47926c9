"""Secure sums: a group learns the total of its members' vectors, and nothing else. See lab/notebook/secure-sums.md.

SecureExchange      a client's side: an exchange that shares class means through a secure sum
GatheredExchange    the same for a group that comes together at a relay, anew for each meeting
RelayMeetings       where members meet through a relay
Meetings            a relay's side: keeps the messages of a group, step by step, without reading them
Roll                a relay's side: who is there, and meets next
Together            how many samples stand behind a group's totals
masked_bytes        the size of what a member sends in place of its averages
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from repshare.secure.meetings import MOST_MEMBERS, STEPS, Meetings
from repshare.secure.roll import Called, Roll, newcomers_behind

if TYPE_CHECKING:
    from repshare.secure.exchange import RelayMeetings, SecureExchange, Together
    from repshare.secure.gathering import GatheredExchange
    from repshare.secure.masking import masked_bytes, usual_threshold

__all__ = [
    "MOST_MEMBERS", "STEPS", "Called", "GatheredExchange", "Meetings", "RelayMeetings", "Roll", "SecureExchange",
    "Together", "masked_bytes", "newcomers_behind", "usual_threshold",
]  # fmt: skip

_MODULES = {"RelayMeetings": "exchange", "SecureExchange": "exchange", "Together": "exchange"}
_MODULES |= {"GatheredExchange": "gathering", "masked_bytes": "masking", "usual_threshold": "masking"}


def __getattr__(name: str) -> Any:
    # Looked up when first used: they need `cryptography`, which a relay does not install.
    if name in _MODULES:
        return getattr(import_module(f"repshare.secure.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'repshare.secure' has no attribute {name!r}")
