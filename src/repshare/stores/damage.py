"""Damage to stored values: seen by a checksum when they are read, or by what cannot be decoded."""

import struct
import zlib
from types import TracebackType

from repshare.errors import Damaged, Malformed

ABOUT_FORM = (Malformed, ValueError, KeyError, IndexError, TypeError, AttributeError, struct.error)


def checksum(store: str, key: str, value: bytes) -> int:
    """Return the checksum of a value, its key and its store: it fits no other. No protection against forgers."""
    return zlib.crc32(value, zlib.crc32(f"{store}/{key}".encode()))


def verify(store: str, key: str, value: bytes, kept: int | None) -> bytes | Damaged:
    """Return the value, if it fits its checksum. Earlier versions kept none: what they wrote is taken as it is."""
    if kept is None or kept == checksum(store, key, value):
        return value
    return Damaged(key, "its checksum does not fit")


class decoding:  # noqa: N801  (used like a function; as one it would take four times as long)
    """Turn any error about the form of a stored value into Damaged: it is never the fault of the caller."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = key

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Raise Damaged, if anything is."""
        if isinstance(error, ABOUT_FORM):
            raise Damaged(self._key, f"{type(error).__name__}: {error}"[:200]) from error
