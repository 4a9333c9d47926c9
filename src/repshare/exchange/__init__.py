"""Where releases go and teachers come from."""

from typing import Protocol, runtime_checkable

from repshare.board import Wants
from repshare.exchange.local import LocalExchange

__all__ = ["Counting", "Exchange", "LocalExchange"]


class Exchange(Protocol):
    """One client's way to the others. It never waits for them, and publishing twice changes nothing.

    Raises Unreachable when it is away and Refused when it says no; the client's own work goes on either way.
    """

    def publish(self, body: bytes) -> None:
        """Share this release, in place of the client's last one."""

    def collect(self, wants: Wants) -> bytes:
        """A teacher, as bytes; one with no rows while nobody else has shared anything."""


@runtime_checkable
class Counting(Protocol):
    """An exchange that does more than pass a release on and a teacher back, and so knows better what that took."""

    sent: int
    """Bytes since it began."""
    received: int
    """Bytes since it began."""
