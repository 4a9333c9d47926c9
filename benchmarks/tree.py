"""What do joined relays and their disks cost? Processor time and bytes, not seconds. Writes tree.md.

A root on SQLite, at which leaves publish their clients' total and fetch everybody else's, one after the other; what an
uplink takes at its leaf; and what a client of a common classifier takes in SQLite and in Redis.

    python benchmarks/tree.py            # about a minute
    python benchmarks/tree.py --quick    # fewer clients and leaves; writes nothing
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np

from common_relay import CLASSES, DIMENSION, WORK
from relay import disk_seconds
from relay_report import describe_machine
from relay_servers import NAME, fill, start_redis, start_relay
from repshare.board.joining import read_total
from repshare.relay.auth import Access, Grant
from repshare.relay.tasks import Tasks
from repshare.sharing import wire
from repshare.sharing.joined import Total
from repshare.stores import open_database

CLIENTS, LEAVES, CYCLES = 2000, 100, 10
UPSTREAM = "(upstream)"

PAGE = """# Joined relays, and disks

Made by `benchmarks/tree.py`: a common classifier with C = {classes}, d = {dimension:,}, parts in fp16. Processor time
of the process itself, all threads, since other work shared the machine; no wall time.

| | |
|---|---:|
| a leaf's step at the root (publish a total, fetch the others'), of {leaves} leaves, on SQLite: CPU ms | {root:.2f} |
| bytes up, bytes down | {up:,}, {down:,} |
| a look by an uplink that finds nothing new (304): CPU ms at the root | {idle:.2f} |
| a question for news that is answered at once: CPU ms | {news:.2f} |
| reading and encoding a leaf's total, of {clients:,} clients, on SQLite: CPU ms | {leaf:.2f} |
| SQLite: bytes on the disk a client, releases and tokens | {sqlite:,.0f} |
| Redis: bytes of memory a client | {redis:,.0f} |
| a part of a client: bytes | {part:,} |

## Machine

{machine}
"""


class Root(NamedTuple):
    """A leaf's step at the root."""

    step: float  # seconds of its processor
    idle: float
    news: float
    up: int  # bytes
    down: int


def measure_root(folder: Path, leaves: int, cycles: int) -> Root:
    """Have leaves publish totals that change, and fetch the others'; then fetch what has not changed."""
    folder.mkdir()
    place = str(folder / "relay.db")
    with start_relay(folder, place, 1, work=WORK) as (server, _), httpx.Client() as http:
        database = open_database(place)
        access, task = Access(database), Tasks(database).get(NAME)
        tokens = [access.invite(Grant("relay", f"leaf-{number}", NAME)) for number in range(leaves)]
        _, example = read_total(task.board, 1, "")
        paths = [f"http://127.0.0.1:{server.port}/v1/tasks/{NAME}/relays/leaf-{n}/total" for n in range(leaves)]
        client = {"Authorization": f"Bearer {access.invite(Grant('client', 'waiting', NAME))}"}
        headers = [{"Authorization": f"Bearer {token}"} for token in tokens]
        database.close()
        bodies = {
            (cycle, leaf): wire.encode_total(_change(example, leaf, cycle))
            for cycle in range(cycles)
            for leaf in range(leaves)
        }
        before, tags = server.processor(), {}
        for (_, leaf), body in bodies.items():
            http.put(paths[leaf], content=body, headers=headers[leaf]).raise_for_status()
            got = http.get(paths[leaf], headers=headers[leaf]).raise_for_status()
            tags[leaf] = got.headers["ETag"]
        step = (server.processor() - before) / len(bodies)
        last = leaves - 1  # the others' tags are older
        before = server.processor()
        for _ in range(len(bodies)):
            answer = http.get(paths[last], headers={**headers[last], "If-None-Match": tags[last]})
            assert answer.status_code == 304
        idle = (server.processor() - before) / len(bodies)
        before = server.processor()
        for _ in range(len(bodies)):
            question = {"since": 0, "wait": 0}
            http.get(f"{paths[0].partition('/relays')[0]}/news", params=question, headers=client).raise_for_status()
        news = (server.processor() - before) / len(bodies)
    return Root(step, idle, news, len(body), len(got.content))


def _change(total: Total, leaf: int, cycle: int) -> Total:
    sums = total.sums.copy()
    sums[:, 0] += leaf + 1000 * cycle
    return total._replace(sums=sums, relays=np.array([1000 + leaf], np.uint64), round=cycle + 1)


def measure_sqlite(folder: Path, clients: int) -> tuple[float, float]:
    """Return the bytes of a client on the disk, and the seconds of processor that reading the total takes."""
    folder.mkdir()
    database = open_database(str(folder / "relay.db"))
    fill(database, clients, WORK)
    task = Tasks(database).get(NAME)
    before = time.process_time()
    for _ in range(20):
        _, total = read_total(task.board, task.entry.number, UPSTREAM)
        wire.encode_total(total)
    taken = (time.process_time() - before) / 20
    database.close()
    return sum(path.stat().st_size for path in folder.iterdir()) / clients, taken


def measure_redis(folder: Path, clients: int) -> float:
    """Return the bytes of a client in Redis' memory."""
    folder.mkdir()
    with start_redis(folder) as (url, _):
        database = open_database(url)
        connection = database.connection  # type: ignore[attr-defined]
        before = connection.info("memory")["used_memory"]
        fill(database, clients, WORK)
        taken = connection.info("memory")["used_memory"] - before
        database.close()
    return float(taken / clients)


def main() -> None:
    """Measure, and write the page."""
    quick = "--quick" in sys.argv[1:]
    clients, leaves, cycles = (200, 10, 3) if quick else (CLIENTS, LEAVES, CYCLES)
    with tempfile.TemporaryDirectory(prefix="tree-") as name:
        folder = Path(name)
        root = measure_root(folder / "root", leaves, cycles)
        sqlite, leaf = measure_sqlite(folder / "sqlite", clients)
        redis = measure_redis(folder / "redis", clients)
        syncs = [disk_seconds(folder) for _ in range(3)]
    machine = "\n".join(f"- {key}: {value}" for key, value in describe_machine(syncs).items())
    page = PAGE.format(
        classes=CLASSES,
        dimension=DIMENSION,
        leaves=leaves,
        clients=clients,
        root=1e3 * root.step,
        idle=1e3 * root.idle,
        news=1e3 * root.news,
        up=root.up,
        down=root.down,
        leaf=1e3 * leaf,
        sqlite=sqlite,
        redis=redis,
        part=len(WORK.make_body(0)),
        machine=machine,
    )
    print(page)
    if not quick:
        Path(__file__).with_suffix(".md").write_text(page)


if __name__ == "__main__":
    main()
