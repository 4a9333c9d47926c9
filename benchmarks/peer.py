"""How long does a client wait for its peers' releases? Writes benchmarks/peer.md.

`PeerExchange.collect` beside bare Zenoh queries for the same bytes, by the same session to the same peers in the same
run, in turns. Every peer is a process of its own. `peer.py serve NAME PLACE` is such a process.
"""

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
import zenoh
from zenoh.handlers import Callback

from repshare.board import Wants
from repshare.exchange.keys import CHALLENGE_BYTES, Key, Trust
from repshare.exchange.peer import PeerExchange
from repshare.sharing import wire
from repshare.sharing.representations import Release, stack
from repshare.sharing.task import Task
from repshare.stores import open_database

PEERS = (2, 8, 32)
TURNS, WARM_UP = 200, 20
TASK = Task(10, 84)
START_SECONDS, SETTLE_SECONDS = 300.0, 3.0

HEAD = """# Collecting from peers

`python benchmarks/peer.py`. A collect asks M↓ peers and makes a teacher of their releases: signatures, the checks at
the door, and that each is the newest kept in SQLite, as `repshare peer` does. *Bare* asks the same peers by the same
Zenoh session for the same bytes, and does nothing with them. In turns, {turns} of each; every peer is a process of its
own, all on one machine ({cores} cores, {python}, Zenoh {zenoh}). Milliseconds.

| peers | asked (M↓) | bytes each | collect: median | p95 | bare: median | p95 | ratio of medians |
|---:|---:|---:|---:|---:|---:|---:|---:|
"""


class Found(NamedTuple):
    """Milliseconds of collects and of bare queries."""

    peers: int
    asked: int
    length: int
    collects: list[float]
    bare: list[float]


def make_body(seed: int) -> bytes:
    """A release of the paper's size: a mean and an observation for each of ten classes."""
    rng = np.random.default_rng(seed)
    rows = stack([(rng.standard_normal(84), label, 10) for label in range(10)], 84)
    return wire.encode_release(Release(1, rows, rows))


def serve(name: str, place: str) -> None:
    """Be a peer until standard input ends."""
    exchange = make_exchange(name, ["tcp/127.0.0.1:0"], [place])
    exchange.publish(make_body(int(name.removeprefix("peer"))))
    print("ready", flush=True)
    sys.stdin.read()
    exchange.leave()


def make_exchange(name: str, listen: Sequence[str], connect: Sequence[str], place: Path | None = None) -> PeerExchange:
    """A peer that believes everyone; with a place, it keeps there what it has seen."""
    store = open_database(str(place)).store("peers") if place else None
    return PeerExchange(
        TASK, name, "task", key=Key.new(), trust=Trust(first_use=True), listen=listen, connect=connect, store=store,
        timeout=30,
    )  # fmt: skip


@contextmanager
def start_peers(count: int, place: str) -> Iterator[None]:
    """So many processes, each a peer."""
    with ExitStack() as started:
        processes = []
        for number in range(1, count + 1):
            command = [sys.executable, __file__, "serve", f"peer{number}", place]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            processes.append(started.enter_context(process))
            started.callback(process.kill)
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        yield


def measure(peers: int, folder: Path) -> Iterator[Found]:
    """One asks the others: one of them, and all."""
    with ExitStack() as started:
        exchange = started.enter_context(make_exchange("asking", ["tcp/127.0.0.1:0"], [], folder / f"{peers}.db"))
        started.enter_context(start_peers(peers - 1, exchange.listening[0]))
        deadline = time.monotonic() + START_SECONDS
        while len(exchange.live()) < peers - 1:
            if time.monotonic() > deadline:
                raise SystemExit(f"only {len(exchange.live())} of {peers - 1} peers came")
            time.sleep(0.05)
        time.sleep(SETTLE_SECONDS)  # they are still connecting to each other
        for asked in sorted({1, min(5, peers - 1), peers - 1}):
            yield compare(exchange, peers, asked)


def compare(exchange: PeerExchange, peers: int, asked: int) -> Found:
    """Collects and bare queries, in turns."""
    collects, bare, length = [], [], 0
    for turn in range(WARM_UP + TURNS):
        keys = {name: key.hex() for name, key in exchange.trust if name in exchange.live()}
        nothing_seen = {f"seen/{name}/{key}": b"[0, 0]" for name, key in keys.items()}
        exchange.store.transact(lambda state, nothing=nothing_seen: state.set(nothing))  # so that each release is new
        began = time.perf_counter()
        teacher = wire.decode_teacher(exchange.collect(Wants(asked, turn)))
        collects.append(1000 * (time.perf_counter() - began))
        assert len(teacher.means.labels) == TASK.classes
        names = exchange.live()[turn % (peers - asked) :][:asked]
        began = time.perf_counter()
        length = ask(exchange, names)
        bare.append(1000 * (time.perf_counter() - began))
    return Found(peers, asked, length, collects[WARM_UP:], bare[WARM_UP:])


def ask(exchange: PeerExchange, names: Sequence[str]) -> int:
    """Ask these for their releases, and wait for all of them; how long one is."""
    lengths: list[int] = []
    over = threading.Semaphore(0)

    def hear(reply: zenoh.Reply) -> None:
        assert reply.ok is not None
        lengths.append(len(reply.ok.payload.to_bytes()))

    for name in names:
        place = f"repshare/task/{name}/release/*"
        exchange.network.session.get(
            place, Callback(hear, over.release), payload=bytes(CHALLENGE_BYTES), target=zenoh.QueryTarget.ALL,
            consolidation=zenoh.ConsolidationMode.NONE, timeout=30,
        )  # fmt: skip
    for _ in names:
        over.acquire()
    assert len(lengths) >= len(names)  # who said anew just now that it is there may answer twice
    return lengths[0]


def row(found: Found) -> str:
    """A line of the table."""
    halves = [f"{statistics.median(each):.2f} | {np.percentile(each, 95):.2f}" for each in (found.collects, found.bare)]
    ratio = statistics.median(found.collects) / statistics.median(found.bare)
    return f"| {found.peers} | {found.asked} | {found.length:,} | {halves[0]} | {halves[1]} | {ratio:.2f} |"


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        serve(*sys.argv[2:])
        return
    head = HEAD.format(
        turns=TURNS, cores=os.cpu_count(), python=f"Python {platform.python_version()}", zenoh=version("eclipse-zenoh")
    )
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for peers in PEERS:
            for found in measure(peers, Path(folder)):
                rows.append(row(found))
                print(rows[-1], flush=True)
    load = f"\nThe machine's load at the end, the peers' own included: {os.getloadavg()[0]:.1f}.\n"
    Path(__file__).with_suffix(".md").write_text(head + "\n".join(rows) + "\n" + load)


if __name__ == "__main__":
    main()
