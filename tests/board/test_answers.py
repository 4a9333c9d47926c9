"""An answer that was made before is never older than the board, whoever changed it."""

import numpy as np
import pytest

from repshare.board import Board, Wants
from repshare.errors import StoreError
from repshare.sharing import wire
from repshare.sharing.representations import Release, nothing, stack
from repshare.sharing.task import Task
from repshare.stores import MemoryStore, SqliteDatabase

TASK = Task(classes=3, dimension=2)
WANTS = Wants(1, 0)


def body(value, round=1, *, observed=False):
    rows = stack([(np.array([value, -value]), 0, 2), (np.array([value, 1.0]), 2, 3)], 2)
    return wire.encode_release(Release(round, rows, rows if observed else nothing(2)))


def board(store):
    return Board(TASK, store, key=b"secret")


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
        assert other.answer("nobody", WANTS) == (number + 1, wanted)
    boards[0].withdraw("client 1")
    assert boards[1].teach("nobody", WANTS) == from_the_store(processes[0].store("task"))
    assert not boards[1].find_faults()
    for each in processes:
        each.close()


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
