"""Exchanges: where releases go and teachers come from."""

from typing import Protocol, TypeGuard, runtime_checkable

from repshare.board import Wants
from repshare.exchange.local import LocalExchange

__all__ = ["Counting", "Exchange", "Hiding", "Keeping", "KnowsOthers", "LocalExchange", "count_behind", "has_counts"]


class Exchange(Protocol):
    """A client's connection to other clients. It never waits for them, and publishing twice changes nothing.

    Raises Unreachable if it is unavailable and Refused if it refuses; the client's own work continues either way.
    """

    def publish(self, body: bytes) -> None:
        """Share this release, in place of the client's last one.

        Args:
            body: The release as bytes, made by `sharing.wire.encode_release`.
        """

    def collect(self, wants: Wants) -> bytes:
        """Return a teacher as bytes. It has no rows while no other client has shared anything.

        Args:
            wants: What the client wants to learn from.
        """


class Counting(Protocol):
    """An exchange that counts its own bytes, since it sends more than a release and receives more than a teacher."""

    sent: int
    """Bytes since it began."""
    received: int
    """Bytes since it began."""


def has_counts(exchange: object) -> TypeGuard[Counting]:
    """Return whether an exchange counts its own bytes. Quicker than a protocol's own check: it is asked every round.

    Args:
        exchange: The exchange.
    """
    return hasattr(exchange, "sent") and hasattr(exchange, "received")


@runtime_checkable
class KnowsOthers(Protocol):
    """An exchange that knows how many clients it connects to."""

    def others(self) -> int | None:
        """Return the number of other clients behind the last total; None, if not known."""


@runtime_checkable
class Keeping(Protocol):
    """An exchange whose other end keeps releases, and may lose them."""

    def holds(self) -> bool:
        """Return whether it has a release of this client."""


@runtime_checkable
class Hiding(Protocol):
    """An exchange through which nobody sees what a client publishes by itself."""

    def behind(self, own: int) -> float:
        """Return the samples behind the least difference that anybody sees, given this client's; ∞: nobody sees any."""


def count_behind(exchange: object, own: int) -> float:
    """Return the samples behind the least difference that anybody sees of what is published.

    Args:
        exchange: The exchange.
        own: The samples of the client that publishes, behind which there is nobody else unless the exchange says so.
    """
    return exchange.behind(own) if isinstance(exchange, Hiding) else own
