import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repshare.config import Policy
from repshare.sharing.representations import class_means, make_release, nothing, observe

VECTORS = np.array([[1, 0], [3, 0], [0, 5], [2, 2], [4, 4], [6, 6]], np.float32)
LABELS = np.array([0, 0, 1, 3, 3, 3])


def release(vectors=VECTORS, labels=LABELS, seed=0, **changes):
    policy = Policy(**{"n_avg": 2, "minimum_count": 1} | changes)
    return make_release(vectors, labels, np.random.default_rng(seed), policy, 1)


def test_a_class_mean_is_the_mean_of_its_samples_and_an_absent_class_has_no_row():
    means = class_means(VECTORS, LABELS)
    assert means.labels.tolist() == [0, 1, 3]
    assert means.counts.tolist() == [2, 1, 3]
    assert means.vectors.tolist() == [[2, 0], [0, 5], [4, 4]]


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 5))
def test_class_means_equal_a_plain_loop(seed, n, classes):
    rng = np.random.default_rng(seed)
    vectors, labels = rng.normal(size=(n, 3)).astype(np.float32), rng.integers(0, classes, n)
    means = class_means(vectors, labels)
    for vector, label, count in zip(*means, strict=True):
        members = [v for v, own in zip(vectors, labels, strict=True) if own == label]
        assert count == len(members)
        assert vector == pytest.approx([sum(float(v[j]) for v in members) / len(members) for j in range(3)], abs=1e-6)
    assert set(means.labels) == set(labels)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(0, 3))
def test_an_observation_is_the_mean_of_n_avg_different_samples_of_its_class(seed, n_avg, repeats):
    # Powers of two: a sum tells which samples are in it, so the oracle can read the mean back.
    vectors, labels = np.array([[1], [2], [4], [8], [16], [32]], np.float32), np.array([0, 0, 0, 0, 1, 1])
    observations = observe(vectors, labels, n_avg, repeats, np.random.default_rng(seed))
    assert observations.labels.tolist() == [0] * repeats + [1] * repeats
    for vector, label, count in zip(*observations, strict=True):
        members = round(float(vector[0]) * count)
        assert bin(members).count("1") == count == min(n_avg, 4 if label == 0 else 2)
        assert members & (0b110000 if label == 0 else 0b001111) == 0


def test_observations_follow_their_generator():
    draws = [observe(VECTORS, LABELS, 2, 3, np.random.default_rng(seed)).vectors.tolist() for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def test_one_sample_is_its_own_mean():
    assert class_means(VECTORS[:1], LABELS[:1]).vectors.tolist() == [[1, 0]]


def test_no_sample_gives_no_row():
    empty = release(VECTORS[:0], LABELS[:0])
    assert len(empty.means.labels) == len(empty.observations.labels) == 0
    assert empty.means.vectors.shape == nothing(2).vectors.shape == (0, 2)


def test_averages_over_fewer_samples_than_the_minimum_are_never_made():
    made = release(minimum_count=2)
    assert made.means.labels.tolist() == made.observations.labels.tolist() == [0, 3]
    assert release(minimum_count=3, n_avg=2).observations.labels.tolist() == []


def test_only_the_allowed_classes_and_samples_take_part():
    made = release(share_classes=(0, 3), share_samples=(0, 2, 3, 4))
    assert made.means.labels.tolist() == [0, 3]
    assert made.means.vectors.tolist() == [[1, 0], [3, 3]]
    assert made.means.counts.tolist() == [1, 2]
    assert made.observations.vectors.tolist() == [[1, 0], [3, 3]]
