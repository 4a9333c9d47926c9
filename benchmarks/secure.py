"""Measure a secure sum: processor time and bytes for each member. Writes benchmarks/secure.md.

All members are threads of this process and meet in memory, so that no network and no relay is in the figures.

    python benchmarks/secure.py            # about five minutes
"""

import threading
import time
from pathlib import Path

import numpy as np

from repshare.board import Wants
from repshare.exchange.keys import Key
from repshare.secure import Meetings, SecureExchange
from repshare.sharing import wire
from repshare.sharing.representations import Release, nothing, stack
from repshare.sharing.task import Task

CASES = [
    (3, 10, 84),
    (10, 10, 84),
    (30, 10, 84),
    (100, 10, 84),
    (10, 10, 512),
    (10, 11, 2570),
    (10, 11, 18194),
]  # members, C, d'
HEAD = """# What a secure sum costs a member

`python benchmarks/secure.py`: every member is a thread of one process, and they meet in memory. Time: processor seconds
of the whole sum, divided by the number of members. Sent and received: the messages of both steps, without HTTP.
Plain: the release that a member would send without a group (class means in fp32, no observations).

| members | classes × d' | time | sent | received | plain |
|---:|---:|---:|---:|---:|---:|
"""


def measure(members: int, classes: int, dimension: int) -> str:
    """One sum, as a row of the table."""
    task, meetings, rng = Task(classes, dimension), Meetings(), np.random.default_rng(0)
    keys = {f"member {place}": Key.new() for place in range(members)}
    public = {name: key.public for name, key in keys.items()}
    exchanges = [
        SecureExchange(task, name, meetings, task_name="t", key=key, members=public, patience=600)
        for name, key in keys.items()
    ]
    means = stack([(rng.normal(size=dimension), label, 10) for label in range(classes)], dimension)
    body = wire.encode_release(Release(1, means, nothing(dimension)))
    threads = [threading.Thread(target=exchange.publish, args=[body]) for exchange in exchanges]
    began = time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = (time.process_time() - began) / members
    for exchange in exchanges:
        assert len(wire.decode_teacher(exchange.collect(Wants(1, 0))).means.labels) == classes, "there is a total"
    sent, received, plain = (f"{size / 1000:,.1f} kB" for size in (*exchanges[0].traffic(), len(body)))
    return f"| {members} | {classes} × {dimension} | {seconds:.2g} s | {sent} | {received} | {plain} |\n"


if __name__ == "__main__":
    rows = [measure(*case) for case in CASES]
    Path(__file__).with_suffix(".md").write_text(HEAD + "".join(rows))
    print("".join(rows))
