"""The relay as a process among others: TLS, bad company, stops, and a store that goes away."""

import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

import httpx2
import pytest
import trustme

from repshare.cli.main import main
from repshare.errors import ConfigError
from repshare.relay.monitoring import logs
from repshare.relay.options import Address
from repshare.sharing.task import Task
from support.processes import eventually
from support.redis_servers import Redis
from support.relays import DIGITS, create_task, invite, release, repshare, start_open_relay, start_relay

DEPLOY = Path(__file__).parents[2] / "deploy"
FAST = ("--head-seconds", 1, "--body-seconds", 1)


def container_finds_well(relay):
    """Whether the container's own check of its health, asked about this relay, passes."""
    _, check = (DEPLOY / "Containerfile").read_text().split("HEALTHCHECK CMD ")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = check.replace(":8000/", f":{relay.port}/")
    done = subprocess.run(["sh", "-c", command], env={**os.environ, "PATH": path}, stderr=subprocess.PIPE, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode == 0


def connect(relay):
    return socket.create_connection(("127.0.0.1", relay.port), timeout=20)


def answer_to(connection):
    """All that comes until the other end closes."""
    parts = []
    while part := connection.recv(65_536):
        parts.append(part)
    return b"".join(parts)


def read_answer(connection):
    """One answer, with its body."""
    heard = b""
    while b"\r\n\r\n" not in heard:
        heard += connection.recv(65_536)
    length = int(re.search(rb"content-length: (\d+)", heard).group(1))
    while len(heard.partition(b"\r\n\r\n")[2]) < length:
        heard += connection.recv(65_536)
    return heard


def put_head(length, client="alice"):
    line = f"PUT /v1/tasks/digits/clients/{client}/release HTTP/1.1"
    return f"{line}\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n".encode()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """PEM files: an authority, and a certificate for 127.0.0.1 and one for a client."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for name, made in (("server", authority.issue_cert("127.0.0.1")), ("client", authority.issue_cert("alice@x"))):
        made.private_key_pem.write_to_path(folder / f"{name}.key")
        made.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    return folder


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--insecure", "--host", "0.0.0.0"], "--insecure is for this machine only"),
        (["--insecure", "--host", "10.1.2.3"], "--insecure is for this machine only"),
        (["--insecure", "--host", "::"], "--insecure is for this machine only"),
        (["--insecure", "--host", "0.0.0.0", "--behind-proxy"], "--insecure is for this machine only"),
        (["--host", "0.0.0.0"], "tokens would travel in the clear"),
        (["--certificate", "x.pem"], "both --certificate and --key"),
        (["--client-ca", "x.pem"], "--client-ca needs TLS"),
        (["--certificate", "x.pem", "--key", "x.key"], "there is no file x.pem"),
        (["--task", "new"], "a new task needs --classes and --dimension"),
        (["--task", "a/b", "--classes", "2", "--dimension", "2"], "cannot name a task"),
        (["--max-bytes", "0"], "max_bytes must be at least 1, not 0"),
        (["--rate", "-1"], "rate must be at least 0, not -1"),
        (["--db", "missing/relay.db"], "missing/relay.db"),
        (["--port", "70000"], "port must be from 0 to 65535, not 70000"),
    ],
)
def test_a_relay_that_would_be_unsafe_or_wrong_does_not_start(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logs, "set_up", lambda _: None)  # this is the tests' own process
    with pytest.raises(SystemExit) as exit:
        main(["relay", "serve", *arguments])
    out, error = capsys.readouterr()
    assert exit.value.code in (1, 2)
    assert words in error
    assert (out, len(error.strip().splitlines())) == ("", 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.5.6.7", "::1", "localhost"])
def test_on_loopback_a_relay_may_be_open(host):
    Address(host).check(insecure=True)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "relay.example.org", "localhost.example.org", ""])
def test_where_others_can_reach_it_a_relay_may_not_be_open(host):
    with pytest.raises(ConfigError):
        Address(host).check(insecure=True)
    with pytest.raises(ConfigError):
        Address(host).check(insecure=False)
    Address(host, behind_proxy=True).check(insecure=False)


@pytest.fixture(scope="module")
def open_relay(tmp_path_factory):
    """One for all tests whose requests change nothing in it."""
    with start_open_relay(tmp_path_factory.mktemp("open")) as relay:
        yield relay


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "localhost.evil.example:{port}", "10.0.0.1", ""]
)
def test_an_open_relay_answers_under_no_name_but_this_machines(open_relay, host):
    headers = {"Host": host.format(port=open_relay.port)}
    for method, path, body in (
        ("DELETE", "/v1/tasks/digits/clients/alice/release", None),
        ("PUT", "/v1/tasks/digits/clients/alice/release", release()),
        ("GET", "/v1/tasks/digits/teacher?client=bob", None),
        ("GET", "/v1/tasks", None),
    ):
        refused = open_relay.ask(method, path, headers=headers, content=body)
        assert (refused.status_code, refused.headers["content-type"]) == (403, "application/problem+json")
    assert [task["name"] for task in open_relay.ask("GET", "/v1/tasks").json()["tasks"]] == ["digits"]


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "[::1]", "127.0.0.2"])
def test_an_open_relay_answers_its_own_pages_and_no_others(open_relay, name):
    host = f"{name}:{open_relay.port}"
    ask = {"Host": host}
    assert open_relay.ask("GET", "/v1/tasks", headers=ask).status_code == 200
    assert open_relay.ask("GET", "/v1/tasks", headers={**ask, "Origin": f"http://{host}"}).status_code == 200
    for origin in ("https://evil.example", "null", "http://localhost:1", f"http://evil.example:{open_relay.port}"):
        refused = open_relay.ask("GET", "/v1/tasks", headers={**ask, "Origin": origin})
        assert refused.status_code == 403


def test_a_port_in_use_is_one_line(tmp_path):
    with start_open_relay(tmp_path) as relay:
        error = repshare("relay", "serve", "--port", relay.port, cwd=tmp_path, expect=2)
    assert f"cannot listen on 127.0.0.1 port {relay.port}" in error
    assert len(error.strip().splitlines()) == 1


def test_it_says_where_it_listens_to_people_and_to_programs(tmp_path):
    with start_open_relay(tmp_path) as relay:
        assert relay.logged(event="listening")["url"] == relay.url
        assert relay.url in relay.out.read_text()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", relay.url)
        assert container_finds_well(relay)
    assert not container_finds_well(relay)


def test_it_starts_fast_stays_small_and_never_sees_pytorch(tmp_path):
    with start_open_relay(tmp_path, cold=True) as relay:
        assert relay.ask("GET", "/healthz").json() == {"status": "ok"}
        ticks = Path(f"/proc/{relay.process.pid}/stat").read_text().split()[13:15]
        seconds = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")  # of a core: how long it takes on an idle machine
        status = Path(f"/proc/{relay.process.pid}/status").read_text()
        megabytes = int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024
        mapped = Path(f"/proc/{relay.process.pid}/maps").read_text()
    assert megabytes < 100
    assert seconds < 2
    for heavy in ("torch", "matplotlib", "sklearn"):
        assert f"/{heavy}/" not in mapped


def test_tls_serves_those_who_trust_the_authority(tmp_path, certificates):
    files = ["--certificate", certificates / "server.pem", "--key", certificates / "server.key"]
    create_task(tmp_path)
    token = invite(tmp_path, "alice", "--task", "digits")
    trusting = ssl.create_default_context(cafile=certificates / "ca.pem")
    with start_relay(tmp_path, *files, verify=trusting) as relay:
        assert relay.url.startswith("https://")
        assert relay.publish("alice", release(), token).status_code == 200
        assert container_finds_well(relay)
        with pytest.raises(httpx2.ConnectError), httpx2.Client() as untrusting:
            untrusting.get(f"{relay.url}/healthz")
        with pytest.raises(httpx2.HTTPError), httpx2.Client() as plain:
            plain.get(f"http://127.0.0.1:{relay.port}/healthz")


def test_with_a_client_authority_only_its_clients_get_in(tmp_path, certificates):
    files = ["--certificate", certificates / "server.pem", "--key", certificates / "server.key"]
    known = ssl.create_default_context(cafile=certificates / "ca.pem")
    known.load_cert_chain(certificates / "client.pem", certificates / "client.key")
    with start_relay(tmp_path, *files, "--client-ca", certificates / "ca.pem", verify=known) as relay:
        assert relay.ask("GET", "/healthz").status_code == 200
        assert relay.ask("GET", "/v1/me").status_code == 401  # the certificate does not replace the token
        unknown = ssl.create_default_context(cafile=certificates / "ca.pem")
        with pytest.raises(httpx2.HTTPError), httpx2.Client(verify=unknown) as client:
            client.get(f"{relay.url}/healthz")


def test_a_certificate_that_is_none_is_one_line(tmp_path):
    for name in ("x.pem", "x.key"):
        (tmp_path / name).write_text("nothing")
    error = repshare("relay", "serve", "--port", 0, "--certificate", "x.pem", "--key", "x.key", cwd=tmp_path, expect=2)
    assert "the certificate x.pem cannot be used" in error


def test_a_key_of_another_certificate_is_named(tmp_path):
    issued = [trustme.CA().issue_cert("127.0.0.1") for _ in range(2)]
    issued[0].cert_chain_pems[0].write_to_path(tmp_path / "x.pem")
    issued[1].private_key_pem.write_to_path(tmp_path / "y.key")
    error = repshare("relay", "serve", "--port", 0, "--certificate", "x.pem", "--key", "y.key", cwd=tmp_path, expect=2)
    assert "y.key cannot be used as the key of x.pem" in error


def test_a_body_of_2_gb_is_refused_without_being_kept(tmp_path):
    with start_open_relay(tmp_path, cold=True) as relay, connect(relay) as connection:
        connection.sendall(put_head(2 * 10**9))
        head = read_answer(connection)
        assert head.startswith(b"HTTP/1.1 413 ")
        assert f"at most {Task(10, 8).longest_release:,} are accepted".encode() in head
        assert peak_megabytes(relay) < 110


def test_an_endless_body_is_refused_while_it_is_read(tmp_path):
    with start_open_relay(tmp_path, "--max-bytes", 1_000_000, cold=True) as relay, connect(relay) as connection:
        connection.sendall(put_head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"))
        chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
        sent = 0
        connection.setblocking(False)
        heard, deadline = b"", time.monotonic() + 20
        while b"\r\n\r\n" not in heard and time.monotonic() < deadline and sent < 500:
            try:
                heard += connection.recv(4096)
            except BlockingIOError:
                connection.setblocking(True)
                connection.sendall(chunk)
                sent += 1
                connection.setblocking(False)
        assert heard.startswith(b"HTTP/1.1 413 "), (heard, sent)
        assert peak_megabytes(relay) < 110


def test_a_client_that_is_refused_can_still_read_why(tmp_path):
    with start_open_relay(tmp_path, "--max-bytes", 1000) as relay:
        for size in (1001, 100_000, 20_000_000):
            answer = relay.publish("alice", b"x" * size)
            assert (answer.status_code, answer.json()["status"]) == (413, 413)
        assert relay.publish("alice", release()).status_code == 200


def peak_megabytes(relay):
    status = Path(f"/proc/{relay.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status).group(1)) / 1024


def test_a_body_that_dawdles_is_408(tmp_path):
    with start_open_relay(tmp_path, *FAST) as relay, connect(relay) as connection:
        begun = time.monotonic()
        connection.sendall(put_head(1000) + b"x" * 10)
        heard = read_answer(connection)
        assert heard.startswith(b"HTTP/1.1 408 ")
        assert b"had not arrived after 1 seconds" in heard
        assert 0.9 < time.monotonic() - begun < 15
        assert relay.logged(event="refused", kind="too-slow")["client"] == "alice"


@pytest.mark.parametrize("beginning", [b"", b"GET /healthz HTTP/1.1\r\nHost:", b"G"])
def test_a_connection_that_says_nothing_or_half_a_head_is_closed(tmp_path, beginning):
    with start_open_relay(tmp_path, *FAST) as relay, connect(relay) as connection:
        begun = time.monotonic()
        connection.sendall(beginning)
        assert answer_to(connection) == b""
        assert 0.9 < time.monotonic() - begun < 15


def test_dripping_bytes_does_not_keep_a_connection_open(tmp_path):
    with start_open_relay(tmp_path, *FAST) as relay:
        for before in (
            b"",
            b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        ):  # a first head, and one after an answer
            with connect(relay) as connection:
                connection.sendall(before)
                begun = time.monotonic()
                with pytest.raises(OSError):
                    connection.sendall(b"GET /")
                    for _ in range(100):
                        connection.sendall(b"a")
                        time.sleep(0.1)
                assert time.monotonic() - begun < 9


def test_an_idle_connection_may_be_used_again(tmp_path):
    with start_open_relay(tmp_path, *FAST) as relay, connect(relay) as connection:
        for _ in range(2):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert read_answer(connection).startswith(b"HTTP/1.1 200 ")
            time.sleep(1.5)  # longer than a head may take


def test_a_thousand_idle_connections_and_slow_ones_do_not_stop_others(tmp_path):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    with start_open_relay(tmp_path, cold=True) as relay, ExitStack() as stack:
        for number in range(1000):
            connection = stack.enter_context(closing(connect(relay)))
            if number % 2:
                connection.sendall(
                    b"GET /healthz HTTP/1.1\r\nX:" if number % 4 == 1 else put_head(1000, "mallory") + b"x"
                )
        begun = time.monotonic()
        for round in range(1, 21):
            assert relay.publish("alice", release(round)).status_code == 200
        assert (time.monotonic() - begun) / 20 < 1
        assert peak_megabytes(relay) < 150


def ask_slowly(relay, path, client="alice"):
    """A connection that has asked, whose buffers are small."""
    connection = socket.socket()
    connection.settimeout(20)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    connection.connect(("127.0.0.1", relay.port))
    connection.sendall(f"GET {path}?client={client} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    return connection


def abandoned(relay):
    found = re.search(r"^repshare_abandoned_answers_total (\S+)$", relay.ask("GET", "/metrics").text, re.MULTILINE)
    return float(found.group(1))


def test_answers_that_nobody_reads_are_given_up(tmp_path):
    large = ("--task", "large", "--classes", 10, "--dimension", 190_000)
    path = "/v1/tasks/large/teacher"
    with (
        start_relay(
            tmp_path, "--db", "memory", "--insecure", "--rate", 0, *large, "--read-seconds", 2, cold=True
        ) as relay,
        ExitStack() as stack,
    ):
        assert relay.publish("bob", release(classes=range(10), dimension=190_000), task="large").status_code == 200
        size = len(relay.teacher(task="large", client="alice").content)
        before, silent = peak_megabytes(relay), 25
        for _ in range(silent):
            asked = stack.enter_context(closing(ask_slowly(relay, path)))
            assert asked.recv(12) == b"HTTP/1.1 200", "made before the next is asked for: one token has room for one"
            assert relay.ask("GET", "/healthz").status_code == 200
        assert peak_megabytes(relay) - before < 128 + 5 * size / 1e6 < silent * size / 1e6 / 1.5
        assert len(relay.teacher(task="large", client="alice").content) == size
        eventually(lambda: abandoned(relay) == silent, "all of them are given up", 10)
        with closing(ask_slowly(relay, path)) as slow:
            heard, begun = 0, time.monotonic()
            while heard < size:
                time.sleep(0.02)
                heard += len(slow.recv(100_000)) or pytest.fail("a steady reader was cut off")
            assert time.monotonic() - begun > 2, "longer than a reader may be silent"
        assert abandoned(relay) == silent


def test_a_stop_finishes_what_is_under_way_and_wakes_who_waits(tmp_path):
    with start_open_relay(tmp_path) as relay, connect(relay) as slow:
        body, woken = release(), []

        def wait():
            woken.append(relay.ask("GET", "/v1/tasks/digits/news", params={"since": 0, "wait": 60}).json())

        waiting = threading.Thread(target=wait)
        waiting.start()
        slow.sendall(put_head(len(body)) + body[:10])
        time.sleep(0.5)
        relay.process.send_signal(signal.SIGTERM)
        relay.logged(event="stopping")
        waiting.join(5)
        assert woken == [{"version": 0}]
        assert relay.process.poll() is None
        slow.sendall(body[10:])
        assert answer_to(slow).endswith(b'{"version": 1}')
        assert relay.process.wait(10) == 0
        relay.logged(event="stopped")


def test_it_is_not_well_without_its_store_and_well_again_with_it(tmp_path):
    redis = Redis(tmp_path)
    try:
        place = ("--db", redis.url)
        with start_relay(
            tmp_path, *place, "--insecure", "--task", "digits", "--classes", 10, "--dimension", 8
        ) as relay:
            assert relay.ask("GET", "/healthz").status_code == 200
            version = relay.publish("alice", release()).json()["version"]
            redis.stop()
            time.sleep(0.6)
            gone = relay.ask("GET", "/healthz")
            assert (gone.status_code, gone.headers["content-type"]) == (503, "application/problem+json")
            refused = relay.publish("alice", release(2))
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            redis.start()
            eventually(lambda: relay.ask("GET", "/healthz").status_code == 200, "the relay is well again", 10)
            assert relay.publish("alice", release(2)).json()["version"] == version + 1
    finally:
        redis.kill()


def test_two_relays_on_one_redis_are_one_relay(tmp_path):
    redis = Redis(tmp_path)
    try:
        place = ("--db", redis.url, "--insecure")
        task = ("--task", "digits", *DIGITS)
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        with start_relay(tmp_path / "a", *place, *task) as one, start_relay(tmp_path / "b", *place) as two:
            now = one.publish("alice", release()).json()["version"]
            assert two.teacher(client="bob").content == one.teacher(client="bob").content
            news = []

            def wait():
                news.append(one.ask("GET", "/v1/tasks/digits/news", params={"since": now, "wait": 20}).json())

            waiting = threading.Thread(target=wait)
            waiting.start()
            time.sleep(0.3)
            changed = two.publish("carol", release()).json()
            begun = time.monotonic()
            waiting.join(10)
            assert news == [changed]
            assert time.monotonic() - begun < 3
            repshare("relay", "tasks", "delete", "digits", "--yes", "--db", redis.url, cwd=tmp_path)
            time.sleep(1.2)
            assert one.ask("GET", "/v1/tasks/digits").status_code == 404
    finally:
        redis.kill()
