"""One contract for every exchange. A new one is finished when it is in the list."""

import uuid

import pytest

from repshare.board import Board
from repshare.exchange import LocalExchange
from repshare.exchange.keys import Key, Trust
from repshare.exchange.peer import PeerExchange
from repshare.exchange.relay import RelayExchange
from repshare.relay.auth import Access, Grant
from repshare.relay.tasks import Tasks
from repshare.stores import MemoryStore, open_database
from repshare.testing import TASK, ExchangeContract
from support.processes import RelayProcess, eventually


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


class TestExchanges(ExchangeContract):
    """Every exchange fulfils the contract."""
