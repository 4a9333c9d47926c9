"""What a process remembers of a board is never older than the board, whoever changed it."""

import numpy as np
import pytest

from repshare.board import Board, Wants
from repshare.board.memory import BoardMemory, Remembered
from repshare.board.totals import read_totals
from repshare.errors import Malformed, StoreError
from repshare.sharing import wire
from repshare.sharing.representations import Release, nothing, stack
from repshare.sharing.task import Task
from repshare.stores import MemoryStore, SqliteDatabase

TASK = Task(classes=3, dimension=2)
WANTS = Wants(1, 0)


def body(value, round=1, *, observed=False):
    rows = stack([(np.array([value, -value]), 0, 2), (np.array([value, 1.0]), 2, 3)], 2)
    return wire.encode_release(Release(round, rows, rows if observed else nothing(2)))


def board(store, **more):
    return Board(TASK, store, key=b"secret", **more)


def from_the_store(store, client="nobody"):
    """What a board that remembers nothing answers."""
    return board(store).teach(client, WANTS)


@pytest.mark.parametrize("observed", [False, True])
def test_processes_that_take_turns_see_each_others_changes(tmp_path, observed):
    processes = [SqliteDatabase(tmp_path / "relay.db") for _ in range(2)]
    boards = [board(each.store("task")) for each in processes]
    for number in range(8):
        one, other = boards[number % 2], boards[(number + 1) % 2]
        one.accept(f"client {number % 3}", body(number, number, observed=observed))
        wanted = from_the_store(one.store)
        assert [each.teach("nobody", WANTS) for each in (one, other)] == [wanted] * 2
        assert other.glance("nobody", WANTS) == (number + 1, wanted)
    boards[0].withdraw("client 1")
    assert boards[1].teach("nobody", WANTS) == from_the_store(processes[0].store("task"))
    assert not boards[1].find_faults()
    for each in processes:
        each.close()


def test_prepared_releases_are_taught_only_once_they_are_kept(tmp_path):
    database = SqliteDatabase(tmp_path / "relay.db")
    store = database.store("task")
    one = board(store)
    one.accept("a", body(1))
    before = one.teach("nobody", WANTS)
    finish = one.prepare_all([("a", body(2, 2)), ("b", b"nonsense"), ("c", body(3))])
    assert one.glance("nobody", WANTS) == (1, before)
    version, refused, last = finish()
    assert (version, last) == (2, 3)
    assert isinstance(refused, Malformed)
    assert one.teach("nobody", WANTS) == from_the_store(store) != before
    assert not one.find_faults()
    assert [type(each) for each in one.prepare_all([("b", b"nonsense")])()] == [Malformed]  # without a transaction
    database.close()


def test_a_backup_in_place_of_a_board_of_the_same_version_is_told_apart():
    store = MemoryStore("task")
    long_lived = board(store)
    long_lived.accept("a", body(1))
    saved = store.items()
    long_lived.accept("a", body(2, 2))
    old = long_lived.teach("nobody", WANTS)
    store.clear()
    store.transact(lambda state: state.set(saved))
    board(store).accept("a", body(7, 2))
    assert long_lived.version() == 2
    assert long_lived.teach("nobody", WANTS) == from_the_store(store) != old
    long_lived.accept("a", body(9, 3))
    assert not long_lived.find_faults()


def test_publishing_twice_changes_nothing_and_an_older_round_is_refused_from_memory():
    store = MemoryStore("task")
    here = board(store)
    assert [here.accept("a", body(1, 5)) for _ in range(2)] == [1, 1]
    kept = store.items()
    (outcome,) = here.accept_all([("a", body(1, 4))])
    assert "older" in str(outcome)
    assert store.items() == kept


def test_a_full_task_counts_nothing_of_those_it_refuses_in_a_batch():
    largest = Task(classes=2, dimension=1, norm_bound=2.0**20)

    def made(count):
        return wire.encode_release(Release(1, stack([(np.array([2.0**20]), 0, count)], 1), nothing(1)))

    here = Board(largest, MemoryStore("task"), key=b"secret")
    outcomes = here.accept_all([("a", made(600)), ("b", made(600)), ("c", made(5))])
    assert outcomes[0] == 1
    assert "full" in str(outcomes[1])
    assert outcomes[2] == 2
    assert not here.find_faults()


class FullDisk(MemoryStore):
    """Cannot write while it is full."""

    full = False

    def transact(self, work):
        def worked(state):
            result = work(state)
            if self.full:
                raise StoreError("no room")
            return result

        return super().transact(worked)


def test_a_change_that_was_not_kept_is_not_remembered():
    store = FullDisk("task")
    here = board(store)
    here.accept("a", body(1))
    wanted = here.teach("nobody", WANTS)
    store.full = True
    with pytest.raises(StoreError):
        here.accept("a", body(5, 2))
    assert here.teach("nobody", WANTS._replace(precision="fp16")) == board(store).teach(
        "nobody", WANTS._replace(precision="fp16")
    )
    store.full = False
    assert here.accept("a", body(1)) == 1
    assert here.teach("nobody", WANTS) == wanted
    here.accept("a", body(2, 2))
    assert not here.find_faults()


def test_a_board_without_a_key_keeps_the_same_bytes_every_time():
    boards = [Board(TASK, MemoryStore(), clock=lambda: 0.0) for _ in range(2)]
    for each in boards:
        each.accept("a", body(1))
    assert boards[0].save() == boards[1].save()


def test_memory_is_bounded_and_forgets_what_came_first():
    totals = read_totals(None, TASK)
    size = Remembered(b"1", totals, {}).size
    memory = BoardMemory(2 * size)
    for number in range(3):
        memory.keep(number, Remembered(b"%d" % number, totals, {}))
    assert [memory.find(number) is None for number in range(3)] == [True, False, False]
    memory.keep(0, Remembered(b"", totals, {}))
    assert memory.find(0) is None  # without a stamp nobody could tell whether it is current
