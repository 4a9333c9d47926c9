"""Releases and totals as files, which people carry: the same bytes, and the same checks, as over a relay."""

from collections.abc import Mapping
from pathlib import Path

from repshare.board import Board
from repshare.errors import ConfigError, ExchangeError, LeftOut
from repshare.exchange.exchange import Exchange
from repshare.files import write_atomically
from repshare.sharing.representations import Wants
from repshare.sharing.task import Task


class FileExchange(Exchange):
    """One client's part as a file, and the last total that it received."""

    def __init__(self, task: Task, part: Path, total: Path) -> None:
        """Connect a client to its files.

        Args:
            task: The task that the clients agree on.
            part: The file that a release is written to.
            total: The file with the total. There is none before the first one.
        """
        self.task, self.part, self.total = task, part, total

    def publish(self, body: bytes) -> None:
        """Write the release."""
        write_atomically(self.part, body, private=True)

    def collect(self, wants: Wants) -> bytes:
        """Read the total; before the first one, nothing is shared."""
        return self.total.read_bytes() if self.total.exists() else Board(self.task).teach("", wants)


def add_up(task: Task, parts: Mapping[str, bytes], precision: str) -> bytes:
    """Add up clients' parts as a relay would, with its checks; the total, as bytes.

    Args:
        task: The task that the clients agree on.
        parts: The parts by the names of their clients.
        precision: The number format of the total.
    """
    board = Board(task)
    for name, body in parts.items():
        try:
            board.accept(name, body)
        except LeftOut as error:
            raise ConfigError(f"the part of {name} is refused: {error}") from error
        except ExchangeError as error:
            raise ConfigError(f"{name}: {error}") from error
    if left_out := sorted(parts.keys() - {member.name for member in board.status(len(parts)).shown}):
        told = {each.name: each.reason for each in board.named()}
        raise ConfigError("; ".join(f"{name} is left out: {told.get(name, 'unlike the others')}" for name in left_out))
    return board.teach("", Wants(0, 0, precision=precision))
