"""The start of worker processes. Nothing here imports PyTorch, so that they can start while it is imported."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

NEEDED = "repshare_lab.simulation.pools"  # all that a worker imports
NO_GUARD = 77  # the exit code of a worker whose script has no `if __name__ == "__main__":`


def prepare() -> None:
    """Start the process that workers are copied from, if they are: it imports what they need at the same time as us."""
    leave_if_unguarded()
    if choose_start().get_start_method() == "forkserver":
        from multiprocessing import forkserver

        with no_interrupt():
            forkserver.ensure_running()


def leave_if_unguarded() -> None:
    """End this process if it is a worker that runs the script that started it, and so would start workers again."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(NO_GUARD)


def choose_start() -> "SpawnContext | ForkServerContext":
    """Return how workers start: on Linux as copies of a process that has imported what they need (seconds), once.

    Elsewhere what is imported may not survive being copied, and each worker starts from nothing.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([NEEDED])
    return context


@contextmanager
def no_interrupt() -> Iterator[None]:
    """Keep Ctrl-C from processes started in here, from their first moment: the parent decides what it means."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
