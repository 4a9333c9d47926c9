"""One contract for every exchange. A new one is finished when it is in the list."""

import uuid

import numpy as np
import pytest

from repshare.board import Board, Wants
from repshare.errors import Malformed, Outdated, Refused
from repshare.exchange import LocalExchange
from repshare.exchange.keys import Key, Trust
from repshare.exchange.peer import PeerExchange
from repshare.exchange.relay import RelayExchange
from repshare.relay.auth import Access, Grant
from repshare.relay.tasks import Tasks
from repshare.sharing import wire
from repshare.sharing.representations import Release, stack
from repshare.sharing.task import Task
from repshare.stores import MemoryStore, open_database
from support.processes import RelayProcess, eventually

TASK = Task(classes=2, dimension=2, named_peers=3)


def local(_):
    """A board in this process."""
    board = Board(TASK, MemoryStore())
    return lambda client: LocalExchange(board, client)


def relay(request):
    """A real relay, on SQLite, whose clients have tokens."""
    url, database = request.getfixturevalue("served")
    task = f"task {uuid.uuid4()}"
    Tasks(database).create(task, TASK)
    exchanges = []

    def join(client):
        token = Access(database).invite(Grant("client", client, task), renew=True)
        exchanges.append(RelayExchange(url, token=token, patience=5))
        return exchanges[-1]

    request.addfinalizer(lambda: [exchange.close() for exchange in exchanges])
    return join


def peer(request):
    """Clients that know each other's keys, connected over loopback without a server."""
    exchanges, trust = [], Trust()

    def join(client):
        key = Key.new()
        trust.add(client, key.public)
        connect = [place for exchange in exchanges for place in exchange.listening]
        exchange = PeerExchange(
            TASK, client, "task", key=key, trust=trust, listen=["tcp/127.0.0.1:0"], connect=connect, timeout=20
        )
        exchanges.append(exchange)
        names = {exchange.name for exchange in exchanges}
        for each in exchanges:
            eventually(lambda each=each: {each.name, *each.live()} == names, "everyone is there for everyone")
        return exchange

    request.addfinalizer(lambda: [exchange.close() for exchange in exchanges])
    return join


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("relay")
    process = RelayProcess(folder, "--db", "relay.db")
    database = open_database(str(folder / "relay.db"))
    yield process.url, database
    database.close()
    process.stop()


@pytest.fixture(params=[local, relay, peer])
def join(request):
    """A function from a client's name to its exchange; all of one test's meet each other."""
    return request.param(request)


@pytest.fixture
def own_counts(join, request):
    """Whether global means are over everyone: peers average only what they download, which is the others'."""
    return request.node.callspec.params["join"] is not peer


def release(value, label=0, round=1):
    rows = stack([(np.full(2, value), label, 4)], 2)
    return wire.encode_release(Release(round, rows, rows))


# M↓. A board draws that many observations a class; peers ask that many of each other.
MANY = 8


def collect(exchange, observations=MANY):
    return wire.decode_teacher(exchange.collect(Wants(observations, seed=0)))


def test_a_client_alone_collects_a_teacher_without_rows(join):
    alone = join("a")
    alone.publish(release(1.0))
    assert len(collect(alone).means.labels) == 0


def test_two_clients_are_enough(join, own_counts):
    a, b = join("a"), join("b")
    a.publish(release(1.0))
    b.publish(release(3.0))
    for exchange, others in ((a, 3.0), (b, 1.0)):
        teacher = collect(exchange)
        mean = 2.0 if own_counts else others
        assert teacher.means.vectors.tolist() == [[mean, mean]]
        assert teacher.observations.vectors.tolist() == [[others, others]]


def test_a_client_learns_from_others_but_never_from_itself(join):
    a, b = join("a"), join("b")
    a.publish(release(1.0, label=0))
    b.publish(release(3.0, label=1))
    assert collect(a).means.labels.tolist() == [1]
    assert collect(b).observations.labels.tolist() == [0]


def test_a_client_may_collect_before_it_has_published(join):
    join("a").publish(release(1.0))
    assert collect(join("b")).means.vectors.tolist() == [[1.0, 1.0]]


def test_publishing_twice_changes_nothing(join, own_counts):
    a, b = join("a"), join("b")
    for _ in range(3):
        a.publish(release(1.0))
    b.publish(release(3.0))
    assert collect(b).means.counts.tolist() == [8 if own_counts else 4]


def test_a_newer_release_replaces_the_older_one(join):
    a, b = join("a"), join("b")
    a.publish(release(1.0))
    a.publish(release(5.0, label=1, round=2))
    assert collect(b).means.labels.tolist() == [1]


def test_what_is_refused_leaves_the_others_unharmed(join):
    a, b = join("a"), join("b")
    a.publish(release(1.0))
    with pytest.raises(Refused):
        b.publish(release(float("nan")))
    assert collect(b).means.vectors.tolist() == [[1.0, 1.0]]


def test_an_older_release_is_outdated_and_changes_nothing(join):
    a, b = join("a"), join("b")
    a.publish(release(5.0, round=2))
    with pytest.raises(Outdated):
        a.publish(release(1.0, round=1))
    assert collect(b).means.vectors.tolist() == [[5.0, 5.0]]


def test_bytes_that_are_no_release_are_malformed(join):
    with pytest.raises(Malformed):
        join("a").publish(b"not a release")


def test_a_client_is_taught_by_the_peers_and_classes_it_names(join):
    c, others = join("c"), ("b", "d", "e")
    join("a").publish(release(1.0, label=0))
    for name in others:
        join(name).publish(release(3.0, label=1))

    def taught(**wanted):
        return wire.decode_teacher(c.collect(Wants(MANY, 0, **wanted))).means.labels.tolist()

    assert taught() == [0, 1]
    assert taught(peers=(*others, "nobody")) == [1]
    assert taught(classes=(0,)) == [0]
    assert taught(peers=()) == []
    assert taught(classes=()) == []


def test_the_same_question_has_the_same_answer_until_something_changes(join):
    a, b, c = join("a"), join("b"), join("c")
    a.publish(release(1.0))
    first = c.collect(Wants(MANY, 0))
    assert c.collect(Wants(MANY, 0)) == first
    b.publish(release(3.0))
    assert c.collect(Wants(MANY, 0)) != first
