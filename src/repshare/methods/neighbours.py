"""Clients without a server: who is whose neighbour, and what each client has sent."""

from collections.abc import Mapping, Sequence

from repshare.sharing import wire


class Neighbours:
    """Messages of clients, which a simulator keeps in the place of connections between neighbours."""

    sent: dict[str, bytes]
    graph: Mapping[str, Sequence[str]] | None = None  # each client's neighbours; None: all are

    def meet(self, graph: Mapping[str, Sequence[str]]) -> None:
        """Use these neighbours of each client."""
        self.graph = graph

    def near(self, client: str) -> dict[str, bytes]:
        """Return what each neighbour has sent, of those that have sent anything."""
        names = self.sent if self.graph is None else self.graph.get(client, ())
        return {other: self.sent[other] for other in names if other in self.sent and other != client}

    def save(self) -> bytes:
        """Return all that is needed to continue to the same bits."""
        return wire.encode_items(self.sent)

    def load(self, saved: bytes) -> None:
        """Continue from what `save` returned."""
        self.sent = wire.decode_items(saved)
