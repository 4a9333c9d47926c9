"""A board in the same process."""

import math

from repshare.board import Server
from repshare.exchange.exchange import Exchange
from repshare.sharing.representations import Wants


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
        """Infinity: what is published stays in this process."""
        return math.inf
