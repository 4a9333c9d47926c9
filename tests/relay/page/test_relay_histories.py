"""What the relay notes down for its page: reports, who was seen, snapshots of class means."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from repshare.board import Board
from repshare.relay.background import expire
from repshare.relay.page import histories, presence, snapshots
from repshare.relay.page.document import make_view
from repshare.relay.page.histories import make_curves
from repshare.relay.page.snapshots import draw_map
from repshare.relay.tasks import Tasks
from repshare.sharing.representations import Release, Representations
from repshare.sharing.task import Task
from repshare.sharing.wire import encode_release
from repshare.stores import MemoryStore, open_database

TASK = Task(classes=3, dimension=4)


def tell(notes, client, *rounds, **values):
    for number in rounds:
        histories.record(notes, client, {"round": number, **values})


def publish(board, client, round, vectors):
    labels = np.arange(len(vectors))
    rows = Representations(np.array(vectors, np.float32), labels, np.full(len(labels), 10))
    board.accept(client, encode_release(Release(round, rows, rows)))


def spread(scale=1.0):
    return (scale * np.eye(3, 4)).tolist()


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def test_a_history_keeps_its_ends_and_stays_evenly_spread():
    notes = MemoryStore()
    tell(notes, "alice", *range(1, 1001))
    (history,) = histories.read_histories(notes, ["alice", "nobody"]).values()
    assert len(history.points) == histories.POINTS
    assert (history.rounds[0], history.rounds[-1]) == (1, 1000)
    assert np.diff(history.rounds).max() <= 2 * 1000 / histories.POINTS


def test_a_client_that_begins_again_begins_its_history_again():
    notes = MemoryStore()
    tell(notes, "alice", 1, 2, 3, ce=1.0)
    tell(notes, "alice", 2, ce=0.5)
    history = histories.read_histories(notes, ["alice"])["alice"]
    assert history.rounds.tolist() == [1, 2]
    assert history.points[:, 1 + histories.FIELDS.index("ce")].tolist() == [1.0, 0.5]


def test_a_history_from_before_there_were_held_out_samples_goes_on():
    notes, before = (
        MemoryStore(),
        np.array([[1, 0.5, 0.4, 2, 0, 0, 0, 7, 8], [2, 0.6, 0.5, 1, 0, 0, 0, 7, 8]], np.float32),
    )
    notes.transact(lambda state: state.set({"report/alice": b'{"model": "LeNet5"}\n' + before.tobytes()}))
    tell(notes, "alice", 3, ce=0.5, held_out=0.75, gap=0.25)
    history = histories.read_histories(notes, ["alice"])["alice"]
    assert history.rounds.tolist() == [1, 2, 3]
    own = make_curves({"alice": history})["own"]["alice"]
    assert (own["ce"], own["held_out"], own["gap"]) == ([2, 1, 0.5], [None, None, 0.75], [None, None, 0.25])


def test_curves_are_the_mean_and_range_over_clients_and_each_client_alone():
    notes = MemoryStore()
    for number, (a, b) in enumerate([(0.2, 0.4), (0.4, 0.8)], start=1):
        tell(notes, "a", number, test_accuracy=a)
        tell(notes, "b", number, test_accuracy=b)
    curves = make_curves(histories.read_histories(notes, ["a", "b"]))
    assert curves["rounds"] == [1, 2]
    assert curves["all"] == {"test_accuracy": {"mean": [0.3, 0.6], "low": [0.2, 0.4], "high": [0.4, 0.8]}}
    assert curves["own"]["b"] == {"test_accuracy": [0.4, 0.8]}


def test_a_client_that_is_behind_counts_with_its_latest_value_but_its_own_curve_ends():
    notes = MemoryStore()
    tell(notes, "slow", 1, ce=2.0)
    tell(notes, "fast", 1, 2, 3, ce=1.0)
    curves = make_curves(histories.read_histories(notes, ["slow", "fast"]))
    assert curves["all"]["ce"]["mean"] == [1.5, 1.5, 1.5]
    assert curves["own"]["slow"]["ce"] == [2.0, None, None]


def test_rounds_without_a_test_have_the_accuracy_of_the_last_one():
    notes = MemoryStore()
    tell(notes, "a", 1)
    tell(notes, "a", 2, test_accuracy=0.5)
    tell(notes, "a", 3)
    assert make_curves(histories.read_histories(notes, ["a"]))["own"]["a"]["test_accuracy"] == [None, 0.5, 0.5]


def test_nobody_who_tells_anything_gives_no_curves():
    assert make_curves({}) == {"rounds": [], "clients": 0, "all": {}, "own": {}}


def test_what_was_seen_adds_up_over_relays_and_restarts():
    notes, clock = MemoryStore(), Clock()
    for _ in range(2):
        relay = presence.PresenceRecorder(clock)
        relay.note("t", "alice", up=10, published=True)
        relay.note("t", "alice", down=5)
        for recent in relay.take().values():
            presence.flush(notes, recent)
        clock.now += 7
    alice = presence.read_presence(notes, ["alice"])["alice"]
    assert (alice.up, alice.down, alice.last, alice.interval) == (20, 10, 1007.0, 7.0)
    assert presence.read_traffic(notes) == (20, 10)


def test_one_who_never_published_leaves_no_trace():
    notes, relay = MemoryStore(), presence.PresenceRecorder()
    relay.note("t", "invented", down=5)
    presence.flush(notes, relay.take()["t"])
    assert not notes.items()


def test_a_client_with_long_rounds_is_not_called_away_between_them():
    assert presence.Presence(0.0, interval=100.0).away_after(30.0) == 300.0
    assert presence.Presence(0.0, interval=1.0).away_after(30.0) == 30.0


def test_a_new_snapshot_is_taken_only_of_a_later_round_and_has_everyones_means():
    board, notes = Board(TASK), MemoryStore()
    assert not snapshots.snap(board, notes)  # nobody is there
    publish(board, "a", 1, spread(1.0))
    publish(board, "b", 1, spread(3.0))
    assert snapshots.snap(board, notes)
    assert not snapshots.snap(board, notes)
    index, pictures = snapshots.read_frames(notes, TASK)
    assert (index.rounds, index.clients) == ([1], ["a", "b"])
    expected = np.stack([np.eye(3, 4) * scale for scale in (2.0, 1.0, 3.0)])  # everyone's, a's, b's
    assert np.allclose(pictures[0], expected)


def test_there_are_never_more_snapshots_than_allowed_and_the_first_and_last_stay():
    board, notes = Board(TASK), MemoryStore()
    for number in range(1, 301):
        publish(board, "a", number, spread(number))
        snapshots.snap(board, notes)
    index, pictures = snapshots.read_frames(notes, TASK)
    assert len(pictures) == snapshots.FRAMES
    assert (index.rounds[0], index.rounds[-1]) == (1, 300)
    assert len(notes.items()) == snapshots.FRAMES + 1  # what was dropped is gone
    assert np.allclose(pictures[:, 1, 0, 0], index.rounds)


def test_a_client_that_withdraws_is_in_no_snapshot_any_more():
    board, notes = Board(TASK), MemoryStore()
    for number in (1, 2):
        publish(board, "a", number, spread(1.0))
        publish(board, "b", number, spread(3.0))
        snapshots.snap(board, notes)
    snapshots.forget(board, notes, ["a"])
    index, pictures = snapshots.read_frames(notes, TASK)
    assert index.clients == [None, "b"]
    assert np.isnan(pictures[:, 1]).all()
    assert np.allclose(pictures[:, 2], np.eye(3, 4) * 3)


def test_a_client_whose_release_grew_too_old_leaves_nothing_on_the_page():
    clock, relay, tasks = Clock(), presence.PresenceRecorder(), Tasks(open_database("memory"))
    tasks.create("digits", replace(TASK, max_age=60.0))
    there = tasks.get("digits")
    board, notes, there.board.clock = there.board, there.notes, clock
    for number in (1, 2):
        for name in ("a", "b", "c"):
            publish(board, name, number, spread())
            tell(notes, name, number)
            relay.note("t", name, up=10, published=True)
        presence.flush(notes, relay.take()["t"])
        snapshots.snap(board, notes)
    clock.now += 50
    publish(board, "b", 3, spread())
    clock.now += 30
    assert [expire(there), expire(there)] == [2, 0]
    assert sorted(notes.items()) == ["frame/1", "frame/2", "frames", "report/b", "seen/b", "traffic"]
    index, pictures = snapshots.read_frames(notes, TASK)
    assert index.clients == [None, "b", None]
    assert np.isnan(pictures[:, [1, 3]]).all()
    assert not np.isnan(pictures[:, 2]).any()


def test_only_the_first_clients_are_in_snapshots_and_who_is_gone_makes_room():
    board, notes = Board(TASK), MemoryStore()
    names = [f"c{number:02}" for number in range(snapshots.CLIENTS + 1)]
    for name in names:
        publish(board, name, 1, spread())
    snapshots.snap(board, notes)
    assert snapshots.read_frames(notes, TASK)[0].clients == names[:-1]
    board.withdraw(names[0])
    for name in names[1:]:
        publish(board, name, 2, spread())
    snapshots.snap(board, notes)
    index, pictures = snapshots.read_frames(notes, TASK)
    assert index.clients == [names[-1], *names[1:-1]]
    assert np.isnan(pictures[0, 1]).all()  # not the newcomer's: those of the one before
    assert np.allclose(pictures[1, 1], np.eye(3, 4))


def test_the_last_snapshot_shows_how_things_stand_also_within_a_round():
    board, notes = Board(TASK), MemoryStore()
    publish(board, "a", 5, spread(1.0))
    publish(board, "away", 1, spread(9.0))
    snapshots.snap(board, notes)
    publish(board, "a", 6, spread(2.0))
    assert not snapshots.snap(board, notes)
    index, pictures = snapshots.read_frames(notes, TASK)
    assert (index.rounds, index.changes) == ([1], 2)
    assert np.allclose(pictures[0, 1], np.eye(3, 4) * 2)


@pytest.mark.parametrize("lie", [0, 2**31 - 1])
@pytest.mark.parametrize("first", [False, True])
def test_a_client_that_lies_about_its_round_stops_no_film(lie, first):
    board, notes = Board(TASK), MemoryStore()
    if first:
        publish(board, "liar", lie, spread(7.0))
        snapshots.snap(board, notes)
    for number in range(1, 9):
        for name in ("a", "b"):
            publish(board, name, number, spread(number))
        if number == 4 and not first:
            publish(board, "liar", lie, spread(7.0))
        snapshots.snap(board, notes)
    index, pictures = snapshots.read_frames(notes, TASK)
    assert index.rounds[-8:] == list(range(1, 9))
    assert np.allclose(pictures[-1, index.clients.index("a") + 1], np.eye(3, 4) * 8)
    assert json.loads(make_view("t", board, notes, [], 30))["round"] == 8


def test_a_film_that_a_liar_stopped_before_goes_on():
    board, notes = Board(TASK), MemoryStore()
    publish(board, "liar", 2**31 - 1, spread())
    snapshots.snap(board, notes)
    for number in range(1, 4):
        for name in ("a", "b"):
            publish(board, name, number, spread(number))
        snapshots.snap(board, notes)
    assert snapshots.read_frames(notes, TASK)[0].rounds == [1, 2, 3]


def test_a_report_of_a_round_far_away_stretches_no_curve():
    notes = MemoryStore()
    for name in ("a", "b"):
        tell(notes, name, *range(1, 9), test_accuracy=0.5)
    tell(notes, "liar", 2**24, test_accuracy=1.0)
    curves = make_curves(histories.read_histories(notes, ["liar", "a", "b"]))
    assert curves["rounds"] == list(range(1, 9))
    assert curves["all"]["test_accuracy"]["high"] == [0.5] * 8


def test_a_client_that_is_ahead_of_one_that_stopped_is_drawn_to_its_end():
    notes = MemoryStore()
    tell(notes, "stopped", 1, 2, 3, test_accuracy=0.5)
    tell(notes, "ahead", *range(1, 101), test_accuracy=0.5)
    assert make_curves(histories.read_histories(notes, ["stopped", "ahead"]))["rounds"][-1] == 100


def test_a_client_that_lies_about_its_model_or_round_does_not_decide_what_fedavg_would_have_cost():
    board, notes, relay = Board(TASK), MemoryStore(), presence.PresenceRecorder()
    for name, number, size in (("a", 10, 1000), ("b", 10, 500), ("liar", 2**31 - 1, 2**53)):
        publish(board, name, number, spread())
        tell(notes, name, 10, model_bytes=size)
        relay.note("t", name, up=7, down=3, published=True)
    presence.flush(notes, relay.take()["t"])
    assert json.loads(make_view("t", board, notes, [], 30))["traffic"]["fedavg_bytes"] <= 2 * 10 * 1500 + 10 * 20_000


def test_clients_that_begin_again_begin_another_film():
    board, notes = Board(TASK), MemoryStore()
    publish(board, "a", 50, spread())
    snapshots.snap(board, notes)
    board.withdraw("a")
    publish(board, "a", 1, spread())
    assert snapshots.snap(board, notes)
    assert snapshots.read_frames(notes, TASK)[0].rounds == [1]


def test_a_task_too_large_for_snapshots_has_none():
    large = Task(classes=2, dimension=snapshots.NUMBERS // 2 + 1)
    board, notes = Board(large), MemoryStore()
    publish(board, "a", 1, np.ones((1, large.dimension)))
    assert snapshots.places(large) == -1
    assert not snapshots.snap(board, notes)


def test_points_of_a_plane_keep_their_distances_on_the_map():
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(1, 4, 3, 2)) @ np.linalg.qr(rng.normal(size=(50, 2)))[0].T  # a plane in 50 dimensions
    document, _ = draw_map(snapshots.SnapshotIndex([1], ["a", "b", "c"]), flat.astype(np.float16))
    points = np.array(document["points"][0]).reshape(-1, 2)
    ratio = _distances(points) / np.maximum(_distances(flat.reshape(-1, 50)), 1e-9)
    off = ~np.eye(len(points), dtype=bool)
    assert ratio[off].std() < 0.01 * ratio[off].mean()
    assert document["kept"] == pytest.approx(1.0, abs=0.01)


def test_a_map_does_not_flip_from_one_round_to_the_next():
    rng = np.random.default_rng(1)
    film = rng.normal(size=(1, 4, 3, 8)) * [3, 2, 1, 1, 1, 1, 1, 1]
    index = snapshots.SnapshotIndex([1], ["a", "b", "c"])
    before, plane = draw_map(index, film.astype(np.float16))
    after, _ = draw_map(index, (film + 0.01).astype(np.float16), -plane)  # the other way round is as good a plane
    mirrored = -np.array(before["points"])
    assert np.abs(np.array(after["points"]) - mirrored).max() < 60


def test_a_class_that_nobody_has_is_nowhere_on_the_map():
    film = np.ones((1, 2, 3, 4), np.float16)
    film[0, :, 1] = np.nan
    film[0, 1, 2] = math.inf  # too long for the number format
    film[0, 0, 0] = 5
    document, _ = draw_map(snapshots.SnapshotIndex([7], ["a"]), film)
    assert [[point is None for point in row] for row in document["points"][0]] == [
        [False, True, False],
        [False, True, True],
    ]


def test_what_fedavg_would_have_cost_is_each_model_up_and_down_in_every_round():
    board, notes, relay = Board(TASK), MemoryStore(), presence.PresenceRecorder()
    for name, size in (("a", 1000), ("b", 500), ("silent", None)):
        publish(board, name, 10, spread())
        if size:
            tell(notes, name, 10, model_bytes=size)
        relay.note("t", name, up=7, down=3, published=True)
    presence.flush(notes, relay.take()["t"])
    view = json.loads(make_view("t", board, notes, [], 30))
    assert view["traffic"] == {"up": 21, "down": 9, "sized": 2, "sized_bytes": 20, "fedavg_bytes": 2 * 10 * 1500}


def test_a_task_with_more_clients_than_are_shown_says_how_many_there_are():
    board, notes = Board(TASK), MemoryStore()
    for number in range(130):
        publish(board, f"c{number}", 1, spread())
    view = json.loads(make_view("t", board, notes, [], 30))
    assert (view["clients"], len(view["members"]), view["online"]) == (130, 100, 130)


def _distances(points):
    return np.linalg.norm(points[:, None] - points[None], axis=-1)
