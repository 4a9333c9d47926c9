"""How fast is a relay beside a bare endpoint, and does it stay so with many clients? Writes benchmarks/relay.md.

A round trip is a publish and a collect. The bare endpoint is asked the same two requests with the same number of bytes
each way, and only reads and answers; beside stores on a disk there is another that also has each body on the disk.
Servers take turns, so that a slow minute of the machine slows all of them.

    python benchmarks/relay.py                                              # all of it, about a quarter of an hour
    python benchmarks/relay.py --stores SQLite --keep part.json             # a part; then, of several parts:
    python benchmarks/relay.py --parts part.json other.json
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median

from relay_load import Load, Pair, answer_sizes, run
from relay_report import Case, read_cases, report
from relay_servers import MNIST, NAME, Server, Work, start_echo, start_redis, start_relay
from watching import memory

STORES = ("memory", "SQLite", "Redis")
REGISTERED = (10, 1_000, 100_000)
CONCURRENT = (1, 16, 64)
TURNS, SECONDS = 3, 1.5
BARE, KEPT = 0, -1  # in place of a relay's registered clients


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer clients, shorter turns; writes nothing")
    parser.add_argument("--stores", nargs="+", choices=STORES, default=STORES)
    parser.add_argument("--registered", nargs="+", type=int)
    parser.add_argument("--concurrent", nargs="+", type=int, default=CONCURRENT)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of one turn")
    parser.add_argument("--keep", type=Path, help="write what was measured to this file, and no page")
    parser.add_argument("--parts", nargs="+", type=Path, help="measure nothing: make the page of these files")
    arguments = parser.parse_args()
    registered = arguments.registered or ((10, 1_000) if arguments.quick else REGISTERED)
    turns, seconds = (2, 1.0) if arguments.quick else (arguments.turns, arguments.seconds)
    cases: list[Case] = []
    for part in arguments.parts or ():
        cases += read_cases(json.loads(part.read_text()))
    for store in arguments.stores if not arguments.parts else ():
        for case in measure(store, registered, arguments.concurrent, turns, seconds):
            print(case.line(), file=sys.stderr, flush=True)
            cases.append(case)
    if arguments.keep:
        arguments.keep.write_text(json.dumps([asdict(case) for case in cases]))
        return
    text = report(cases)
    print(text)
    if not arguments.quick:
        Path(__file__).with_suffix(".md").write_text(text)


def measure(
    store: str, registered: Sequence[int], concurrent: Sequence[int], turns: int, seconds: float
) -> Iterator[Case]:
    """All cases of one store, the relays and the bare endpoint taking turns."""
    with tempfile.TemporaryDirectory(prefix="relay-") as folder, ExitStack() as stack:
        relays = dict(stack.enter_context(start_relays(store, registered, Path(folder))))
        echo = stack.enter_context(start_echo(Path(folder)))
        bare = [echo_pair(next(iter(relays.values())))]
        servers = {**relays, BARE: (echo, bare)}
        if store != "memory":
            servers[KEPT] = stack.enter_context(start_echo(Path(folder), Path(folder) / "kept")), bare
        for clients in concurrent:
            loads: dict[int, list[Load]] = {number: [] for number in servers}
            for _ in range(turns):
                for number, (server, pairs) in servers.items():
                    found = run(server.port, pairs, clients=clients, seconds=seconds, processor=server.processor)
                    loads[number].append(found)
            for number, (server, _) in relays.items():
                used, sync = memory([server.pid]), disk_seconds(Path(folder))
                yield Case(store, number, clients, loads[number], loads[BARE], used, sync, loads.get(KEPT, []))


@contextmanager
def start_relays(store: str, registered: Sequence[int], folder: Path) -> Iterator[dict[int, tuple[Server, list[Pair]]]]:
    """A relay for each number of registered clients, with the requests that its active clients make."""
    with ExitStack() as stack:
        relays = {}
        for number in registered:
            own = folder / str(number)  # a Redis for each, too: a busy one must not slow another relay's
            own.mkdir()
            url, redis = stack.enter_context(start_redis(own)) if store == "Redis" else ("", 0)
            place = {"memory": "memory", "SQLite": str(own / "relay.db"), "Redis": f"{url}/0"}[store]
            others = (redis,) if redis else ()
            server, tokens = stack.enter_context(start_relay(own, place, number, others))
            relays[number] = (server, relay_pairs(tokens))
        yield relays


def relay_pairs(tokens: dict[str, str], work: Work = MNIST) -> list[Pair]:
    """Requests of every active client: each publish differs from the one before, or it would change nothing."""
    pairs, precision = [], "" if work.precision == "fp32" else f"&precision={work.precision}"
    for number, (name, token) in enumerate(list(tokens.items()) * max(2, 200 // len(tokens))):
        head = f"host: relay\r\nauthorization: Bearer {token}\r\n"
        path = f"/v1/tasks/{NAME}"
        publish = request("PUT", f"{path}/clients/{name}/release", head, work.make_body(1_000 + number))
        pairs.append(Pair(publish, request("GET", f"{path}/teacher?observations=1&seed={number}{precision}", head)))
    return pairs


def echo_pair(relay: tuple[Server, list[Pair]]) -> Pair:
    """The same two requests for the bare endpoint, which answers as many bytes as this relay does."""
    server, pairs = relay
    published, collected = answer_sizes(server.port, pairs[0])
    body = pairs[0].publish.partition(b"\r\n\r\n")[2]
    head = f"host: relay\r\nauthorization: Bearer rs_{'x' * 60}\r\n"
    return Pair(request("PUT", f"/echo/{published}", head, body), request("GET", f"/echo/{collected}", head))


def disk_seconds(folder: Path) -> float:
    """How long the disk takes to keep 16 kB, median of a few."""
    with (folder / "block").open("wb", buffering=0) as block:
        found = []
        for _ in range(10):
            begun = time.perf_counter()
            block.write(bytes(16_384))
            os.fdatasync(block.fileno())
            found.append(time.perf_counter() - begun)
    return median(found)


def request(method: str, path: str, head: str, body: bytes = b"") -> bytes:
    """A request as bytes."""
    length = f"content-length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\n{head}{length}\r\n".encode() + body


if __name__ == "__main__":
    main()
