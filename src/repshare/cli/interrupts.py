"""Ctrl-C ends a command after the current round, and says how to resume it."""

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

    >>> with interruptible("resume with --resume") as until_interrupted:
    ...     for step in until_interrupted(work):
    ...         ...
    """
    interrupted = False

    def on_interrupt(*_: object) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True
        print("\nfinishing this round (Ctrl-C again: stop at once)", file=sys.stderr)

    def until_interrupted(work: Generator[Item]) -> Generator[Item]:
        with closing(work):
            for item in work:
                yield item
                if interrupted:
                    break

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield until_interrupted
    except KeyboardInterrupt:
        raise Interrupted(f"stopped at once: {hint}, from the last checkpoint") from None
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupted:
        raise Interrupted(f"stopped after a whole round: {hint}")


def pause(seconds: float) -> None:
    """Sleep, but not through Ctrl-C."""
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.setblocking(False)
        before = signal.set_wakeup_fd(writer.fileno())
        try:
            select.select([reader], [], [], max(seconds, 0.0))
        finally:
            signal.set_wakeup_fd(before)
