"""A relay that fails in every way a server can: a real socket that answers as it is told."""

import json
import logging
import socket
import ssl
import threading
import time
from contextlib import suppress

import pytest
import trustme

from repshare.board import Wants
from repshare.errors import ConfigError, Malformed, Outdated, Refused, Unreachable
from repshare.exchange import http
from repshare.exchange.http import Connection
from repshare.exchange.relay import Membership, RelayExchange
from repshare.sharing.task import Task

TOKEN = "secret-of-alice"
WANTS = Wants(observations=1, seed=7)


class Scripted:
    """A server that gives one answer a connection, in order, and keeps what it was asked."""

    def __init__(self, *answers, tls=None):
        self.answers, self.asked, self.tls = list(answers), [], tls
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.socket.getsockname()[1]}"
        self.thread = threading.Thread(target=self._serve)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        socket.create_connection(self.socket.getsockname()).close()  # an empty request ends it
        self.thread.join()
        self.socket.close()

    def _serve(self):
        while True:
            try:
                peer, _ = self.socket.accept()
                peer = self.tls.wrap_socket(peer, server_side=True) if self.tls else peer
            except OSError:
                return
            with peer:
                peer.settimeout(10)
                request = self._read(peer)
                if not request:
                    return
                self.asked.append(request)
                answer = self.answers.pop(0) if self.answers else reply(500)
                with suppress(OSError):  # the client has had enough
                    answer(peer) if callable(answer) else peer.sendall(answer)

    @staticmethod
    def _read(peer):
        read = b""
        while b"\r\n\r\n" not in read:
            if not (piece := peer.recv(65536)):
                return read
            read += piece
        head, _, body = read.partition(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            while line.startswith(b"content-length:") and len(body) < int(line.split(b":")[1]):
                body += peer.recv(65536)
        return head + b"\r\n\r\n" + body


def reply(status, body=b"", kind="application/octet-stream", **headers):
    lines = [f"HTTP/1.1 {status} x", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def problem(status, detail, **headers):
    body = json.dumps({"type": "about:blank", "title": "x", "status": status, "detail": detail}).encode()
    return reply(status, body, "application/problem+json", **headers)


def hang(peer):
    peer.recv(1)  # until the client gives up


def drip(peer):
    peer.sendall(b"HTTP/1.1 200 x\r\nContent-Type: application/octet-stream\r\nContent-Length: 1000\r\n\r\n")
    while True:
        peer.sendall(b"x")
        time.sleep(0.05)


def flood(peer):
    peer.sendall(b"HTTP/1.1 200 x\r\nContent-Type: application/octet-stream\r\n\r\n")
    while True:
        peer.sendall(b"x" * 65536)


class Time:
    """A clock that only sleeping moves."""

    def __init__(self):
        self.now, self.slept = 0.0, []

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def relay(server, **options):
    return RelayExchange(server.url, "digits", client="alice", token=TOKEN, **{"timeout": 0.3, **options})


def timed(server, patience=30.0):
    time = Time()
    return Connection(server.url, patience=patience, clock=time.clock, sleep=time.sleep, jitter=lambda: 1.0), time


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_relay_that_stumbles_is_asked_again():
    def cut_off(peer):
        peer.sendall(reply(200, b"whole")[:-2])

    with Scripted(reply(503), cut_off, lambda peer: None, hang, reply(200, b"whole")) as server:
        assert relay(server).collect(WANTS) == b"whole"
        assert len(server.asked) == 5


def test_a_publish_that_is_tried_again_sends_the_same_bytes():
    with Scripted(reply(502), reply(200, b'{"version": 1}', "application/json")) as server:
        relay(server).publish(b"\x00release\xff")
        assert server.asked[0] == server.asked[1]
        head, _, body = server.asked[1].partition(b"\r\n\r\n")
        assert head.startswith(b"PUT /v1/tasks/digits/clients/alice/release HTTP/1.1")
        assert body == b"\x00release\xff"


def test_pauses_double_up_to_a_limit_and_end_with_patience():
    with Scripted(*[reply(500)] * 20) as server:
        connected, time = timed(server, patience=40)
        with pytest.raises(Unreachable, match=r"500 Internal Server Error \(9 tries in 40\.0 s\)"):
            connected.ask("GET", "/")
    assert time.slept == pytest.approx([0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 7.6])


def test_pauses_are_drawn_from_zero_to_their_length():
    drawn = iter([0.0, 0.5, 0.25])
    time = Time()
    with Scripted(reply(500), reply(500), reply(500), reply(200)) as server:
        Connection(server.url, clock=time.clock, sleep=time.sleep, jitter=lambda: next(drawn)).ask("GET", "/")
    assert time.slept == pytest.approx([0.0, 0.5 * 0.8, 0.25 * 1.6])


def test_a_relay_that_says_when_is_asked_again_then():
    with Scripted(problem(429, "too fast", Retry_After=7), reply(200)) as server:
        connected, time = timed(server)
        connected.ask("GET", "/")
    assert time.slept == [7]


def test_a_relay_that_says_much_later_is_believed():
    with Scripted(problem(429, "too fast", Retry_After=900), reply(200)) as server:
        connected, time = timed(server)
        with pytest.raises(Unreachable, match="too fast"):
            connected.ask("GET", "/")
        with pytest.raises(Unreachable, match="next try in 900 s"):
            connected.ask("GET", "/")
        time.now = 901
        assert connected.ask("GET", "/").status == 200
    assert time.slept == []


def test_a_relay_that_is_away_costs_its_patience_once():
    time = Time()
    away = Connection(closed_port(), patience=20, clock=time.clock, sleep=time.sleep)
    with pytest.raises(Unreachable, match="Connection refused"):
        away.ask("GET", "/")
    waited = len(time.slept)
    assert waited > 3
    for _ in range(10):
        with pytest.raises(Unreachable, match="1 try"):
            away.ask("GET", "/")
    assert len(time.slept) == waited


def test_a_relay_that_hangs_takes_little_of_the_time_after_the_first_failure():
    with Scripted(*[hang] * 10, reply(200, b"back")) as server:
        exchange = relay(server, timeout=0.1, patience=0.1)
        started, failures = time.monotonic(), 0
        while time.monotonic() < started + 1:
            with pytest.raises(Unreachable):
                exchange.collect(WANTS)
            failures += 1
            time.sleep(0.01)  # stands for training
        assert failures > 20
        assert len(server.asked) <= 2
        server.answers.clear()
        server.answers.append(reply(200, b"back"))
        time.sleep(1.5)
        assert exchange.collect(WANTS) == b"back"


@pytest.mark.parametrize(
    ("status", "error"), [(400, Malformed), (401, Refused), (403, Refused), (404, Refused), (409, Outdated),
                          (413, Refused), (422, Refused), (418, Refused)],
)  # fmt: skip
def test_what_the_relay_will_not_do_is_told_once_in_its_own_words(status, error):
    with Scripted(problem(status, "because of\nthis \x1b[31m")) as server:
        with pytest.raises(error, match=r"because of this  \[31m") as caught:
            relay(server).publish(b"x")
        assert type(caught.value) is error
        assert len(server.asked) == 1


def test_the_page_of_a_proxy_is_not_taken_for_a_teacher():
    page = reply(200, b"<html>please log in</html>", "text/html; charset=utf-8")
    with Scripted(page, page) as server:
        with pytest.raises(Malformed, match="text/html, not application/octet-stream: is this a relay's address"):
            relay(server).collect(WANTS)
        with pytest.raises(Malformed, match="text/html, not application/json"):
            relay(server).wait(0, 0)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"version": true}', b'{"version": "1"}', b"[" * 100_000])
def test_json_that_is_not_an_answer_is_malformed(body):
    with Scripted(reply(200, body, "application/json")) as server, pytest.raises(Malformed):
        relay(server).wait(0, 0)


def test_a_redirect_is_never_followed():
    with Scripted() as elsewhere, Scripted(reply(307, Location=f"{elsewhere.url}/v1")) as server:
        with pytest.raises(Refused, match=f"not here but at {elsewhere.url}"):
            relay(server).publish(b"x")
        assert elsewhere.asked == []


def flood_with(status, kind, first=b"", again=b"1,"):
    """Something of this kind that never ends."""

    def flood(peer):
        peer.sendall(f"HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\n\r\n".encode() + first)
        while True:
            peer.sendall(again * 30_000)

    return flood


def test_an_endless_reply_is_cut_off_where_no_teacher_of_the_task_is_longer():
    task = {"classes": 10, "dimension": 84, "task": "digits", "client": "alice", "role": "client"}
    with Scripted(reply(200, json.dumps(task).encode(), "application/json"), flood) as server:
        exchange = relay(server)
        exchange.describe()
        with pytest.raises(Malformed, match="longer than 16960 bytes"):  # a header, and 20 rows of 84 numbers
            exchange.collect(WANTS)


def test_endless_json_is_cut_off_before_it_takes_much_memory():
    """The attack as it was: 133 MB of JSON about who one is took 3.4 GB."""
    endless = flood_with(200, "application/json", b'{"task": [')
    with Scripted(endless, endless) as server:
        for ask in (lambda: relay(server).describe(), lambda: relay(server).wait(0, 0)):
            with pytest.raises(Malformed, match="longer than 1048576 bytes"):
                ask()


def test_of_an_endless_error_only_the_beginning_is_read():
    refused, away = (flood_with(status, "application/problem+json", b'{"detail": "') for status in (403, 503))
    with Scripted(refused, *[away] * 20) as server:
        with pytest.raises(Refused, match="403 Forbidden"):
            relay(server).publish(b"x")
        with pytest.raises(Unreachable, match="503"):
            relay(server, patience=0.01).publish(b"x")


def test_a_reply_that_trickles_in_is_given_up():
    with Scripted(drip) as server, pytest.raises(Unreachable, match="takes too long"):
        relay(server, patience=0.5).collect(WANTS)


@pytest.mark.parametrize("secure", [False, True])
def test_a_header_that_trickles_in_is_given_up(secure, tmp_path, monkeypatch):
    monkeypatch.setattr(http, "SPARING", 0)
    ours = trustme.CA()
    ours.cert_pem.write_to_path(tmp_path / "ca.pem")
    tls = None
    if secure:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ours.issue_cert("127.0.0.1").configure_cert(tls)

    def drip_header(peer):
        peer.sendall(b"HTTP/1.1 200 x\r\nX-Slow: ")
        for _ in range(100):
            peer.sendall(b"x")
            time.sleep(0.05)

    with Scripted(drip_header, reply(200, b"back"), tls=tls) as server:
        exchange = relay(server, patience=0.5, ca=tmp_path / "ca.pem")
        started = time.monotonic()
        with pytest.raises(Unreachable, match="takes too long"):
            exchange.collect(WANTS)
        assert time.monotonic() - started < 3
        assert exchange.collect(WANTS) == b"back"


def test_a_relay_that_says_in_a_week_is_asked_in_an_hour():
    with Scripted(problem(429, "too fast", Retry_After=604_800), reply(200)) as server:
        connected, time = timed(server)
        with pytest.raises(Unreachable, match="too fast"):
            connected.ask("GET", "/")
        time.now = 3601
        assert connected.ask("GET", "/").status == 200


def test_a_compressed_reply_is_refused():
    with Scripted(reply(200, b"x", Content_Encoding="gzip")) as server, pytest.raises(Malformed, match="compressed"):
        relay(server).collect(WANTS)


def test_all_that_is_wanted_is_asked_for():
    with Scripted(reply(200)) as server:
        relay(server).collect(Wants(3, 5, precision="fp16"))
        with pytest.raises(ConfigError, match="hands out nothing by name"):
            relay(server).collect(Wants(3, 5, peers=("bob",)))
        (line,) = [request.split(b" ")[1] for request in server.asked]
    assert line.startswith(b"/v1/tasks/digits/teacher?observations=3&seed=5&precision=fp16")


def test_a_token_says_who_one_is_and_where():
    me = {"role": "client", "client": "alice", "task": "my digits", "classes": 10, "dimension": 84}
    with Scripted(
        reply(200, json.dumps(me).encode(), "application/json"), reply(200, b"{}", "application/json")
    ) as server:
        exchange = RelayExchange(server.url, token=TOKEN)
        exchange.publish(b"x")
        assert server.asked[0].startswith(b"GET /v1/me ")
        assert server.asked[1].startswith(b"PUT /v1/tasks/my%20digits/clients/alice/release ")
        assert all(f"authorization: bearer {TOKEN}".encode() in request.lower() for request in server.asked)


def test_a_relay_says_what_its_task_has_agreed_on_as_far_as_its_version_does():
    me = {"role": "client", "client": "alice", "task": "digits", "classes": 10, "dimension": 84}
    told = {"minimum_count": 5, "norm_bound": 20, "weighted": False, "aggregation": "mean", "max_age": None}

    def describe(said):
        with Scripted(reply(200, json.dumps(said).encode(), "application/json")) as server:
            return relay(server).describe()

    assert describe(me | told) == Membership("digits", "alice", Task(10, 84, 20.0, 5, weighted=False))
    assert describe(me) == Membership("digits", "alice", Task(10, 84))
    for name, wrong in (("weighted", 1), ("norm_bound", "20"), ("norm_bound", 10**400), ("minimum_count", True)):
        with pytest.raises(Malformed, match=name):
            describe(me | {name: wrong})


@pytest.mark.parametrize(
    ("me", "said"),
    [({"role": "viewer", "client": None, "task": None}, "names no task.*'viewer'"),
     ({"role": "client", "client": "bob", "task": "digits"}, "for the client 'bob', not for 'alice'")],
)  # fmt: skip
def test_a_token_of_somebody_else_is_noticed(me, said):
    with (
        Scripted(reply(200, json.dumps(me).encode(), "application/json")) as server,
        pytest.raises(ConfigError, match=said),
    ):
        relay(server).describe()


def test_a_token_never_crosses_plain_http_to_another_machine():
    with pytest.raises(ConfigError, match=r"relay\.example\.org over plain http.*--plain-http"):
        RelayExchange("http://relay.example.org", token=TOKEN)
    for url in ("https://relay.example.org", "http://localhost:1", "http://127.0.0.2:1", "http://[::1]:1"):
        RelayExchange(url, token=TOKEN).close()
    RelayExchange("http://relay.example.org", token=TOKEN, plain_http=True).close()
    RelayExchange("http://relay.example.org", "t", client="a").close()  # no token, nothing to lose


def test_no_proxy_of_the_environment_sees_a_token_in_the_clear(monkeypatch):
    with Scripted(reply(200)) as proxy, Scripted(reply(200, b"direct")) as server:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        assert relay(server).collect(WANTS) == b"direct"
        assert proxy.asked == []


def test_a_proxy_on_the_way_is_named_without_its_password(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(Unreachable, match=r"example\.org, by the proxy 127\.0\.0\.1:9 of HTTPS_PROXY: ") as caught:
        RelayExchange("https://relay.example.org", token=TOKEN, patience=0.1).collect(WANTS)
    assert "secret" not in str(caught.value)


def test_the_token_is_in_no_repr_no_message_and_no_log(caplog):
    caplog.set_level(logging.DEBUG)
    with Scripted(problem(422, f"your token {TOKEN} " + "x" * 300), reply(500), problem(401, TOKEN)) as server:
        exchange = relay(server, patience=0.01)
        said = [repr(exchange), repr(exchange.connection)]
        for _ in range(3):
            with pytest.raises((Refused, Unreachable)) as caught:
                exchange.publish(b"x")
            said.append(str(caught.value))
    assert TOKEN not in " ".join(said)
    assert TOKEN not in caplog.text
    assert "HTTP Request" in caplog.text


@pytest.mark.parametrize(
    "url", ["relay.example.org", "ftp://x", "https://", "https://x?y", "https://x:y", "https://u:p@x"]
)
def test_an_address_that_is_no_relays_is_refused(url):
    with pytest.raises(ConfigError) as caught:
        RelayExchange(url, token=TOKEN)
    assert "u:p" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "naïve"])
def test_a_token_that_is_none_is_refused_without_being_shown(token):
    with pytest.raises(ConfigError, match="the token is not valid") as caught:
        RelayExchange("https://relay.example.org", token=token)
    assert not token or token not in str(caught.value)


def test_names_are_needed_where_there_is_no_token():
    with pytest.raises(ConfigError, match="without a token, say which client"):
        RelayExchange("http://127.0.0.1:1", "digits")


@pytest.fixture
def authority(tmp_path):
    made = trustme.CA()
    made.cert_pem.write_to_path(tmp_path / "ca.pem")
    return made, tmp_path


def tls(authority, *, ask=False):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if ask:
        context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(context)
    return context


def test_a_relay_with_a_certificate_of_ones_own_authority_is_trusted(authority):
    made, folder = authority
    with Scripted(reply(200, b"safe"), tls=tls(made)) as server:
        assert relay(server, ca=folder / "ca.pem", timeout=5).collect(WANTS) == b"safe"


def test_a_certificate_nobody_vouches_for_is_refused_at_once(authority):
    with Scripted(reply(200), tls=tls(authority[0])) as server:
        with pytest.raises(Unreachable, match=r"certificate verify failed.*\(1 try"):
            relay(server, timeout=5).collect(WANTS)
        assert server.asked == []


def test_a_client_shows_its_certificate(authority):
    made, folder = authority
    issued = made.issue_cert("alice@example.org")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    with Scripted(reply(200, b"hello alice"), tls=tls(made, ask=True)) as server:
        exchange = relay(server, ca=folder / "ca.pem", cert=(folder / "cert.pem", folder / "key.pem"), timeout=5)
        assert exchange.collect(WANTS) == b"hello alice"


def test_certificates_that_are_not_there_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.pem cannot be used: No such file"):
        RelayExchange("https://relay.example.org", token=TOKEN, ca=tmp_path / "none.pem")
