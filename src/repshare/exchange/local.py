"""A board in the same process."""

import math
from typing import Protocol

from repshare.board import Wants
from repshare.exchange.exchange import Exchange


class Server(Protocol):
    """The other end of an exchange: a `Board`, or what another method puts in its place."""

    def accept(self, client: str, body: bytes) -> object:
        """Take what a client shares."""

    def teach(self, client: str, wants: Wants) -> bytes:
        """Give a client what it learns from."""

    def save(self) -> bytes:
        """Return all that is needed to continue to the same bits."""

    def load(self, saved: bytes) -> None:
        """Continue from what `save` returned."""


class LocalExchange(Exchange):
    """One client's connection to a server in the same process."""

    def __init__(self, server: Server, client: str) -> None:
        """Connect a client to a server in this process.

        Args:
            server: The board, in the same process.
            client: The client's name.
        """
        self.server, self.client = server, client

    def publish(self, body: bytes) -> None:
        """Hand the bytes over."""
        self.server.accept(self.client, body)

    def collect(self, wants: Wants) -> bytes:
        """Ask for a teacher."""
        return self.server.teach(self.client, wants)

    def behind(self, own: int) -> float:
        """Return infinity: what is published stays in this process."""
        return math.inf
