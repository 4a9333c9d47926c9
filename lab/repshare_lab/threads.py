"""The number of threads that PyTorch and NumPy compute with."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]


@cache
def _libraries() -> ThreadpoolController:
    """Find the linear algebra of NumPy and SciPy, which takes milliseconds."""
    import scipy.linalg  # noqa: F401 it has one of its own

    return ThreadpoolController()


def compute_with_one_thread() -> None:
    """Compute with one thread from now on: sums then have one order, whatever processor computes them."""
    torch.set_num_threads(1)
    _libraries().limit(limits=1)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, as workers do: sums then have one order, and servers give the same bits everywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _libraries().limit(limits=1):
            yield
    finally:
        torch.set_num_threads(before)
