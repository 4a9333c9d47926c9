"""What a store promises."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol


class Transaction(Protocol):
    """Reads see the writes before them; nothing is kept unless the block ends well."""

    def get(self, key: str) -> bytes | None:
        """What stands under this key."""

    def set(self, key: str, value: bytes) -> None:
        """Put this under this key."""

    def delete(self, key: str) -> None:
        """Remove what stands under this key."""


class Store(Protocol):
    """Opaque bytes under keys. A transaction is all or nothing, alone, and durable when its block ends."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begin one: `with store.transaction() as state:`."""

    def items(self) -> Mapping[str, bytes]:
        """Everything kept."""
