"""What a relay holds in memory at once is bounded, whatever it is asked; and honest clients are served meanwhile."""

import re
import resource
import socket
import subprocess
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from repshare.board import Board, Wants
from repshare.errors import Refused
from repshare.relay.limits import size_of_rows, size_of_teacher
from repshare.relay.tasks import Tasks
from repshare.sharing.representations import Release, Representations
from repshare.sharing.task import Task
from repshare.sharing.wire import encode_release
from repshare.stores import open_database
from support.relays import create_task, invite, start_relay

ROOT = Path(__file__).parents[2]
LARGE = ("--classes", 10, "--dimension", 84)
CONNECTIONS, OBSERVATIONS = 190, 1000
MOST_MEGABYTES = 400  # by one attack alone: half of the bound


def large_release(classes=10, dimension=84, observations=OBSERVATIONS, round=1):
    """As many observations of each class as a release may have."""
    rng = np.random.default_rng(0)
    means = Representations(
        rng.normal(size=(classes, dimension)).astype(np.float32), np.arange(classes), np.full(classes, 20)
    )
    labels = np.repeat(np.arange(classes), observations)
    rows = Representations(
        rng.normal(size=(len(labels), dimension)).astype(np.float32), labels, np.full(len(labels), 20)
    )
    return encode_release(Release(round, means, rows))


def megabytes(relay, what="VmHWM"):
    status = Path(f"/proc/{relay.process.pid}/status").read_text()
    return int(re.search(rf"{what}:\s+(\d+)", status).group(1)) / 1024


def ask_at_once(relay, path, tokens):
    """Ask once with each of these tokens, all at the same time: how often each status came."""
    statuses = Counter()
    with ExitStack() as stack:
        connections = [
            stack.enter_context(closing(socket.create_connection(("127.0.0.1", relay.port), timeout=120)))
            for _ in tokens
        ]

        def read(connection):
            heard = connection.recv(65_536)
            statuses[int(heard.split()[1])] += 1
            while connection.recv(2**20):
                pass

        readers = [threading.Thread(target=read, args=(connection,)) for connection in connections]
        for connection, token in zip(connections, tokens, strict=True):
            head = (
                f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
            )
            connection.sendall(head.encode())
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    return statuses


@contextmanager
def honest(relay, token):
    """An honest client at work for the length of a block: how often each status came."""
    statuses, over = Counter(), threading.Event()

    def work():
        while not over.is_set() or not statuses:
            statuses[relay.teacher(token, task="t").status_code] += 1

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield statuses
    finally:
        over.set()
        worker.join()


@pytest.mark.parametrize(
    ("options", "attackers", "expected"),
    [((), 1, {200, 429}), (("--rate", 0), 1, {200, 429}), (("--rate", 0), 10, {200, 429, 503})],
    ids=["within the rate", "without a rate", "by many"],
)
def test_requests_for_large_teachers_stay_within_the_bound_and_others_are_served(
    tmp_path, options, attackers, expected
):
    create_task(tmp_path, "t", *LARGE)
    names = [f"mallory {number}" for number in range(attackers)]
    tokens = {name: invite(tmp_path, name, "--task", "t") for name in ("alice", "bob", *names)}
    with start_relay(tmp_path, *options, cold=True) as relay:
        assert relay.publish("bob", large_release(), tokens["bob"], "t").status_code == 200
        with honest(relay, tokens["alice"]) as served:
            asking = [tokens[names[number % attackers]] for number in range(CONNECTIONS)]
            statuses = ask_at_once(relay, "/v1/tasks/t/teacher?observations=1000", asking)
        assert set(statuses) <= expected
        assert set(served) == {200}
        assert megabytes(relay) < MOST_MEGABYTES


def test_the_status_is_made_without_all_releases_in_memory(tmp_path):
    create_task(tmp_path, "t", *LARGE)
    names = [f"client{number}" for number in range(40)]
    database = open_database(str(tmp_path / "relay.db"))
    board, body = Tasks(database).get("t").board, large_release()
    for name in names:
        board.accept(name, body)
    database.close()
    viewer = invite(tmp_path, "eve", "--role", "viewer")
    with start_relay(tmp_path, cold=True) as relay:
        before = megabytes(relay)
        assert relay.ask("GET", "/v1/tasks/t/status", viewer).status_code == 200
        assert megabytes(relay) - before < 100 < len(names) * len(body) / 1e6


def test_the_size_of_an_answer_is_known_before_it_is_made():
    board = Board(Task(10, 84))
    for name, observations in (("bob", 3), ("carol", 1000)):
        board.accept(name, large_release(observations=observations))
    for wants in (Wants(5, 0), Wants(1000, 0)):
        made = len(board.teach("alice", wants))
        size = size_of_teacher(board, wants)
        assert made < size < 4 * made
        assert size <= size_of_rows(board.task, 10 * (1 + wants.observations))


def test_an_answer_that_is_too_large_is_refused_for_good(tmp_path):
    create_task(tmp_path, "t", "--classes", 100, "--dimension", 512)
    tokens = {name: invite(tmp_path, name, "--task", "t") for name in ("alice", "bob", "carol")}
    with start_relay(tmp_path) as relay:
        body = large_release(100, 512, observations=70)
        for name in ("bob", "carol"):
            assert relay.publish(name, body, tokens[name], "t").status_code == 200
        refused = relay.teacher(tokens["alice"], task="t", observations=1000)
        assert (refused.status_code, "retry-after" in refused.headers) == (422, False)
        assert "ask for fewer observations" in refused.json()["detail"]
        assert relay.teacher(tokens["alice"], task="t", observations=1).status_code == 200


def test_a_release_of_more_rows_than_memory_has_room_for_is_refused():
    board = Board(Task(2000, 1))
    with pytest.raises(Refused, match="at most 100,000 are taken at once"):
        board.accept("bob", large_release(2000, 1, observations=51))


def test_a_query_of_countless_fields_is_refused(tmp_path):
    create_task(tmp_path, "t", *LARGE)
    token = invite(tmp_path, "alice", "--task", "t")
    with start_relay(tmp_path) as relay:
        assert relay.ask("GET", f"/v1/tasks/t/teacher?{'a&' * 20_000}", token).status_code == 422


def limited(megabytes):
    """Starts processes that get no more memory than this from the system.

    RLIMIT_DATA counts what they may write to and share with nobody: heaps, mappings and threads' stacks, touched or
    not. RLIMIT_AS would also count libraries, the database's mapped pages and addresses that malloc sets aside for each
    thread (64 MB) and mostly never asks for: it says little about memory. RLIMIT_RSS does nothing.
    """
    most = megabytes * 2**20
    return partial(subprocess.Popen, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (most, most)))


@pytest.mark.parametrize("hard", [False, True], ids=["measured", "where the system gives no more"])
def test_all_attacks_at_once_stay_within_the_bound_that_the_documents_state(tmp_path, hard):
    stated = int(re.search(r"At most \*\*(\d+) MB\*\*", (ROOT / "docs/relay.md").read_text()).group(1))
    popen = limited(1024) if hard else None
    assert "MemoryMax=1G\n" in (ROOT / "deploy/repshare-relay.service").read_text()
    assert stated <= 800
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    create_task(tmp_path, "t", *LARGE)
    names = [f"mallory{number}" for number in range(12)]
    tokens = {name: invite(tmp_path, name, "--task", "t") for name in ("alice", *names)}
    viewer = invite(tmp_path, "eve", "--role", "viewer")
    body, over = large_release(), threading.Event()
    with start_relay(tmp_path, "--rate", 0, cold=True, popen=popen) as relay, ExitStack() as stack:
        assert relay.publish(names[0], body, tokens[names[0]], "t").status_code == 200

        def hold(count, address, content):
            """Connections that say this and then nothing, and read nothing."""
            for _ in range(count):
                place = ("127.0.0.1", relay.port)
                connection = stack.enter_context(closing(socket.create_connection(place, 60, (address, 0))))
                with suppress(OSError):
                    connection.sendall(content)

        def ask(path):
            while not over.is_set():
                ask_at_once(relay, path, [tokens[name] for name in names for _ in range(5)])

        def publish(name):
            round = 1
            while not over.is_set():
                round += 1
                relay.publish(name, large_release(round=round), tokens[name], "t")

        def look(path):
            while not over.is_set():
                relay.ask("GET", f"/v1/tasks/t/{path}", viewer)

        question = "GET /v1/tasks/t/teacher?observations=1000 HTTP/1.1\r\n"
        question += f"Authorization: Bearer {tokens[names[1]]}\r\n\r\n"
        attacks = [threading.Thread(target=ask, args=("/v1/tasks/t/teacher?observations=1000",)) for _ in range(2)]
        attacks += [threading.Thread(target=publish, args=(name,)) for name in names]
        attacks += [threading.Thread(target=look, args=(path,)) for path in ("status", "status?x")]
        for each in attacks:
            each.start()
        try:
            with honest(relay, tokens["alice"]) as served:
                hold(1000, "127.0.0.2", b"GET / HTTP/1.1\r\nX: " + b"x" * 60_000)
                hold(2000, "127.0.0.3", b"")
                hold(100, "127.0.0.4", b"GET / HTTP/1.1\r\n\r\n" * 10_000)
                hold(100, "127.0.0.5", question.encode())
                time.sleep(5)
        finally:
            over.set()
            for each in attacks:
                each.join()
        print(megabytes(relay), megabytes(relay, "VmData"), megabytes(relay, "VmPeak"), served)
        assert set(served) == {200}
        assert megabytes(relay) < stated
        assert relay.process.poll() is None
        assert not [line for line in relay.log() if line.get("kind") == "unforeseen" or "MemoryError" in str(line)]
