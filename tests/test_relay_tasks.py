"""Tasks of a relay: created once, seen by every process on the same database, moved whole."""

import pytest

from relays import release
from repshare.board import Wants
from repshare.errors import ConfigError, Malformed, Refused, StoreError
from repshare.relay import reports
from repshare.relay.access import Access, Grant
from repshare.relay.tasks import REMEMBERED_SECONDS, Tasks
from repshare.stores import open_database
from repshare.task import Task

TASK = Task(10, 8)
WANTS = Wants(1, 0)


@pytest.fixture(params=["memory", "file"])
def database(request, tmp_path):
    database = open_database("memory" if request.param == "memory" else str(tmp_path / "relay.db"))
    yield database
    database.close()


def test_a_task_is_created_once(database):
    tasks = Tasks(database)
    assert tasks.create("digits", TASK)
    assert not Tasks(database).create("digits", Task(10, 8))
    with pytest.raises(Refused, match="task digits exists with other values: dimension 8 there, 9 wanted"):
        tasks.create("digits", Task(10, 9))
    assert [(entry.name, entry.task) for entry in tasks.entries()] == [("digits", TASK)]
    assert tasks.get("digits").entry.task == TASK
    assert tasks.find("other") is None
    with pytest.raises(ConfigError, match="there is no task 'other'"):
        tasks.get("other")


def test_a_task_too_large_for_a_relay_is_refused(database):
    for classes, dimension in ((10_001, 1), (100, 1_000_000)):
        with pytest.raises(ConfigError, match=f"{classes} classes of {dimension} numbers are too much"):
            Tasks(database).create("huge", Task(classes, dimension))
    with pytest.raises(ConfigError, match="max_age must be at most"):
        Tasks(database).create("eternal", Task(10, 8, max_age=1e17))


def test_a_task_created_again_elsewhere_is_another_one(database):
    now = 0.0
    here, elsewhere = Tasks(database), Tasks(database, lambda: now)
    here.create("digits", TASK)
    old = elsewhere.find("digits")
    old.board.accept("alice", release())
    here.delete("digits")
    here.create("digits", TASK)
    assert elsewhere.recall("digits") is old  # for a moment; and what it does then does not reach the new one
    old.board.accept("bob", release())
    now += REMEMBERED_SECONDS + 0.01
    assert elsewhere.recall("digits") is None
    new = elsewhere.find("digits")
    assert new.entry.identity != old.entry.identity
    assert new.board.status().clients == 0
    assert old.board.store.items() == {}, "nobody could ever reach it again"


def test_deleting_a_task_ends_its_tokens(database):
    Tasks(database).create("digits", TASK)
    access = Access(database)
    token = access.invite(Grant("client", "alice", "digits"))
    Tasks(database).delete("digits")
    assert access.find(token) is None
    assert Tasks(database).entries() == []
    with pytest.raises(ConfigError, match="there is no task"):
        Tasks(database).delete("digits")


class Failing:
    """A database whose stores change something only so many times more, and then are away."""

    def __init__(self, database, changes):
        self.database, self.changes, self.names = database, changes, []

    def store(self, name):
        self.names.append(name)
        return FailingStore(self, self.database.store(name))


class FailingStore:
    def __init__(self, database, store):
        self.database, self.read, self.items = database, store.read, store.items
        self.transact, self.clear = (self.counted(change) for change in (store.transact, store.clear))

    def counted(self, change):
        def attempt(*work):
            self.database.changes -= 1
            if self.database.changes < 0:
                raise StoreError("away")
            return change(*work)

        return attempt


@pytest.mark.parametrize("changes", range(8))
def test_a_delete_that_was_cut_off_can_be_done_again(database, changes):
    Tasks(database).create("digits", TASK)
    token = Access(database).invite(Grant("client", "alice", "digits"))
    there = Tasks(database).get("digits")
    there.board.accept("alice", release())
    there.meetings.put(("alice", "bob"), 1, 0, "alice", b"hello", 10.0)
    reports.record(there.notes, "alice", {"round": 1})
    failing = Failing(database, changes)
    with pytest.raises(StoreError, match="away"):
        Tasks(failing).delete("digits")
    if Tasks(database).find("digits") is not None:
        Tasks(database).delete("digits")
    assert Access(database).find(token) is None
    assert [name for name in failing.names if database.store(name).items()] == []
    Tasks(database).create("digits", TASK)
    assert Access(database).entries() == []


def test_an_exported_task_is_the_same_where_it_is_imported(database):
    here, there = Tasks(database), Tasks(open_database("memory"))
    task = Task(10, 8, norm_bound=5.0, aggregation="median", max_age=1e6)
    here.create("digits", task)
    board = here.get("digits").board
    board.accept("alice", release(round=3))
    board.accept("bob", release(round=5, value=0.25))
    assert there.import_task(here.export("digits")) == "digits"
    assert there.import_task(here.export("digits"), "copy") == "copy"
    for name in ("digits", "copy"):
        moved = there.get(name)
        assert moved.entry.task == task
        assert moved.board.teach("alice", WANTS) == board.teach("alice", WANTS)
        assert moved.board.status() == board.status()
    with pytest.raises(Refused, match="exists: delete it first, or import under another --name"):
        there.import_task(here.export("digits"))


@pytest.mark.parametrize("exported", [b"", b"x" * 100])
def test_what_was_not_exported_is_not_imported(database, exported):
    with pytest.raises(Malformed):
        Tasks(database).import_task(exported)
    assert Tasks(database).entries() == []
