"""The servers that are compared, each a process of its own: relays filled with clients, and a bare endpoint.

`python benchmarks/relay_servers.py echo PORT [FILE]` serves the bare endpoint, `… memory PORT CLIENTS TOKENS` a relay
in memory: `repshare relay serve` cannot begin with a filled memory. Both get the relay's settings of uvicorn.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from repshare.board import Board
from repshare.relay.auth import Access, Grant
from repshare.relay.tasks import Tasks
from repshare.sharing.representations import Release, Representations
from repshare.sharing.task import Task
from repshare.sharing.wire import encode_release
from repshare.stores import Database, open_database

NAME = "mnist"  # of the task
AT_ONCE = 500  # clients registered in one transaction
ACTIVE = 1000  # at most so many of the registered clients make requests, spread evenly
RATE = 1_000_000  # requests a second that a client may make: counted, never refused
HERE = Path(__file__)


class Server(NamedTuple):
    """A server under way."""

    port: int
    pid: int
    others: tuple[int, ...] = ()  # processes that work for it

    def processor(self) -> float:
        """Seconds of processor time that it has used."""
        return sum(map(_processor, (self.pid, *self.others)))


class Work(NamedTuple):
    """What the clients do."""

    task: Task
    make_body: Callable[[int], bytes]  # a release, by a seed
    precision: str = "fp32"  # of what they collect


def make_body(seed: int) -> bytes:
    """A release as MNIST with LeNet5 has it: a mean and an observation of each class."""
    rng = np.random.default_rng(seed)
    labels = np.arange(MNIST.task.classes)

    def rows(count: int) -> Representations:
        vectors = np.tanh(rng.normal(size=(len(labels), MNIST.task.dimension))).astype(np.float32)
        return Representations(vectors, labels, np.full(len(labels), count))

    return encode_release(Release(1, rows(600), rows(100)))


MNIST = Work(Task(classes=10, dimension=84), make_body)


def fill(database: Database, clients: int, work: Work) -> dict[str, str]:
    """Register so many clients, each with a release and a token: the tokens of those that will be active."""
    Tasks(database).create(NAME, work.task)
    board, access = Tasks(database).get(NAME).board, database.store("access")
    bodies = [work.make_body(seed) for seed in range(100)]
    active = set(range(0, clients, max(1, clients // ACTIVE)))
    tokens = {}
    for start in range(0, clients, AT_ONCE):
        part = range(start, min(clients, start + AT_ONCE))
        board.store.transact(lambda state, part=part: _publish(state, part, work.task, bodies))
        made = access.transact(lambda state, part=part: _invite(state, part))
        tokens |= {name: token for number, (name, token) in zip(part, made, strict=True) if number in active}
    return tokens


@contextmanager
def start_redis(folder: Path) -> Iterator[tuple[str, int]]:
    """A redis-server that is as durable as SQLite: on the disk before it answers. Its URL and its process."""
    server, port = shutil.which("redis-server"), _free_port()
    if server is None:
        raise SystemExit("this needs a redis-server: apt-get install redis-server, or brew install redis")
    options = {"port": port, "bind": "127.0.0.1", "dir": folder, "save": "", "appendonly": "yes"}
    options |= {"appendfsync": "always", "loglevel": "warning", "auto-aof-rewrite-percentage": 0}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with _process([server, *words], folder) as pid:
        _wait_for(port)
        yield f"redis://127.0.0.1:{port}", pid


@contextmanager
def start_relay(
    folder: Path, place: str, clients: int, others: tuple[int, ...] = (), work: Work = MNIST, rate: float = RATE
) -> Iterator[tuple[Server, dict[str, str]]]:
    """A relay over this place with so many clients in it, and the active ones' tokens."""
    port = _free_port()
    if place == "memory":
        told = folder / "tokens.json"
        command = [sys.executable, str(HERE), "memory", str(port), str(clients), str(told)]
    else:
        database = open_database(place)
        tokens = fill(database, clients, work)
        database.close()
        command = [sys.executable, "-m", "repshare", "relay", "serve", "--db", place, "--port", str(port)]
        command += ["--rate", str(rate)]
    with _process(command, folder) as pid:
        _wait_for(port)
        yield Server(port, pid, others), tokens if place != "memory" else json.loads(told.read_text())


@contextmanager
def start_echo(folder: Path, keep: Path | None = None) -> Iterator[Server]:
    """The bare endpoint; with `keep`, one that has each body in that file, on the disk, before it answers."""
    port = _free_port()
    with _process([sys.executable, str(HERE), "echo", str(port), *([str(keep)] if keep else [])], folder) as pid:
        _wait_for(port)
        yield Server(port, pid)


def make_echo(keep: str = "") -> Any:
    """A FastAPI application that reads a body and answers as many bytes as it is asked for: nothing else."""
    from fastapi import FastAPI, Request, Response

    app, answers = FastAPI(), {}
    kept = os.open(keep, os.O_CREAT | os.O_WRONLY, 0o600) if keep else None

    @app.api_route("/echo/{size}", methods=["GET", "PUT"])
    async def echo(request: Request) -> Response:
        body = await request.body()
        if kept is not None and body:
            os.pwrite(kept, body, 0)
            os.fdatasync(kept)
        size = int(request.path_params["size"])
        if size not in answers:
            answers[size] = bytes(size)
        return Response(answers[size], media_type="application/octet-stream")

    return app


class Inside:
    """A store within a transaction of another, so that many clients can be registered in one."""

    name = ""

    def __init__(self, state: Any) -> None:
        self.state = state

    def transact(self, work: Callable[[Any], Any]) -> Any:
        """Do this work."""
        return work(self.state)

    def store(self, _: str) -> "Inside":
        """This one."""
        return self


def _publish(state: Any, numbers: range, task: Task, bodies: list[bytes]) -> None:
    board = Board(task, Inside(state))  # type: ignore[arg-type]
    for number in numbers:
        board.accept(_name(number), bodies[number % len(bodies)])


def _invite(state: Any, numbers: range) -> list[tuple[str, str]]:
    access = Access(Inside(state))  # type: ignore[arg-type]
    return [(_name(number), access.invite(Grant("client", _name(number), NAME))) for number in numbers]


def _name(number: int) -> str:
    return f"client-{number}"


@contextmanager
def _process(command: list[str], folder: Path) -> Iterator[int]:
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        yield process.pid
        if process.poll() is not None:
            raise SystemExit(f"{' '.join(command)} has ended:\n{(folder / 'log').read_text()[-2000:]}")
    finally:
        process.terminate()
        process.wait(60)


def _wait_for(port: int, seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as test:
            if test.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port} after {seconds:.0f} s")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _processor(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _serve(what: str, port: str, more: str = "", told: str = "") -> None:
    if what == "echo":
        import uvicorn

        same = {"log_config": None, "access_log": False, "server_header": False, "ws": "none", "proxy_headers": False}
        uvicorn.run(make_echo(more), port=int(port), timeout_keep_alive=75, **same)
        return
    from repshare.relay import server
    from repshare.relay.monitoring import logs
    from repshare.relay.options import Address, RelayOptions

    database = open_database("memory")
    Path(told).write_text(json.dumps(fill(database, int(more), MNIST)))
    logs.set_up()
    server.serve(database, RelayOptions(rate=RATE), Address(port=int(port)))


if __name__ == "__main__":
    _serve(*sys.argv[1:])
