"""What a store promises."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class Transaction(Protocol):
    """Reads see the writes before them; nothing is kept unless the work ends well."""

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """What stands under each of these keys."""

    def set(self, items: Mapping[str, bytes]) -> None:
        """Put each of these under its key."""

    def delete(self, keys: Iterable[str]) -> None:
        """Remove what stands under these keys."""


class Store(Protocol):
    """Opaque bytes under keys."""

    def transact(self, work: Callable[[Transaction], Result]) -> Result:
        """Do this work alone, all of it or nothing, durable on return; begin it again if another came in between."""

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Do work that only reads: on one state, and without waiting for others that write, where that can be had."""

    def items(self) -> Mapping[str, bytes]:
        """Everything kept."""

    def clear(self) -> None:
        """Forget everything."""


class Database(Protocol):
    """Stores by name. Raises StoreError when it is away or cannot write.

    A change that was under way is then made or not, but never in part: over a network, an answer can get lost.
    """

    slow: bool
    """Whether it waits for more than this processor: better asked by the pile, from a thread of one's own."""

    def store(self, name: str) -> Store:
        """The store of this name; it need not exist before."""

    def check(self) -> None:
        """Write something and read it back."""

    def close(self) -> None:
        """Let go of files and connections."""
