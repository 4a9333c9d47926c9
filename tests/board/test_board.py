import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repshare.board import Board, Wants
from repshare.board import board as module
from repshare.errors import ConfigError, Outdated, Refused
from repshare.sharing import wire
from repshare.sharing.fixed_point import Totals
from repshare.sharing.representations import Release, nothing, stack
from repshare.sharing.task import MOST_OBSERVATIONS, MOST_ROUNDS, Task
from repshare.stores import Changes, MemoryStore, open_database

TASK = Task(classes=3, dimension=2)


def board(task=TASK):
    return Board(task, MemoryStore())


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def body(means=(), observations=(), round=1, dimension=2):
    """Rows are (vector, class, count)."""
    return wire.encode_release(Release(round, stack(means, dimension), stack(observations, dimension)))


def teacher(board, client, observations=1, seed=0, peers=None):
    return wire.decode_teacher(board.teach(client, Wants(observations, seed, peers)))


def row(*vector, label=0, count=1):
    return np.array(vector, float), label, count


def test_a_client_alone_has_no_teacher():
    alone = board()
    alone.accept("a", body([row(1, 1)], [row(1, 1)]))
    assert len(teacher(alone, "a").means.labels) == len(teacher(alone, "a").observations.labels) == 0


def test_global_means_are_weighted_by_samples():
    both = board()
    both.accept("a", body([row(1, 0, count=1)]))
    both.accept("b", body([row(4, 3, count=2)]))
    means = teacher(both, "a").means
    assert means.vectors.tolist() == [[3, 2]]
    assert means.counts.tolist() == [3]


def test_unweighted_means_count_every_client_the_same():
    both = board(Task(3, 2, weighted=False))
    both.accept("a", body([row(1, 0, count=1)]))
    both.accept("b", body([row(4, 3, count=2)]))
    assert teacher(both, "a").means.vectors.tolist() == [[2.5, 1.5]]


def test_a_class_that_only_the_client_itself_has_teaches_it_nothing():
    both = board()
    both.accept("a", body([row(1, 0), row(5, 5, label=1)]))
    both.accept("b", body([row(3, 0)]))
    assert teacher(both, "a").means.labels.tolist() == [0]
    assert teacher(both, "b").means.labels.tolist() == [0, 1]


def test_a_class_nobody_has_is_in_no_teacher():
    both = board()
    both.accept("a", body([row(1, 0)]))
    assert 2 not in teacher(both, "b").means.labels


def test_observations_are_never_ones_own():
    many = board()
    for number, client in enumerate("abcd"):
        many.accept(client, body(observations=[row(number, k) for k in range(2)]))
    for seed in range(50):
        drawn = teacher(many, "b", observations=2, seed=seed).observations
        assert len(drawn.labels) == 2
        assert 1 not in drawn.vectors[:, 0]


def test_every_other_observation_is_drawn_sometimes_and_none_twice_at_once():
    many = board()
    for number, client in enumerate("abcd"):
        many.accept(client, body(observations=[row(number, k) for k in range(2)]))
    seen = set()
    for seed in range(100):
        drawn = [tuple(vector) for vector in teacher(many, "a", observations=4, seed=seed).observations.vectors]
        assert len(set(drawn)) == 4
        seen |= set(drawn)
    assert seen == {(number, k) for number in (1, 2, 3) for k in range(2)}


def test_the_same_seed_draws_the_same():
    many = board()
    for number, client in enumerate("abcdefgh"):
        many.accept(client, body(observations=[row(number, 0)]))
    bodies = [many.teach("a", Wants(2, seed)) for seed in (5, 5, 6)]
    assert bodies[0] == bodies[1] != bodies[2]


def test_peers_limit_what_a_client_learns_from():
    many = board()
    for number, client in enumerate("abcd"):
        many.accept(client, body([row(number, 0)], [row(number, 1)]))
    chosen = teacher(many, "a", observations=5, peers=("b", "d", "a", "nobody"))
    assert chosen.means.vectors.tolist() == [[2, 0]]
    assert sorted(chosen.observations.vectors[:, 0]) == [1, 3]


def test_a_relays_board_hands_out_nothing_by_name():
    many = Board(TASK, key=b"secret")
    many.accept("a", body([row(1, 0)], [row(1, 1)]))
    for peers in (("a",), ("a", "x", "y"), ("b",), ()):
        with pytest.raises(Refused, match="hands out nothing by name"):
            teacher(many, "b", peers=peers)


def test_publishing_twice_changes_nothing():
    both = board()
    both.accept("a", body([row(1, 0)], [row(1, 1)]))
    both.accept("b", body([row(3, 0)], [row(3, 1)]))
    before = dict(both.store.items())
    both.accept("a", body([row(1, 0)], [row(1, 1)]))
    assert dict(both.store.items()) == before


def test_an_older_round_never_overwrites_a_newer_one():
    both = board()
    both.accept("a", body([row(1, 0)], round=5))
    with pytest.raises(Refused, match="round 5"):
        both.accept("a", body([row(9, 9)], round=4))
    assert teacher(both, "b").means.vectors.tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (body([row(1, 2, 3)], dimension=3), "3 numbers.*2"),
        (body([row(1, 2, label=3)]), "class 3 is unknown"),
        (body([row(1, 2, label=-1)]), "class -1 is unknown"),
        (body([row(1, 2, count=0)]), "an average of 0 samples"),
        (body(observations=[row(float("nan"), 2)]), "not finite"),
        (body([row(float("inf"), 2)]), "not finite"),
        (body([row(1, 2)], round=2**31), "round 2147483648 is beyond 2147483647"),
        (body([row(1e6, 2)]), "length 1e\\+06.*norm_bound"),
        (body([row(1, 2), row(1, 3)]), "two means of one class"),
    ],
)
def test_a_refused_release_says_why_and_changes_nothing(bad, reason):
    door = board()
    door.accept("a", body([row(1, 0)]))
    before = dict(door.store.items())
    with pytest.raises(Refused, match=reason):
        door.accept("b", bad)
    assert door.store.items() == before


@pytest.mark.parametrize("name", ["", "two\nlines"])
def test_a_name_that_would_confuse_the_buffers_is_refused(name):
    with pytest.raises(Refused):
        board().accept(name, body([row(1, 0)]))


@pytest.mark.parametrize("fields", [(1, 5), (3, 0), (3, 2, float("inf")), (3, 2, 0.0), (3, 2, 1.0, 0)])
def test_a_task_that_makes_no_sense_is_refused(fields):
    with pytest.raises(ConfigError):
        Task(*fields)


@given(st.integers(0, 2**32))
def test_after_any_history_totals_and_buffers_are_those_of_the_last_releases(seed):
    rng = random.Random(seed)
    busy, last = board(), {}
    for round in range(1, 15):
        client = rng.choice("abcd")
        means = [row(rng.uniform(-1, 1), 0, label=c, count=rng.randint(1, 9)) for c in range(3) if rng.random() < 0.6]
        observations = [row(round, rng.random(), label=c) for c in range(3) for _ in range(rng.randint(0, 3))]
        busy.accept(client, body(means, observations, round))
        last[client] = (means, observations, round)
        if rng.random() < 0.2:
            gone = rng.choice("abcd")
            busy.withdraw(gone)
            last.pop(gone, None)
    fresh = board()
    for client in sorted(last):
        fresh.accept(client, body(*last[client]))
    kept = [each.store.items().get("totals", bytes(8 * TASK.totals_size)) for each in (busy, fresh)]
    assert np.array_equal(*(Totals.decode(totals, TASK.rows, TASK.columns).numbers for totals in kept))
    for label in range(3):
        drawn = teacher(busy, "someone else", observations=100).observations.of(label).vectors
        expected = [v for _, observations, _ in last.values() for v, c, _ in observations if c == label]
        assert sorted(map(tuple, drawn)) == sorted(tuple(np.float32(v)) for v in expected)


def test_an_empty_release_withdraws_what_was_shared():
    both = board()
    both.accept("a", body([row(1, 0)], [row(1, 1)]))
    both.accept("a", wire.encode_release(Release(2, nothing(2), nothing(2))))
    assert len(teacher(both, "b").means.labels) == len(teacher(both, "b").observations.labels) == 0


def test_named_peers_are_drawn_from_at_random_and_weighted_as_the_task_says():
    many = board(Task(3, 2, weighted=False))
    for number, client in enumerate("abcdef"):
        many.accept(client, body([row(number, 0, count=number + 1)], [row(number, 1)]))
    peers = tuple("bcdef")
    assert teacher(many, "a", peers=peers).means.vectors.tolist() == [[3, 0]]
    drawn = {float(teacher(many, "a", seed=seed, peers=peers).observations.vectors[0, 0]) for seed in range(50)}
    assert drawn == {1, 2, 3, 4, 5}


def test_a_task_sets_its_own_bounds():
    strict = board(Task(3, 2, norm_bound=5.0, minimum_count=4))
    strict.accept("a", body([row(3, 4, count=4)], [row(3, 4, count=4)]))
    with pytest.raises(Refused, match="an average of 3 samples; the task wants 4"):
        strict.accept("a", body([row(1, 1, count=3)]))
    with pytest.raises(Refused, match=r"length 5\.1"):
        strict.accept("a", body(observations=[row(0, 5.1, count=4)]))


def test_sums_that_would_overflow_are_refused_and_change_nothing():
    huge = board(Task(3, 2, norm_bound=1e6))
    huge.accept("a", body([row(1e5, 0, count=10_000)]))
    with pytest.raises(Refused, match="the task is full: 20000 samples"):
        huge.accept("b", body([row(1e5, 0, count=10_000)]))
    with pytest.raises(Refused, match="more than can be summed up"):
        huge.accept("c", body([row(1e5, 0, count=2_000_000)]))
    assert teacher(huge, "b").means.counts.tolist() == [10_000]


def test_ordinary_representations_of_a_billion_samples_fit():
    large = board(Task(3, 2))
    for client in "abcd":
        large.accept(client, body([row(1, -1, count=250_000_000)]))
    assert teacher(large, "a").means.counts.tolist() == [1_000_000_000]


def test_more_samples_than_a_message_can_say_are_said_as_the_most_it_can():
    both = board()
    both.accept("a", body([row(0.001, 0, count=2**31 - 1)]))
    both.accept("b", body([row(0.001, 0, count=100)]))
    assert teacher(both, "b").means.counts.tolist() == [2**31 - 1]


def test_an_older_round_has_a_name_of_its_own():
    both = board()
    both.accept("a", body([row(1, 0)], round=5))
    with pytest.raises(Outdated, match="round 5 already"):
        both.accept("a", body([row(1, 0)], round=4))


def test_the_version_grows_with_every_change_and_with_nothing_else():
    both = board()
    versions = [both.version(), both.accept("a", body([row(1, 0)])), both.accept("a", body([row(1, 0)]))]
    versions += [both.accept("a", body([row(2, 0)])), both.withdraw("a"), both.withdraw("a")]
    teacher(both, "a")
    assert [*versions, both.version()] == [0, 1, 1, 2, 3, 3, 3]


def test_who_withdraws_leaves_no_trace():
    both = board()
    both.accept("b", body([row(3, 0)], [row(3, 1)]))
    kept = {key: value for key, value in both.store.items().items() if key != "head"}
    both.accept("a", body([row(1, 0)], [row(1, 1)] * 5))
    both.withdraw("a")
    assert {key: value for key, value in both.store.items().items() if key != "head"} == kept


def test_stale_releases_are_forgotten_and_fresh_ones_are_not():
    clock = Clock()
    aging = Board(Task(3, 2, max_age=80.0), MemoryStore(), clock)
    aging.accept("asleep", body([row(1, 0)], [row(1, 1)]))
    aging.accept("awake", body([row(3, 0)]))
    for clock.now in (5.0, 30.0, 60.0):
        aging.accept("awake", body([row(clock.now, 0)], round=int(clock.now)))
    clock.now = 80.0
    assert aging.expire() == []
    clock.now = 90.5
    assert aging.expire() == ["asleep"]
    assert [member.name for member in aging.status().shown] == ["awake"]
    assert teacher(aging, "other").means.vectors.tolist() == [[60, 0]]
    clock.now = 300.0
    assert [aging.expire(), aging.expire()] == [["awake"], []]
    assert aging.status().clients == 0
    aging.accept("asleep", body([row(5, 0)], round=2))  # and back again
    assert teacher(aging, "other").means.vectors.tolist() == [[5, 0]]


@pytest.mark.parametrize("same", [False, True], ids=["new releases", "the same bytes again"])
def test_no_release_is_forgotten_before_its_time(same):
    clock = Clock()
    aging = Board(Task(3, 2, max_age=80.0), MemoryStore(), clock)
    rng, last = random.Random(0), {}
    for number in range(1, 500):
        clock.now += rng.uniform(0, 5)
        client = rng.choice("aaaabbc" + "d" * (number < 50))
        round = 1 if same else number
        version, known = aging.version(), client in {member.name for member in aging.status().shown}
        assert aging.accept(client, body([row(round, 0)], round=round)) == version + (not (same and known))
        last[client] = clock.now
        aging.expire()
        assert aging.find_faults() == {}
        there = {member.name for member in aging.status().shown}
        assert {name for name, when in last.items() if clock.now - when < 80} <= there
        assert there <= {name for name, when in last.items() if clock.now - when < 80 * 1.25}


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_no_release_of_a_task_is_longer_than_the_longest(precision):
    task = Task(2, 1)
    rows = [row(0.5, label=label, count=9) for label in (0, 1)]
    largest = Release(MOST_ROUNDS, stack(rows, 1), stack(rows * MOST_OBSERVATIONS, 1), noise="seeded")
    sent = wire.encode_release(largest, precision)
    Board(task).accept("a", sent)
    assert len(sent) <= task.longest_release <= 2 * len(sent) + wire.LONGEST_HEADER_BYTES


def crowd(store, clock, classes=20, clients=40):
    """A board of many clients with some rows of each class, all silent but every fourth."""
    many = Board(Task(classes, 2, max_age=80.0), store, clock)
    for number in range(clients):
        rows = [row(number, label, label=label) for label in range(classes)]
        many.accept(f"client {number}", body(rows, rows[number % 3 :] * 2))
    clock.now += 85.0
    for number in range(0, clients, 4):
        many.accept(f"client {number}", body([row(number, 1)], round=2))
    clock.now += 20.0
    return many


class Counting(MemoryStore):
    """A store that counts how often each transaction asks it for something."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def transact(self, work):
        self.asked.append(0)

        def counted(state):
            def read(keys):
                self.asked[-1] += 1
                return state.get(keys)

            changes = Changes(read)
            result = work(changes)
            state.set({key: value for key, value in changes.made.items() if value is not None})
            state.delete([key for key, value in changes.made.items() if value is None])
            return result

        return super().transact(counted)

    read = transact


@pytest.mark.parametrize("classes", [2, 20])
def test_a_store_far_away_is_asked_as_often_however_much_is_wanted(classes):
    store = Counting()
    many = crowd(store, Clock(), classes)
    store.asked.clear()
    many.teach("client 1", Wants(1, 1))
    assert store.asked == [2]
    store.asked.clear()
    assert len(many.expire()) == 30
    assert max(store.asked) <= 6


def test_releases_grow_too_old_also_while_others_publish(redis_url):
    database, clock = open_database(redis_url), Clock()
    store = database.store("digits")
    store.transact(lambda state: state.set(crowd(MemoryStore(), clock, clients=16).store.items()))
    busy = Board(Task(20, 2, max_age=80.0), store, clock)
    done = threading.Event()

    def publish():
        round = 3
        while not done.wait(0.002):
            busy.accept("client 0", body([row(round, 1)], round=round))
            round += 1

    with ThreadPoolExecutor() as threads:
        publishing = threads.submit(publish)
        try:
            gone = [name for some in iter(busy.expire, []) for name in some]
        finally:
            done.set()
        publishing.result()
    database.close()
    assert len(gone) == 12


def test_an_age_beyond_all_reason_forgets_nothing():
    aging = Board(Task(3, 2, max_age=1e300), MemoryStore())
    assert aging.expire() == []
    aging.accept("a", body([row(1, 0)]))
    assert aging.expire() == []


def test_only_so_many_clients_are_looked_at_in_one_turn_and_all_of_them_in_a_few(monkeypatch):
    monkeypatch.setattr(module, "LOOKED_AT", 10)
    clock = Clock()
    many = crowd(MemoryStore(), clock)
    silent = {f"client {number}" for number in range(40) if number % 4}
    turns = [many.expire() for _ in range(4)]
    assert max(map(len, turns)) <= 10
    assert {name for some in turns for name in some} == silent
    clock.now += 200.0
    assert len(many.expire()) == 10


def test_a_release_that_is_renewed_while_others_are_forgotten_stays():
    clock = Clock()
    store = Interrupted()
    aging = Board(Task(3, 2, max_age=80.0), store, clock)
    for client in ("back", "gone"):
        aging.accept(client, body([row(1, 0)]))
    clock.now = 100.0
    store.before_next = lambda: Board(aging.task, store, clock).accept("back", body([row(1, 0)]))
    assert aging.expire() == ["gone"]
    assert [member.name for member in aging.status().shown] == ["back"]


class Interrupted(MemoryStore):
    """A store in which something happens before the next change."""

    before_next = None

    def transact(self, work):
        if before := self.before_next:
            self.before_next = None
            before()
        return super().transact(work)


def test_a_clock_that_is_set_delays_or_hastens_by_as_much_as_it_jumps():
    clock = Clock()
    clock.now = 1000.0
    aging = Board(Task(3, 2, max_age=80.0), MemoryStore(), clock)
    for client in ("ahead", "again", "same"):
        aging.accept(client, body([row(1, 0)]))
    clock.now = 0.0  # it was ahead by as much
    aging.accept("again", body([row(2, 0)], round=2))
    aging.accept("same", body([row(1, 0)]))
    clock.now = 89.0
    assert aging.expire() == []
    clock.now = 91.0
    assert sorted(aging.expire()) == ["again", "same"]
    clock.now = 1089.0
    assert aging.expire() == []
    clock.now = 1091.0
    assert aging.expire() == ["ahead"]


def test_without_a_max_age_nothing_is_forgotten():
    clock = Clock()
    kept = Board(TASK, MemoryStore(), clock)
    kept.accept("a", body([row(1, 0)]))
    clock.now = 1e9
    assert kept.expire() == []


def test_what_is_drawn_says_nothing_of_who_came_when():
    """A client that knows how draws are made and chooses the seed could otherwise put each client's rows together."""
    plain, keyed = board(), Board(TASK, key=b"secret")
    for number in range(30):
        for each in (plain, keyed):
            each.accept(f"client {number}", body(observations=[row(number, label, label=label) for label in range(3)]))
    rng, hits = random.Random(7), {}
    guessed = [rng.sample(range(30), 30) for _ in range(3)]  # as the board draws, class by class
    for name, each in (("plain", plain), ("keyed", keyed)):
        seen = teacher(each, "x", observations=30, seed=7).observations
        drawn = [seen.of(label).vectors[:, 0].tolist() for label in range(3)]
        hits[name] = sum(a == b for g, d in zip(guessed, drawn, strict=True) for a, b in zip(g, d, strict=True))
    assert hits["plain"] == 90
    assert hits["keyed"] < 20


def test_the_next_version_draws_anew():
    many = Board(TASK, key=b"secret")
    for number in range(30):
        many.accept(f"client {number}", body(observations=[row(number, 0)]))
    first, again = (teacher(many, "x", observations=30).observations.vectors.tolist() for _ in range(2))
    many.accept("client 0", body(observations=[row(0, 0)], round=2))
    then = teacher(many, "x", observations=30).observations.vectors.tolist()
    assert first == again
    assert sorted(then) == sorted(first)
    assert sum(a == b for a, b in zip(first, then, strict=True)) < 10


def test_status_shows_who_is_there():
    many, rng = Board(TASK, MemoryStore(), lambda: 7.0), random.Random(0)
    for client in "abcdefg":
        many.accept(client, body([row(1 + rng.gauss(0, 0.1), 2 + rng.gauss(0, 0.1), count=3)], round=4))
    many.accept("liar", body([row(-1, -2)], round=4))
    status = many.status()
    assert (status.version, status.clients, len(status.shown)) == (8, 8, 8)
    assert status.shown[0]._replace(bytes=0) == ("a", 4, 7.0, 0, {0: 3})
    assert len(many.status(limit=3).shown) == 3


def test_what_was_saved_is_loaded_with_everything():
    clock = Clock()
    task = Task(3, 2, max_age=10.0)
    old, new = Board(task, MemoryStore(), clock), Board(task, MemoryStore(), clock)
    for number, client in enumerate("abc"):
        old.accept(client, body([row(number, 0)], [row(number, 1)]))
    new.load(old.save())
    assert new.store.items() == old.store.items()
    assert new.teach("a", Wants(1, 3)) == old.teach("a", Wants(1, 3))


def test_equal_questions_get_one_answer_and_others_their_own():
    shared = board()
    shared.accept("a", body([row(1, 0), row(3, 1, label=1)]))
    shared.accept("b", body([row(4, 3)]))  # so that a alone has class 1
    asked = [("d", "fp32"), ("c", "fp32"), ("c", "fp16"), ("a", "fp16"), ("b", "fp16"), ("d", "fp16")]
    answers = [shared.teach(client, Wants(1, seed, precision=p)) for seed, (client, p) in enumerate(asked)]
    anew = [Board(TASK, shared.store).teach(client, Wants(1, 0, precision=p)) for client, p in asked]
    assert answers == anew
    assert answers[0] is answers[1]
    assert len({*answers}) == 3
