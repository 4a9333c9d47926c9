import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repshare import wire
from repshare.board import Board, Task, Wants
from repshare.errors import ConfigError, Refused
from repshare.representations import Release, nothing, stack
from repshare.stores import MemoryStore

TASK = Task(classes=3, dimension=2)


def board(task=TASK):
    return Board(task, MemoryStore())


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


def test_publishing_twice_changes_nothing():
    both = board()
    both.accept("a", body([row(1, 0)], [row(1, 1)]))
    both.accept("b", body([row(3, 0)], [row(3, 1)]))
    before = dict(both.store._kept)
    both.accept("a", body([row(1, 0)], [row(1, 1)]))
    assert both.store._kept == before


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
        (body([row(1e6, 2)]), "length 1e\\+06.*norm_bound"),
        (body([row(1, 2), row(1, 3)]), "two means of one class"),
    ],
)
def test_a_refused_release_says_why_and_changes_nothing(bad, reason):
    door = board()
    door.accept("a", body([row(1, 0)]))
    before = dict(door.store._kept)
    with pytest.raises(Refused, match=reason):
        door.accept("b", bad)
    assert door.store._kept == before


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
    fresh = board()
    for client in sorted(last):
        fresh.accept(client, body(*last[client]))
    assert busy.store._kept["totals"] == fresh.store._kept["totals"]
    for label in range(3):
        drawn = teacher(busy, "someone else", observations=100).observations.of(label).vectors
        expected = [v for _, observations, _ in last.values() for v, c, _ in observations if c == label]
        assert sorted(map(tuple, drawn)) == sorted(tuple(np.float32(v)) for v in expected)


def test_an_empty_release_withdraws_what_was_shared():
    both = board()
    both.accept("a", body([row(1, 0)], [row(1, 1)]))
    both.accept("a", wire.encode_release(Release(2, nothing(2), nothing(2))))
    assert len(teacher(both, "b").means.labels) == len(teacher(both, "b").observations.labels) == 0


def test_a_store_keeps_nothing_of_a_transaction_that_failed():
    store = MemoryStore()
    with pytest.raises(ValueError, match="stop"), store.transaction() as state:
        state.set("key", b"value")
        assert state.get("key") == b"value"
        raise ValueError("stop")
    with store.transaction() as state:
        assert state.get("key") is None


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
