"""Strangers' connections: heads, headers, pipelines and numbers of them are bounded, and others get in."""

import http.client
import re
import signal
import socket
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

import httpx2
import pytest

from repshare.relay.service import MOST_WAITS
from support.processes import Process, eventually
from support.relays import create_task, invite, release, start_relay

HOST = b"Host: 127.0.0.1\r\n"


def megabytes(relay, what="VmHWM"):
    status = Path(f"/proc/{relay.process.pid}/status").read_text()
    return int(re.search(rf"{what}:\s+(\d+)", status).group(1)) / 1024


def connect(relay, address="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", relay.port), timeout=20, source_address=(address, 0))


def answer_to(connection, content):
    """All that comes until the other end closes; nothing if it does so at once."""
    heard = b""
    with suppress(ConnectionError):
        connection.sendall(content)
        while part := connection.recv(65_536):
            heard += part
    return heard


def is_open(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


@pytest.mark.parametrize("size", [65_000, 66_000, 70_000, 200_000])
def test_a_head_of_more_than_64_kilobytes_is_cut_off_and_a_shorter_one_served(tmp_path, size):
    with start_relay(tmp_path) as relay:
        for part in (b"X-Long: %s\r\n" % (b"x" * (size - 100)), b""):  # as a header, and as a path
            with connect(relay) as connection:
                path = b"/healthz" if part else b"/healthz?" + b"x" * (size - 100)
                heard = answer_to(connection, b"GET %s HTTP/1.1\r\n%sConnection: close\r\n%s\r\n" % (path, HOST, part))
                assert heard.startswith(b"HTTP/1.1 200 ") == (size < 65_536), heard[:100]


def test_heads_of_countless_headers_take_no_memory(tmp_path):
    with start_relay(tmp_path, cold=True) as relay, ExitStack() as stack:
        before = megabytes(relay)
        crowd = [stack.enter_context(closing(connect(relay))) for _ in range(300)]
        for connection in crowd:
            connection.sendall(b"GET / HTTP/1.1\r\n" + b"aa:\r\n" * 10_000)  # below 64 kB
        assert all(answer_to(connection, b"").startswith(b"HTTP/1.1 400 ") for connection in crowd)
        assert megabytes(relay) - before < 50


def test_long_heads_that_do_not_end_take_a_bounded_memory(tmp_path):
    with start_relay(tmp_path, cold=True) as relay, ExitStack() as stack:
        before = megabytes(relay)
        waiting = [stack.enter_context(closing(connect(relay, "127.0.0.2"))) for _ in range(1000)]
        for connection in waiting:
            with suppress(ConnectionError):
                connection.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 60_000)
        assert relay.ask("GET", "/healthz").status_code == 200
        eventually(lambda: sum(map(is_open, waiting)) < 600, "the oldest are closed")
        assert relay.logged(event="connection closed", reason="too long heads")["address"] == "127.0.0.2"
        assert megabytes(relay) - before < 150


def test_pipelined_requests_do_not_pile_up(tmp_path):
    with start_relay(tmp_path, cold=True) as relay, ExitStack() as stack:
        assert relay.ask("GET", "/").status_code == 200
        before = megabytes(relay)
        crowd = [stack.enter_context(closing(connect(relay))) for _ in range(200)]
        for connection in crowd:
            with suppress(ConnectionError):
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n" * 3_000)  # no more bytes than a head may have
        eventually(lambda: not any(map(is_open, crowd)), "they are closed")
        assert megabytes(relay) - before < 50


def test_some_pipelined_requests_are_answered_in_order(tmp_path):
    with start_relay(tmp_path) as relay, connect(relay) as connection:
        asked = [b"GET /%s HTTP/1.1\r\n%s\r\n" % (path, HOST) for path in (b"healthz", b"nothing") * 5]
        heard = answer_to(connection, b"".join(asked)[:-2] + b"Connection: close\r\n\r\n")
        assert re.findall(rb"HTTP/1.1 (\d+) ", heard) == [b"200", b"404"] * 5


def test_names_of_files_that_strangers_make_up_are_not_kept(tmp_path):
    with start_relay(tmp_path, cold=True) as relay, closing(http.client.HTTPConnection(relay.url[7:])) as connection:
        before = 0.0
        for number in range(1500):
            connection.request("GET", f"/static/{number}{'x' * 50_000}")  # httpx2 takes longer to look at the name
            with connection.getresponse() as answer:
                assert answer.read()
            assert answer.status == 404
            before = megabytes(relay) if number == 200 else before  # threads and their memory are there by then
        assert megabytes(relay) - before < 20  # kept, they would be 65


def test_where_there_are_too_many_connections_the_address_with_most_loses_its_oldest(tmp_path):
    create_task(tmp_path)
    token = invite(tmp_path, "alice", "--task", "digits")
    with start_relay(tmp_path, "--connections", 100) as relay, ExitStack() as stack:
        crowd = [stack.enter_context(closing(connect(relay, "127.0.0.2"))) for _ in range(300)]
        assert relay.publish("alice", release(), token).status_code == 200
        eventually(lambda: sum(map(is_open, crowd)) <= 100, "the oldest are closed")
        assert not any(map(is_open, crowd[:200]))
        assert relay.logged(event="connection closed", address="127.0.0.2")["reason"] == "too many connections"
        assert relay.logged(event="lines left out", of="strangers")["lines"] > 0


def is_well(http):
    """Whether the relay answers. While it has no file to spare, libuv closes what it accepts."""
    with suppress(httpx2.TransportError):
        return http.get("/healthz").status_code == 200
    return False


def test_one_token_cannot_take_all_files_by_waiting(tmp_path):
    create_task(tmp_path)
    alice, mallory = (invite(tmp_path, name, "--task", "digits") for name in ("alice", "mallory"))
    limited = ("prlimit", "--nofile=200:200")
    process = Process("relay", "serve", "--port", 0, cwd=tmp_path, name="relay", prefix=limited)
    try:
        line = eventually(lambda: re.search(r'"url": "(.*?)"', process.err.read_text()), "the relay listens")
        wait = (
            f"GET /v1/tasks/digits/news?since=0&wait=60 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {mallory}\r\n\r\n"
        )
        with ExitStack() as stack, httpx2.Client(base_url=line.group(1), timeout=30) as http:
            place = ("127.0.0.1", http.base_url.port)
            waiting = [
                stack.enter_context(closing(socket.create_connection(place, 20, ("127.0.0.2", 0)))) for _ in range(400)
            ]
            for connection in waiting:
                with suppress(ConnectionError):
                    connection.sendall(wait.encode())
            eventually(partial(is_well, http), "the relay has closed the connections that are too many")
            for round in range(1, 11):
                path, headers = "/v1/tasks/digits/clients/alice/release", {"Authorization": f"Bearer {alice}"}
                assert http.put(path, content=release(round), headers=headers).status_code == 200
                assert http.get("/healthz").status_code == 200
        assert "fewer connections than wanted" in process.err.read_text()
        assert "too many connections" in process.err.read_text()
    finally:
        process.stop(signal.SIGTERM)


def test_few_requests_of_one_token_wait_at_the_same_time(tmp_path):
    create_task(tmp_path)
    tokens = {name: invite(tmp_path, name, "--role", "viewer") for name in ("eve", "frank")}
    with start_relay(tmp_path, "--public-metrics") as relay, ExitStack() as stack:

        def wait(name):
            connection = stack.enter_context(closing(connect(relay)))
            head = "GET /v1/tasks/digits/news?since=0&wait=60 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
            connection.sendall(f"{head}{tokens[name]}\r\n\r\n".encode())

        for _ in range(MOST_WAITS):
            wait("eve")
        eventually(lambda: waiting(relay) == MOST_WAITS, "they wait")
        path = "/v1/tasks/digits/news"
        assert relay.ask("GET", path, tokens["eve"], params={"since": 0, "wait": 60}).status_code == 429
        wait("frank")
        eventually(lambda: waiting(relay) == MOST_WAITS + 1, "another's waits")


def waiting(relay):
    return int(float(re.search(r"^repshare_waiting_requests (\S+)$", relay.ask("GET", "/metrics").text, re.M).group(1)))
