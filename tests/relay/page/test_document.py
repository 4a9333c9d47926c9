"""The document of the page, and the activity of clients that is stored for it."""

import json

import numpy as np
import pytest

from repshare.board import Board
from repshare.relay.background import expire
from repshare.relay.page import activity
from repshare.relay.page.document import SHOWN, make_view, read_class_names
from repshare.relay.tasks import Tasks
from repshare.sharing.parts import as_release, count_classes
from repshare.sharing.representations import Release, Representations
from repshare.sharing.task import Task, make_space_task
from repshare.sharing.wire import encode_release
from repshare.stores import MemoryStore, open_database
from support.parts import make_part

TASK = Task(classes=3, dimension=4)
YEAR = 3.2e7


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def publish(board, client, round):
    rows = Representations(np.eye(3, 4, dtype=np.float32), np.arange(3), np.full(3, 10))
    board.accept(client, encode_release(Release(round, rows, rows)))


def view(board, store=None, own=None):
    return json.loads(make_view("t", board, store or MemoryStore(), [], 30, own))


def part_of(*labels, seed=0):
    """The part of samples with these labels, with vectors and weights at random."""
    rng, shape = np.random.default_rng(seed), (len(labels), 4)
    vectors, weights = rng.normal(size=shape).astype(np.float32) / 2, rng.uniform(-1, 1, (len(labels), 3))
    return make_part(vectors, weights, np.array(labels), np.zeros((len(labels), 8), bool), shrinkage=1.0)


def test_activity_adds_up_over_relays_and_restarts():
    store, clock = MemoryStore(), Clock()
    for _ in range(2):
        recorder = activity.ActivityRecorder(clock)
        recorder.note("t", "alice", up=10)
        recorder.note("t", "alice", down=5)
        for recent in recorder.take().values():
            activity.flush(store, recent)
        clock.now += 7
    traffic, found = activity.read_activity(store, ["alice", "bob"])
    assert (traffic.up, traffic.down) == (20, 10)
    assert found == {"alice": (activity.Activity(1007.0, 20, 10), {}), "bob": (None, {})}


def test_one_who_never_published_leaves_no_trace():
    store, recorder = MemoryStore(), activity.ActivityRecorder()
    recorder.note("t", "invented", down=5)
    activity.flush(store, recorder.take()["t"])
    assert not store.items()


def test_a_client_whose_release_grew_too_old_leaves_nothing_but_its_traffic_in_the_sum():
    clock, recorder, tasks = Clock(), activity.ActivityRecorder(), Tasks(open_database("memory"))
    tasks.create("t", Task(3, 4, max_age=100.0))
    opened = tasks.get("t")
    opened.board.clock = clock
    publish(opened.board, "alice", 1)
    recorder.note("t", "alice", up=10)
    activity.flush(opened.activity, recorder.take()["t"])
    activity.record(opened.activity, "alice", {"round": 1})
    clock.now += YEAR
    assert expire(opened) == 1
    assert [*opened.activity.items()] == ["traffic"]


@pytest.mark.parametrize("lie", [0, 2**31 - 1])
def test_a_client_that_lies_about_its_round_does_not_decide_what_the_page_says(lie):
    board = Board(TASK)
    for name, number in (("a", 8), ("b", 9), ("liar", lie)):
        publish(board, name, number)
    assert view(board)["round"] in (8, 9)


def test_a_task_with_more_clients_than_are_shown_says_how_many_there_are():
    board = Board(TASK)
    for number in range(SHOWN + 30):
        publish(board, f"c{number}", 1)
    shown = view(board)
    assert (shown["clients"], len(shown["members"])) == (SHOWN + 30, SHOWN)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_part_tells_how_many_samples_of_each_class_it_is_made_of(precision):
    board = Board(make_space_task(3, 4, "here"))
    for name, part in (("a", part_of(*[0] * 7, *[2] * 4)), ("b", part_of(*[1] * 100, *[2] * 3, seed=1))):
        board.accept(name, encode_release(as_release(part, 1, "here"), precision))
    shown = view(board)
    assert {each["name"]: each["samples"] for each in shown["members"]} == {"a": [7, 0, 4], "b": [0, 100, 3]}
    assert [each["samples_total"] for each in shown["members"]] == [11, 103]
    assert shown["total"] == {"samples": 114, "classes": [7, 100, 7]}


def test_counts_from_rounded_shares_add_up_and_a_release_of_nothing_has_none():
    thirds = as_release(part_of(0, 1, 2)._replace(samples=100), 1, "here").means
    assert count_classes(thirds, 3, 4) == [34, 33, 33]
    noisy = as_release(part_of(0, 1)._replace(shares=np.array([-0.004, 0.5, 0.5], np.float32)), 1, "here").means
    assert count_classes(noisy, 3, 4) == [0, 1, 1]
    nothing = Representations(np.zeros((0, 14), np.float32), np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert count_classes(nothing, 3, 4) == [0, 0, 0]


@pytest.mark.parametrize(
    ("description", "names"),
    [
        ('{"class_names": ["a", "b", "c"]}', ["a", "b", "c"]),
        (None, []),
        ("no JSON", []),
        ("[]", []),
        ("[" * 60_000, []),
        ('{"class_names": ["a"]}', []),
        ('{"class_names": ["a", "b", 7]}', []),
    ],
)
def test_a_description_that_is_none_costs_the_page_only_the_names(description, names):
    assert read_class_names(Task(3, 4, description=description)) == names
