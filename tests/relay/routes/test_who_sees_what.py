"""The table "Who sees what" of docs/relay.md, line by line, on a real relay over HTTP."""

import json
import random
import socket
import ssl
import threading
from contextlib import suppress
from types import SimpleNamespace

import httpx2
import numpy as np
import pytest
import torch
import trustme

from repshare import Client, LeNet5
from repshare.board import Wants
from repshare.board.state import read_releases
from repshare.errors import ConfigError
from repshare.exchange.relay import Membership, RelayExchange
from repshare.party.rounds import take_part
from repshare.party.state import State
from repshare.relay.app import ROUTES
from repshare.relay.page.activity import read_reports
from repshare.relay.tasks import Tasks
from repshare.sharing.representations import Release, Representations
from repshare.sharing.task import Task
from repshare.sharing.wire import decode_teacher, encode_release
from repshare.stores import open_database
from support.relays import DIGITS, create_task, invite, start_relay

NAMES = ("north-hospital", "south-hospital", "west-hospital", "east-hospital")
NORTH, SOUTH, WEST, EAST = NAMES
EVE = "eve"  # a client that has published nothing
SAMPLES = {NORTH: 123_457, SOUTH: 234_571, WEST: 345_713, EAST: 457_133}  # numbers that are nowhere else
CLASSES, DIMENSION, OBSERVATIONS = 3, 8, 4  # of a release, below
ROUND = 7_654_321


def share(name, round=ROUND, seed=0, classes=CLASSES):
    """A release of this client's own: no two numbers of two clients are alike."""
    rng, labels = np.random.default_rng([NAMES.index(name), seed]), np.arange(classes)
    means = Representations(rows(rng, classes), labels, np.full(classes, SAMPLES[name]))
    every = np.repeat(labels, OBSERVATIONS)
    return Release(round, means, Representations(rows(rng, len(every)), every, np.full(len(every), 5)))


def rows(rng, count):
    return rng.uniform(-1, 1, (count, DIMENSION)).astype(np.float32)


def start(folder, *options, task=DIGITS, clients=NAMES):
    """A relay at which these clients have published and told of it."""
    create_task(folder, "digits", *task)
    tokens = {name: invite(folder, name, "--task", "digits") for name in (*NAMES, EVE)}
    tokens["viewer"] = invite(folder, "the-viewer", "--role", "viewer")
    relay = start_relay(folder, "--rate", 0, *options)
    return relay, tokens, clients


@pytest.fixture(scope="module")
def relay(tmp_path_factory):
    folder = tmp_path_factory.mktemp("relay")
    made, tokens, clients = start(folder)
    with made as relay:
        relay.tokens = tokens
        for name in clients:
            publish(relay, share(name))
            told = {"round": ROUND, "test_accuracy": 0.8765, "model": f"network of {name}"}
            assert relay.ask("PUT", f"{path(name)}/report", tokens[name], json=told).status_code == 200
        relay.publish(NORTH, b"nonsense", tokens[NORTH])  # a refusal
        yield relay


def path(name):
    return f"/v1/tasks/digits/clients/{name}"


def publish(relay, release):
    name = next(name for name, samples in SAMPLES.items() if samples == release.means.counts[0])
    assert relay.publish(name, encode_release(release), relay.tokens[name]).status_code == 200


def teach(relay, who=EVE, **query):
    answer = relay.teacher(relay.tokens[who], **query)
    assert answer.status_code == 200, answer.text
    return decode_teacher(answer.content)


def crawl(relay, token=None):
    """Everything that can be fetched with this token, by its path."""
    given = {"task": "digits", "client": EVE, "number": 0, "step": 0, "name": "page.js"}
    query = {"wait": 0, "observations": 1000, "members": [EVE, "nobody"]}
    seen = {}
    for each in ROUTES:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = relay.http.get(each.format(**given), params=query, headers=headers)
        seen[each] = SimpleNamespace(status=answer.status_code, said=repr(answer.headers).encode() + answer.content)
    return seen


def telling(seen, *words):
    """Where any of these words is said."""
    return {where for where, answer in seen.items() if any(str(word).encode() in answer.said for word in words)}


# The relay, its operator, and whoever takes its database


def test_who_has_the_database_has_all_releases_and_reports_by_name(relay):
    database = open_database(str(relay.folder / "relay.db"))
    there = Tasks(database).get("digits")
    releases = there.board.store.read(lambda state: read_releases(state, NAMES))
    assert [encode_release(each) for each in releases] == [encode_release(share(name)) for name in NAMES]
    assert read_reports(there.activity, [SOUTH])[SOUTH]["model"] == f"network of {SOUTH}"
    database.close()


# The other clients, and whoever has a client's token


def test_a_client_is_nowhere_told_another_clients_name_round_or_samples(relay):
    seen = crawl(relay, relay.tokens[EVE])
    assert {answer.status for answer in seen.values()} <= {200, 204, 403, 405, 422}
    assert seen["/v1/tasks/{task}/teacher"].status == seen["/v1/tasks/{task}/status"].status == 200
    assert telling(seen, *NAMES) == set()
    told = {where: answer for where, answer in seen.items() if where.startswith("/v1")}  # metrics have any digits
    assert telling(told, *SAMPLES.values(), ROUND, 0.8765) == set()


def test_the_page_shows_a_client_its_own_row_and_how_many_there_are(relay):
    none, own = (relay.ask("GET", "/v1/tasks/digits/status", relay.tokens[who]).json() for who in (EVE, SOUTH))
    assert (none["shown"], none["clients"]) == ([], len(NAMES))
    assert {each["client"] for each in none["refusals"]} <= {EVE}, "its own, of other tests too"
    assert [(row["name"], row["samples"][0]) for row in own["shown"]] == [(SOUTH, SAMPLES[SOUTH])]
    assert own["traffic"]["up"] == own["shown"][0]["bytes_up"], "its own, not all clients'"
    assert not [name for name in NAMES if name != SOUTH and name in json.dumps(own)]


@pytest.mark.parametrize("peers", [[SOUTH], [SOUTH, "nobody"], list(NAMES)])
def test_a_client_cannot_ask_for_what_another_shared_by_its_name(relay, peers):
    named, whole = (teach(relay, observations=0, **more).means for more in ({"peers": peers}, {}))
    assert all(map(np.array_equal, named, whole)), "a name changes nothing"
    with RelayExchange(relay.url, token=relay.tokens[EVE]) as exchange, pytest.raises(ConfigError, match="by name"):
        exchange.collect(Wants(0, 0, peers=tuple(peers)))


def test_a_client_cannot_ask_as_another_nor_read_its_release(relay):
    assert relay.teacher(relay.tokens[EVE], client=SOUTH).status_code == 403
    for method in ("GET", "HEAD", "POST"):
        assert relay.ask(method, f"{path(SOUTH)}/release", relay.tokens[EVE]).status_code == 405


def test_a_client_that_is_not_among_the_first_hundred_sees_its_own_row(tmp_path):
    create_task(tmp_path)
    tasks = Tasks(database := open_database(str(tmp_path / "relay.db")))
    board = tasks.get("digits").board
    for number in range(120):
        board.accept(f"client {number}", encode_release(share(SOUTH)))
    database.close()
    token = invite(tmp_path, "client 110", "--task", "digits")
    with start_relay(tmp_path) as relay:
        status = relay.ask("GET", "/v1/tasks/digits/status", token).json()
    assert ([row["name"] for row in status["shown"]], status["clients"]) == (["client 110"], 120)


def test_a_teacher_is_the_mean_over_all_and_single_observations_without_names(relay):
    taught = teach(relay, observations=1000)
    releases = [share(name) for name in NAMES]
    weights = np.array(list(SAMPLES.values()), float)
    mean = np.einsum("c,cld->ld", weights / weights.sum(), np.stack([each.means.vectors for each in releases]))
    assert np.allclose(taught.means.vectors, mean, atol=1e-6)
    assert taught.means.counts.tolist() == [sum(SAMPLES.values())] * CLASSES
    shared = np.concatenate([each.observations.vectors for each in releases])
    assert sorted(map(tuple, taught.observations.vectors)) == sorted(map(tuple, shared))


def test_the_order_of_observations_does_not_tell_whose_they_are(relay):
    """Who knows how rows are kept and drawn, and chooses the seed, could otherwise put a client's rows together."""
    size, hits = len(NAMES) * OBSERVATIONS, 0
    kept = [np.concatenate([share(n).observations.of(label).vectors for n in NAMES]) for label in range(CLASSES)]
    for seed in range(20):
        rng, taught = random.Random(seed), teach(relay, observations=1000, seed=seed).observations
        for label in range(CLASSES):
            guessed = kept[label][rng.sample(range(size), size)]
            hits += int((guessed == taught.of(label).vectors).all(axis=1).sum())
    assert hits < 0.25 * 20 * CLASSES * size, "by chance a sixteenth"


def test_news_tell_that_something_changed_and_no_more(relay):
    assert set(relay.ask("GET", "/v1/tasks/digits/news", relay.tokens[EVE], params={"wait": 0}).json()) == {"version"}


# What follows all the same: said in the document, so that nobody relies on the contrary


def test_of_two_clients_each_reads_the_other_by_subtraction(tmp_path):
    made, tokens, _ = start(tmp_path)
    with made as relay:
        relay.tokens = tokens
        mine, theirs = share(NORTH), share(SOUTH)
        publish(relay, mine)
        publish(relay, theirs)
        taught = teach(relay, NORTH).means
    own, others = SAMPLES[NORTH], SAMPLES[SOUTH]
    found = ((own + others) * taught.vectors - own * mine.means.vectors) / others
    assert np.abs(found - theirs.means.vectors).max() < 1e-5


def test_who_looks_before_and_after_a_change_learns_what_changed_but_not_whose_it_is(tmp_path):
    made, tokens, _ = start(tmp_path)
    with made as relay:
        relay.tokens = tokens
        for name in (NORTH, SOUTH, WEST):
            publish(relay, share(name))
        before = teach(relay, observations=1000)
        publish(relay, share(EAST))
        after = teach(relay, observations=1000)
    counts = after.means.counts - before.means.counts
    new = after.means.vectors * after.means.counts[:, None] - before.means.vectors * before.means.counts[:, None]
    assert counts.tolist() == [SAMPLES[EAST]] * CLASSES
    assert np.abs(new / counts[:, None] - share(EAST).means.vectors).max() < 1e-4
    observed = set(map(tuple, after.observations.vectors)) - set(map(tuple, before.observations.vectors))
    assert observed == set(map(tuple, share(EAST).observations.vectors))


def test_the_mean_of_a_class_that_one_client_alone_shares_is_that_clients(tmp_path):
    made, tokens, _ = start(tmp_path)
    with made as relay:
        relay.tokens = tokens
        publish(relay, share(NORTH, classes=2))
        publish(relay, share(SOUTH))
        taught = teach(relay).means.of(2)
    assert np.allclose(taught.vectors, share(SOUTH).means.of(2).vectors, atol=1e-6)


# Viewers, and with --public-page everyone


def test_who_looks_sees_names_rounds_counts_reports_and_refusals_but_no_release(relay):
    seen = crawl(relay, relay.tokens["viewer"])
    assert seen["/v1/tasks/{task}/teacher"].status == 403
    assert {"/v1/tasks/{task}/status"} <= telling(seen, SOUTH)
    page = relay.ask("GET", "/v1/tasks/digits/status", relay.tokens["viewer"]).json()
    row = next(each for each in page["shown"] if each["name"] == SOUTH)
    assert (row["round"], row["samples"][0], row["test_accuracy"]) == (ROUND, SAMPLES[SOUTH], 0.8765)
    assert row["model"] == f"network of {SOUTH}"
    assert NORTH in {refusal["client"] for refusal in page["refusals"]}
    numbers = {f"{value:.6g}" for name in NAMES for value in share(name).means.vectors.ravel()}
    assert telling({where: answer for where, answer in seen.items() if where.startswith("/v1")}, *numbers) == set()


def test_with_a_public_page_everyone_sees_what_a_viewer_sees_but_no_teacher(tmp_path):
    made, tokens, _ = start(tmp_path, "--public-page")
    with made as relay:
        relay.tokens = tokens
        publish(relay, share(SOUTH))
        seen = crawl(relay)
    assert telling(seen, SOUTH) == {"/v1/tasks/{task}/status"}


# Outsiders


def test_without_a_token_nobody_learns_a_task_or_a_name(relay):
    seen = crawl(relay)
    open_to_all = {where for where, answer in seen.items() if answer.status == 200}
    assert {"/", "/healthz"} <= open_to_all
    assert seen["/metrics"].status == 401
    assert not [where for where in open_to_all if where.startswith("/v1")]
    assert telling(seen, *NAMES, *relay.tokens.values()) == set()


def test_with_tls_who_sits_in_between_sees_neither_token_nor_name_nor_numbers(tmp_path):
    authority = trustme.CA()
    files = {name: str(tmp_path / f"{name}.pem") for name in ("authority", "certificate", "key")}
    authority.cert_pem.write_to_path(files["authority"])
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(files["key"])
    issued.cert_chain_pems[0].write_to_path(files["certificate"])
    made, tokens, _ = start(tmp_path, "--certificate", files["certificate"], "--key", files["key"])
    body = encode_release(share(SOUTH))
    with made as relay, Tap(relay.port) as tap:
        url = f"https://127.0.0.1:{tap.port}"
        headers = {"Authorization": f"Bearer {tokens[SOUTH]}"}
        with httpx2.Client(base_url=url, verify=ssl.create_default_context(cafile=files["authority"])) as http:
            assert http.put(f"{path(SOUTH)}/release", content=body, headers=headers).status_code == 200
    passed = bytes(tap.passed)
    assert len(passed) > len(body)
    for secret in (tokens[SOUTH].encode(), SOUTH.encode(), b"digits", share(SOUTH).means.vectors[0].tobytes()):
        assert secret not in passed


class Tap:
    """A way to a port of this machine that keeps what passes."""

    def __init__(self, port):
        self.target, self.passed = port, bytearray()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]

    def __enter__(self):
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.thread.join()
        self.server.close()

    def _serve(self):
        """One connection, to its end."""
        here, _ = self.server.accept()
        with here, socket.create_connection(("127.0.0.1", self.target)) as there:
            back = threading.Thread(target=self._pass_on, args=(there, here))
            back.start()
            self._pass_on(here, there)
            back.join()

    def _pass_on(self, one, other):
        with suppress(OSError):  # who is done first closes
            while data := one.recv(65536):
                self.passed.extend(data)
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)


# The client itself


def test_the_state_folder_has_the_weights_and_every_round(tmp_path):
    data = torch.rand(40, 1, 8, 8), torch.arange(40) % 10
    client = Client(LeNet5(), data, name=SOUTH)
    (record,) = take_part(State(tmp_path / "state", client, Membership("digits", SOUTH, Task(10, 84))), 1)
    assert json.loads((tmp_path / "state/records.jsonl").read_text())["round"] == record.round == 1
    weight = client.learner.network.model.state_dict()["head.weight"].numpy().tobytes()
    assert weight in (tmp_path / "state/client.state").read_bytes()
