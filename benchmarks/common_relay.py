"""How fast is a relay for clients of a common classifier, and what do 1,000 of them take? Writes common_relay.md.

First, a round trip of CS (publish a part, collect the total) on SQLite beside a bare endpoint that takes and answers
as many bytes. The two take short turns, so that a slow minute of the machine slows both. Then 1,000 clients, each on a
connection of its own and as fast as it can, publish and collect 20 times; the total at the end must have the bits of
the same parts added up in memory.

    python benchmarks/common_relay.py            # about four minutes
    python benchmarks/common_relay.py --quick    # shorter turns and fewer clients; writes nothing
"""

import argparse
import asyncio
import os
import re
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import uvloop

from relay import disk_seconds, echo_pair, relay_pairs, request
from relay_load import Connection, Load, run
from relay_report import describe_machine, milliseconds, percentile
from relay_servers import NAME, Work, start_echo, start_relay
from repshare.board import Board, Wants
from repshare.relay.options import RelayOptions
from repshare.relay.tasks import Tasks
from repshare.sharing.parts import SHRINKAGES, as_release, count_samples, weigh_samples
from repshare.sharing.task import make_space_task
from repshare.sharing.wire import encode_release
from repshare.stores import open_database

CLASSES, DIMENSION, SPACE = 10, 1152, "patches"
CONNECTIONS = (1, 16)
TURNS, SECONDS = 15, 1.0
CLIENTS, ROUNDS = 1000, 20
TARGET = 3.0  # times the bare endpoint
RELAY_PAGE = Path(__file__).parents[1] / "docs" / "relay.md"
WANTS = Wants(1, 0, precision="fp32")

HEAD = """# The relay for clients of a common classifier

Made by `benchmarks/common_relay.py`. A round trip publishes a part (C = 10, d = 1,152, fp16) and collects the total of
all, with a token, at `repshare relay serve` on SQLite, durable as it ships. *Bare* is a FastAPI endpoint under the same
uvicorn that reads and answers as many bytes in as many requests, and does nothing else; *bare, kept* also has each body
on the disk (fdatasync) before it answers, as the relay must. One process each, one load generator, one of 1,000 clients
at random.

| connections | server | round trips/s | p50 ms | p99 ms | CPU ms | the relay takes × its time |
|---:|---|---:|---:|---:|---:|---:|
"""


def make_body(seed: int, round: int = 1) -> bytes:
    """A part of a client with a few random samples."""
    rng = np.random.default_rng(seed)
    count = 6 + seed % 20
    vectors = rng.normal(size=(count, DIMENSION)).astype(np.float32)
    vectors *= DIMENSION**0.5 / np.linalg.norm(vectors, axis=1, keepdims=True)
    hits = rng.random((count, len(SHRINKAGES))) < 0.8
    weights = rng.uniform(-1, 1, size=(count, CLASSES))
    part = weigh_samples(
        count_samples(vectors, rng.integers(CLASSES, size=count), hits, CLASSES), vectors, weights, 0.3
    )
    return encode_release(as_release(part, round, SPACE), WORK.precision)


WORK = Work(make_space_task(CLASSES, DIMENSION, SPACE), make_body, "fp16")


class Compared(NamedTuple):
    """The turns of each server with so many connections, the relay's first."""

    connections: int
    loads: dict[str, list[Load]]
    sync: float  # seconds that the disk takes to keep a block

    def ratios(self, server: str) -> list[float]:
        """The relay's time of a round trip by this server's, turn by turn."""
        return [one.rate / relay.rate for relay, one in zip(self.loads["relay"], self.loads[server], strict=True)]

    def rows(self) -> str:
        """The table's rows."""
        rows = []
        for server, loads in self.loads.items():
            cells = [str(self.connections), server, f"{median(load.rate for load in loads):,.0f}"]
            cells += [milliseconds([percentile(load.trips, q) for load in loads]) for q in (50, 99)]
            cells.append(milliseconds([load.processor / max(1, len(load.collects)) for load in loads]))
            low, middle, high = np.percentile(self.ratios(server), (25, 50, 75))
            cells.append("" if server == "relay" else f"{middle:.2f} ({low:.2f}–{high:.2f})")
            rows.append(f"| {' | '.join(cells)} |\n")
        return "".join(rows)


def compare(turns: int, seconds: float, clients: int) -> list[Compared]:
    """Measure the relay and the bare endpoints in turns."""
    with tempfile.TemporaryDirectory(prefix="relay-") as name, ExitStack() as stack:
        folder, found = Path(name), []
        started = start_relay(folder, str(folder / "relay.db"), clients, work=WORK)
        relay, tokens = stack.enter_context(started)
        pairs = relay_pairs(tokens, WORK)
        bare = [echo_pair((relay, pairs))]
        servers = {
            "relay": (relay, pairs),
            "bare": (stack.enter_context(start_echo(folder)), bare),
            "bare, kept": (stack.enter_context(start_echo(folder, folder / "kept")), bare),
        }
        for connections in CONNECTIONS:
            loads: dict[str, list[Load]] = {server: [] for server in servers}
            for _ in range(turns):
                for each, (server, asked) in servers.items():
                    load = run(server.port, asked, clients=connections, seconds=seconds, processor=server.processor)
                    loads[each].append(load)
            found.append(Compared(connections, loads, disk_seconds(folder)))
            print(found[-1].rows(), end="", file=sys.stderr, flush=True)
        return found


class Crowd(NamedTuple):
    """Many clients on one relay."""

    clients: int
    rounds: int
    seconds: float
    trips: list[float]  # seconds of each round trip, with what had to be asked again
    statuses: Counter[str]  # of all answers
    peak: int  # bytes of the relay's process
    same: bool  # whether the total has the bits of the same parts added up in memory


def crowd(clients: int, rounds: int) -> Crowd:
    """Let all clients publish and collect so often, each as fast as it can, with the relay's own limits."""
    with tempfile.TemporaryDirectory(prefix="relay-") as name:
        place = str(Path(name) / "relay.db")
        with start_relay(Path(name), place, clients, work=WORK, rate=RelayOptions().rate) as (relay, tokens):
            begun = time.perf_counter()
            trips, statuses = uvloop.run(_crowd(relay.port, tokens, rounds))
            seconds = time.perf_counter() - begun
            peak = int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{relay.pid}/status").read_text()).group(1)) * 1024  # type: ignore[union-attr]
        there, here = open_database(place), Board(WORK.task)
        for number, client in enumerate(tokens):
            here.accept(client, make_body(number, rounds + 1))
        kept = Tasks(there).get(NAME).board
        same = kept.teach("nobody", WANTS) == here.teach("nobody", WANTS) and not kept.find_faults()
        same = same and kept.store.items()["totals"] == here.store.items()["totals"]
        there.close()
        return Crowd(clients, rounds, seconds, trips, statuses, peak, same)


async def _crowd(port: int, tokens: dict[str, str], rounds: int) -> tuple[list[float], Counter[str]]:
    loop, trips, statuses = asyncio.get_running_loop(), list[float](), Counter[str]()

    async def ask(connection: Connection, asked: bytes) -> None:
        while True:
            try:
                await connection.ask(asked)
                statuses["200"] += 1
                return
            except RuntimeError as refused:  # the relay's answer: later, as a client would
                status = str(refused)[9:12]
                statuses[status] += 1
                if status not in ("429", "503"):
                    raise
                await asyncio.sleep(1.0)

    async def work(number: int, client: str, token: str) -> None:
        transport, connection = await loop.create_connection(Connection, "127.0.0.1", port)
        head, path = f"host: relay\r\nauthorization: Bearer {token}\r\n", f"/v1/tasks/{NAME}"
        for round in range(2, rounds + 2):  # the relay started with a first
            body = make_body(number + (rounds + 1 - round) * CLIENTS, round)  # the last one by the client's number
            begun = time.perf_counter()
            await ask(connection, request("PUT", f"{path}/clients/{client}/release", head, body))
            await ask(connection, request("GET", f"{path}/teacher?observations=1&seed={round}&precision=fp16", head))
            trips.append(time.perf_counter() - begun)
        transport.close()

    await asyncio.gather(*(work(number, *each) for number, each in enumerate(tokens.items())))
    return trips, statuses


def describe(compared: list[Compared], many: Crowd, busy: float) -> str:
    """All of it as text."""
    load, *others = compared[0].loads["relay"]
    turns, sync = 1 + len(others), [each.sync for each in compared]
    sent, received = (total / len(load.collects) for total in (load.sent, load.received))
    reached = {
        server: ", ".join(
            f"{'met' if median(each.ratios(server)) <= TARGET else 'missed'} with {each.connections}"
            for each in compared
        )
        for server in ("bare", "bare, kept")
    }
    bound = int(re.search(r"At most \*\*(\d+) MB\*\*", RELAY_PAGE.read_text()).group(1))  # type: ignore[union-attr]
    refused = {status: times for status, times in many.statuses.items() if status != "200"}
    machine = {**describe_machine(sync), "Other work": f"load average {busy:.1f} before the start"}
    return (
        HEAD
        + "".join(each.rows() for each in compared)
        + f"""
Medians over {turns} turns of each; the last column is the ratio within a turn, median (quartiles). Target:
{TARGET:g} times the bare endpoint's time: {reached["bare"]}; of the one that keeps what it is sent:
{reached["bare, kept"]}. A round trip sends {sent:,.0f} bytes, receives {received:,.0f}.

## {many.clients:,} clients, {many.rounds} rounds

Each on a connection of its own, all at the same time, as fast as they can, with the relay's default limits.

| round trips | seconds | a second | p50 s | p99 s | refused | peak memory MB | stated bound MB | total |
|---:|---:|---:|---:|---:|---|---:|---:|---|
| {len(many.trips):,} | {many.seconds:.0f} | {len(many.trips) / many.seconds:,.0f} | {percentile(many.trips, 50):.2f} \
| {percentile(many.trips, 99):.2f} | {", ".join(f"{times:,} × {each}" for each, times in refused.items()) or "none"} \
| {many.peak / 1e6:.0f} | {bound} | {"same bits as in memory" if many.same else "DIFFERS"} |

The time includes making the parts, on the same two cores. Refused ones (429: faster than a token's rate; 503: 128 MB
under way) were asked again after a second, as a client does.

## Machine

"""
        + "".join(f"- {name}: {value}\n" for name, value in machine.items())
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter turns and fewer clients; writes nothing")
    parser.add_argument("--only", choices=("bare", "crowd"), help="only this; writes nothing")
    quick, (busy, *_) = (arguments := parser.parse_args()).quick, os.getloadavg()
    if arguments.only != "crowd":
        compared = compare(5 if quick else TURNS, SECONDS, CLIENTS)
    if arguments.only != "bare":
        many = crowd(CLIENTS // 10 if quick else CLIENTS, ROUNDS)
        print(many._replace(trips=[]), file=sys.stderr)
    if arguments.only is None:
        text = describe(compared, many, busy)
        print(text)
        if not quick:
            Path(__file__).with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
