"""One contract for every store. A new one is finished when it is in the list."""

import os
import sqlite3
import threading
import traceback

import pytest

from repshare.errors import ConfigError, StoreError
from repshare.stores import MemoryDatabase, SqliteDatabase, open_database
from repshare.stores.redis import RedisDatabase
from repshare.stores.sqlite import SqliteStore
from repshare.testing import StoreContract, get, put

DATABASES = ["memory", "sqlite", "redis"]


@pytest.fixture(params=DATABASES)
def database(request, tmp_path):
    if request.param == "redis":
        place = request.getfixturevalue("redis_url")
    else:
        place = "memory" if request.param == "memory" else str(tmp_path / "relay.db")
    opened = open_database(place)
    yield opened
    opened.close()


@pytest.fixture
def store(database):
    return database.store("task:mnist")


class TestStores(StoreContract):
    """Every store fulfils the contract."""


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_two_that_have_the_same_place_open_lose_no_update_and_read_no_half_done_work(kind, tmp_path, request):
    place = str(tmp_path / "relay.db") if kind == "sqlite" else request.getfixturevalue(f"{kind}_url")
    databases = [open_database(place) for _ in range(2)]
    stores = [database.store("t") for database in databases]
    put(stores[0], a="0", b="0")
    torn = []

    def move(state):
        (a,) = state.get(["a"])
        (b,) = state.get(["b"])
        torn.extend([(a, b)] if a != b else [])
        following = str(int(a) + 1).encode()
        state.set({"a": following})
        state.set({"b": following})

    def look(state):
        (a,) = state.get(["a"])
        (b,) = state.get(["b"])
        return a, b

    def work(store):
        for _ in range(100):
            store.transact(move)
            a, b = store.transact(look)
            torn.extend([(a, b)] if a != b else [])

    threads = [threading.Thread(target=work, args=[store]) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert get(stores[0], "a", "b") == [b"200", b"200"]
    assert torn == []
    for database in databases:
        database.close()


def test_another_process_may_read_and_write_the_same_file(tmp_path):
    store = SqliteDatabase(tmp_path / "relay.db").store("t")
    put(store, a="1")
    other = sqlite3.connect(tmp_path / "relay.db")
    assert other.execute("SELECT key, value FROM kept").fetchall() == [("t/a", b"1")]


@pytest.mark.parametrize("place", ["no/such/folder/relay.db", "."])
def test_a_place_that_cannot_be_opened_is_named(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match="unable to open"):
        open_database(place)


def test_a_file_that_is_no_database_is_named(tmp_path):
    (tmp_path / "notes.txt").write_text("not a database " * 100)
    with pytest.raises(StoreError, match=r"notes\.txt: file is not a database"):
        open_database(str(tmp_path / "notes.txt"))


def test_a_redis_that_is_not_there_is_an_error_of_ours(free_port):
    with pytest.raises(StoreError, match="Redis"):
        RedisDatabase(f"redis://127.0.0.1:{free_port}").check()


def test_a_redis_address_that_makes_no_sense_is_an_error_of_ours():
    with pytest.raises((StoreError, ConfigError)):
        open_database("redis://127.0.0.1:notaport").check()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://:s3cret@host:port/0", "redis://host:port cannot"),
        ("rediss://me:s3/cret@host:6379/0", "rediss://host:6379 cannot"),
        ("redis://:s3#cret@host:6379", "redis://host:6379 cannot"),
        ("redis://me:s3?cret@host:6379", "redis://host:6379 cannot"),
        ("redis://host?password=s3cret&timeout=x", "redis://host cannot"),
        ("redis://:s3cret", "redis://… cannot"),
        ("redis://:s3cret@host:6379/0?replicas=some", "redis://host:6379 cannot"),
        ("redis://:s3cret@host:6379/0?replicas=1&replicas=2", "redis://host:6379 cannot"),
    ],
)
def test_a_password_is_not_told_to_anyone(url, told):
    with pytest.raises(StoreError) as refused:
        open_database(url)
    assert told in str(refused.value)
    assert "cret" not in "".join(traceback.format_exception(refused.value))


def test_a_closed_database_is_an_error_of_ours(tmp_path):
    database = SqliteDatabase(tmp_path / "relay.db")
    store = database.store("t")
    database.close()
    with pytest.raises(StoreError, match="closed"):
        put(store, a="1")


def test_a_full_disk_is_told_and_what_was_kept_is_kept(tmp_path):
    database = SqliteDatabase(tmp_path / "relay.db")
    store = database.store("t")
    put(store, a="1")
    with database.begin() as connection:
        connection.execute("PRAGMA max_page_count = 20")
    with pytest.raises(StoreError, match="full"):
        store.transact(lambda state: state.set({"big": os.urandom(1_000_000)}))
    assert store.items() == {"a": b"1"}
    put(store, a="2")
    assert store.items() == {"a": b"2"}


def test_memory_is_private_to_its_database():
    one, two = MemoryDatabase().store("t"), MemoryDatabase().store("t")
    put(one, a="1")
    assert two.items() == {}


def test_reading_sees_what_was_written_and_not_what_is_under_way(store):
    put(store, a="old")

    def work(state):
        state.set({"a": b"new"})
        if isinstance(store, SqliteStore):  # beside the writer; elsewhere a reader waits, or sees the state before
            assert store.read(lambda inside: inside.get(["a"])) == [b"old"]

    store.transact(work)
    assert store.read(lambda state: state.get(["a"])) == [b"new"]
