"""Ctrl-C, made useful."""

import select
import signal
import socket
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

Item = TypeVar("Item")


class Interrupted(Exception):
    """Ctrl-C, and what to do next."""


@contextmanager
def interruptible(hint: str) -> Iterator[Callable[[Generator[Item]], Generator[Item]]]:
    """Let Ctrl-C end the work after the current step; a second one ends it at once.

    >>> with interruptible("go on with --resume") as until_asked:
    ...     for step in until_asked(work):
    ...         ...
    """
    asked = False

    def ask(*_: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        print("\nfinishing this round (Ctrl-C again: stop at once)", file=sys.stderr)

    def until_asked(work: Generator[Item]) -> Generator[Item]:
        with closing(work):
            for item in work:
                yield item
                if asked:
                    break

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield until_asked
    except KeyboardInterrupt:
        raise Interrupted(f"stopped at once: {hint}, from the last checkpoint") from None
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise Interrupted(f"stopped after a whole round: {hint}")


def pause(seconds: float) -> None:
    """Sleep, but not through Ctrl-C."""
    heard, told = socket.socketpair()
    with heard, told:
        told.setblocking(False)
        before = signal.set_wakeup_fd(told.fileno())
        try:
            select.select([heard], [], [], max(seconds, 0.0))
        finally:
            signal.set_wakeup_fd(before)
