"""The peak of this machine: products of 1024×1024 matrices, in GFLOP/s.

`gemm.py THREADS PROCESSES`, each process with so many threads; prints the best of several windows.
"""

import multiprocessing
import sys
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier

import torch

SIDE, WINDOWS, WINDOW_SECONDS = 1024, 8, 0.5


def measure(threads: int, start: Barrier) -> list[float]:
    """GFLOP/s of this process in each window."""
    torch.set_num_threads(threads)
    left, right, product = (torch.rand(SIDE, SIDE) for _ in range(3))
    rates = []
    torch.mm(left, right, out=product)
    for _ in range(WINDOWS):
        start.wait()
        began, count = time.perf_counter(), 0
        while (seconds := time.perf_counter() - began) < WINDOW_SECONDS:
            torch.mm(left, right, out=product)
            count += 1
        rates.append(count * 2 * SIDE**3 / seconds / 1e9)
    return rates


def work(threads: int, start: Barrier, results: "multiprocessing.Queue[Sequence[float]]") -> None:
    results.put(measure(threads, start))


def main() -> None:
    threads, processes = map(int, sys.argv[1:])
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(processes), context.Queue()
    workers = [context.Process(target=work, args=(threads, start, results)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    rates = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    print(max(map(sum, zip(*rates, strict=True))))


if __name__ == "__main__":
    main()
