"""The document of the page, and the activity of clients that is stored for it."""

import json

import numpy as np
import pytest

from repshare import Client, LocalExchange
from repshare.board import Board
from repshare.methods import CS
from repshare.relay.background import expire
from repshare.relay.page import activity
from repshare.relay.page.document import SHOWN, make_view, read_class_names
from repshare.relay.tasks import Tasks
from repshare.sharing.parts import as_release, count_classes
from repshare.sharing.representations import Release, Representations
from repshare.sharing.task import Task, make_space_task
from repshare.sharing.wire import encode_release
from repshare.space import Patches
from repshare.space.agreement import Agreement
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
    return json.loads(make_view("t", board, store or MemoryStore(), {}, [], 30, own))


def part_of(*labels, seed=0):
    """The part of samples with these labels, with vectors and weights at random."""
    rng, shape = np.random.default_rng(seed), (len(labels), 4)
    vectors, weights = rng.normal(size=shape).astype(np.float32) / 2, rng.uniform(-1, 1, (len(labels), 3))
    return make_part(vectors, weights, np.array(labels), np.zeros((len(labels), 8), bool), shrinkage=1.0)


def test_traffic_and_presence_add_up_and_are_bounded(monkeypatch):
    monkeypatch.setattr(activity, "MOST_CLIENTS", 3)
    clock = Clock()
    presence = activity.Presence(clock)
    presence.note("t", "alice", up=10)
    clock.now += 7
    presence.note("t", "alice", down=5)
    assert presence.of("t") == {"alice": activity.Activity(1007.0, 10, 5)}
    assert presence.of("other") == {}
    for number in range(10):
        presence.note("t", f"invented {number}")
    assert len(presence.of("t")) <= 3


def test_a_client_whose_release_grew_too_old_leaves_nothing():
    clock, tasks = Clock(), Tasks(open_database("memory"))
    tasks.create("t", Task(3, 4, max_age=100.0))
    opened = tasks.get("t")
    opened.board.clock = clock
    publish(opened.board, "alice", 1)
    activity.record(opened.activity, "alice", {"round": 1})
    clock.now += YEAR
    assert expire(opened) == 1
    assert not opened.activity.items()


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
    assert (shown["clients"], len(shown["shown"])) == (SHOWN + 30, SHOWN)


def test_clients_are_shown_by_name_whoever_came_first():
    board = Board(TASK)
    for name in ("b", "c", "a"):
        publish(board, name, 1)
    assert [each["name"] for each in view(board)["shown"]] == ["a", "b", "c"]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_part_tells_how_many_samples_of_each_class_it_is_made_of(precision):
    board = Board(make_space_task(3, 4, "here"))
    for name, part in (("a", part_of(*[0] * 7, *[2] * 4)), ("b", part_of(*[1] * 100, *[2] * 3, seed=1))):
        board.accept(name, encode_release(as_release(part, 1, "here"), precision))
    shown = view(board)
    assert {each["name"]: each["samples"] for each in shown["shown"]} == {"a": [7, 0, 4], "b": [0, 100, 3]}
    assert [each["samples_total"] for each in shown["shown"]] == [11, 103]
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


@pytest.mark.parametrize(("bad", "outliers"), [("images", ["liar"]), ("labels", ["liar"]), (None, [])])
def test_a_client_whose_samples_are_noise_is_marked_in_a_space(splits, bad, outliers):
    """Whatever the honest ones have: five classes, all of them, one, or few samples."""
    train, rng = splits.normalised().train, np.random.default_rng(0)
    space = Agreement(Patches((1, 8, 8), sizes=(3, 4), filters=8))
    there = Board(space.task(10))
    for name, classes, count in (("half", 5, 60), ("all", 10, 60), ("one", 1, 30), ("few", 5, 10), ("liar", 10, 100)):
        rows = rng.permutation(np.flatnonzero(train.labels < classes))[:count]
        images, labels = train.images[rows], train.labels[rows]
        if name == "liar" and bad == "images":
            images = rng.standard_normal(images.shape, dtype=np.float32)
        if name == "liar" and bad == "labels":
            labels = rng.permutation(labels)
        exchange = LocalExchange(there, name)
        client = Client(None, (images, labels), exchange, name=name, method=CS, space=space, classes=10)
        for _ in range(2):
            assert client.round().trouble is None
    shown = {each["name"]: each for each in view(there)["shown"]}
    assert [name for name, each in shown.items() if each["outlier"]] == outliers
    assert shown["one"]["strangeness"] is None, "of one class, nobody can be wrong"
    for name in ("half", "all", "one"):
        there.withdraw(name)
    assert {each["strangeness"] for each in view(there)["shown"]} == {None}, "of two, nobody is unusual"
