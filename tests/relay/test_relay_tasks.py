"""Tasks of a relay: created once, seen by every process on the same database."""

import pytest

from repshare.board import Wants
from repshare.cli.parsing import options_of
from repshare.cli.relay.tasks import TaskValues
from repshare.errors import ConfigError, Damaged, Refused, StoreError
from repshare.fields import field_helps
from repshare.relay.auth import Access, Grant
from repshare.relay.page import activity
from repshare.relay.tasks import Tasks
from repshare.sharing.task import Task
from repshare.stores import open_database
from support.damage import garble
from support.relays import release

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


def test_options_have_the_fields_of_a_task_with_their_descriptions():
    told, options = field_helps(Task), {option.name: option.help for option in options_of(TaskValues)}
    assert list(options) == [name for name in told if name not in ("space", "format", "description")]
    assert all(text.startswith(told[name]) for name, text in options.items())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"classes": 1}, "classes must be at least 2, not 1"),
        ({"dimension": 0}, "dimension must be at least 1, not 0"),
        ({"minimum_count": 0}, "minimum_count must be at least 1, not 0"),
        ({"norm_bound": float("nan")}, "norm_bound must be above 0 and finite, not nan"),
        ({"max_age": float("inf")}, "max_age must be above 0 and finite, not inf"),
    ],
)
def test_a_task_out_of_bounds_is_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        Task(**{"classes": 10, "dimension": 8} | values)


def test_a_task_too_large_for_a_relay_is_refused(database):
    for classes, dimension in ((10_001, 1), (100, 1_000_000)):
        with pytest.raises(ConfigError, match=f"{classes} classes of {dimension} numbers are too much"):
            Tasks(database).create("huge", Task(classes, dimension))
    with pytest.raises(ConfigError, match="max_age must be at most"):
        Tasks(database).create("eternal", Task(10, 8, max_age=1e17))


def test_a_task_created_again_elsewhere_is_another_one(database):
    here, elsewhere = Tasks(database), Tasks(database)
    here.create("digits", TASK)
    old = elsewhere.find("digits")
    old.board.accept("alice", release())
    assert elsewhere.find("digits") is old
    here.delete("digits")
    assert elsewhere.find("digits") is None
    assert old.board.store.items() == {}
    here.create("digits", TASK)
    old.board.accept("bob", release())  # what was on its way then does not reach the new one
    new = elsewhere.find("digits")
    assert new.entry.identity != old.entry.identity
    assert new.board.status().clients == 0


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
        self.database, self.name, self.read, self.items = database, store.name, store.read, store.items
        self.transact, self.clear = (self.counted(change) for change in (store.transact, store.clear))

    def counted(self, change):
        def attempt(*work):
            self.database.changes -= 1
            if self.database.changes < 0:
                raise StoreError("away")
            return change(*work)

        return attempt


@pytest.mark.parametrize("changes", range(6))
def test_a_delete_that_was_cut_off_can_be_done_again(database, changes):
    Tasks(database).create("digits", TASK)
    token = Access(database).invite(Grant("client", "alice", "digits"))
    there = Tasks(database).get("digits")
    there.board.accept("alice", release())
    there.meetings.call("alice", "00", "0", "", 1, invited=[], patience=10.0)
    activity.record(there.activity, "alice", {"round": 1})
    failing = Failing(database, changes)
    with pytest.raises(StoreError, match="away"):
        Tasks(failing).delete("digits")
    if Tasks(database).find("digits") is not None:
        Tasks(database).delete("digits")
    assert Access(database).find(token) is None
    assert [name for name in failing.names if database.store(name).items()] == []
    Tasks(database).create("digits", TASK)
    assert Access(database).entries() == []


def test_a_registry_that_lost_a_task_deletes_nothing(database):
    tasks = Tasks(database)
    tasks.create("digits", TASK)
    tasks.get("digits").board.accept("alice", release())
    kept = dict(database.store("tasks").items())
    database.store("tasks").clear()
    assert tasks.find("digits") is None
    tasks.create("digits", TASK)
    assert tasks.get("digits").board.status().clients == 0
    database.store("tasks").transact(lambda state: state.set(kept))
    assert tasks.get("digits").board.status().clients == 1, "put back, it is as it was"


def test_a_task_that_cannot_be_read_costs_the_others_nothing(database):
    for name in ("digits", "letters"):
        Tasks(database).create(name, TASK)
    garble(database.store("tasks"), "digits")
    assert [entry.name for entry in Tasks(database).entries()] == ["letters"]
    assert set(Tasks(database).find_faults()) == {"digits"}
    with pytest.raises(Damaged):
        Tasks(database).find("digits")
    assert Tasks(database).get("letters").entry.task == TASK


def test_a_task_of_a_later_version_costs_the_others_nothing_and_is_never_deleted(database):
    for name in ("digits", "letters"):
        Tasks(database).create(name, TASK)
    registry = database.store("tasks")
    later = registry.items()["digits"].replace(b'"classes"', b'"colours": 3, "classes"')
    registry.transact(lambda state: state.set({"digits": later}))
    tasks = Tasks(database)
    assert [entry.name for entry in tasks.entries()] == ["letters"]
    assert "created by another version" in tasks.find_faults()["digits"]
    with pytest.raises(ConfigError, match="created by another version of repshare"):
        tasks.find("digits")
    assert registry.items()["digits"] == later


def test_the_copies_that_earlier_versions_kept_are_no_tasks(database):
    Tasks(database).create("digits", TASK)
    registry = database.store("tasks")
    registry.transact(lambda state: state.set({"copy/digits": state.get(["digits"])[0]}))
    assert [entry.name for entry in Tasks(database).entries()] == ["digits"]
    assert Tasks(database).find_faults() == {}
