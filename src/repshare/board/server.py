"""What stands between clients: a board, or what another method puts in its place."""

from typing import Any, Protocol

from repshare.errors import ConfigError
from repshare.sharing.representations import Wants


class Server(Protocol):
    """The other end of an exchange. A method's own one takes at least `accept`, `teach`, `save` and `load`."""

    def accept(self, client: str, body: bytes) -> object:
        """Take what a client shares."""

    def accept_sum(self, part: Any) -> object:
        """Take what several clients share, as the method's `add_up` has combined it. Default: refuse it."""
        raise ConfigError(f"a {type(self).__name__} takes each client's release by itself")

    def teach(self, client: str, wants: Wants) -> bytes:
        """Give a client what it learns from."""

    def save(self) -> bytes:
        """All that is needed to continue to the same bits."""

    def load(self, saved: bytes) -> None:
        """Continue from what `save` returned."""
