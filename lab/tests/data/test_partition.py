"""Who gets which samples: properties every split has, and the requests that are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repshare.errors import ConfigError
from repshare_lab.data import dirichlet, histogram, shards, uniform


@st.composite
def labels_and_clients(draw):
    labels = draw(st.lists(st.integers(0, 6), min_size=1, max_size=80))
    return np.array(labels), draw(st.integers(1, len(labels)))


def rng(seed=0):
    return np.random.default_rng(seed)


def assert_shared_out(labels, parts, clients, *, all_used=True):
    assert len(parts) == clients
    assert all(len(part) >= 1 for part in parts)
    together = np.concatenate(parts)
    assert len(np.unique(together)) == len(together), "a sample went to two clients"
    assert set(together) <= set(range(len(labels)))
    assert not all_used or len(together) == len(labels)


@given(labels_and_clients(), st.integers(0, 99))
def test_uniform_parts_use_every_sample_and_differ_by_at_most_one(case, seed):
    labels, clients = case
    parts = uniform(labels, clients, rng(seed))
    assert_shared_out(labels, parts, clients)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_uniform_parts_are_random_not_runs_of_neighbours():
    parts = uniform(np.zeros(1000, int), 2, rng())
    assert abs(np.mean(parts[0]) - np.mean(parts[1])) < 50


@given(labels_and_clients(), st.floats(1e-300, 1e100), st.integers(1, 5), st.integers(0, 99))
def test_dirichlet_parts_use_every_sample_and_keep_the_minimum(case, alpha, minimum, seed):
    labels, clients = case
    minimum = min(minimum, len(labels) // clients)
    parts = dirichlet(labels, clients, rng(seed), alpha, minimum)
    assert_shared_out(labels, parts, clients)
    assert min(len(part) for part in parts) >= minimum


def test_a_small_alpha_gives_a_class_to_one_client_and_a_large_one_to_all_alike():
    labels = np.repeat(np.arange(10), 100)
    one = histogram(labels, dirichlet(labels, 5, rng(), 1e-6), 10)
    alike = histogram(labels, dirichlet(labels, 5, rng(), 1e6), 10)
    assert np.mean(one.max(axis=0)) > 95  # a few samples may move to a client left with none
    assert np.abs(alike - 20).max() <= 2


def test_dirichlet_proportions_have_the_spread_the_distribution_has():
    labels, alpha, clients = np.repeat(np.arange(400), 50), 0.5, 4
    share = histogram(labels, dirichlet(labels, clients, rng(), alpha), 400) / 50
    assert share.mean() == pytest.approx(1 / clients)
    variance = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)  # of one coordinate of Dirichlet(α, …, α)
    assert share.var() == pytest.approx(variance, rel=0.1)


@given(st.data(), st.integers(1, 8), st.integers(1, 30), st.integers(0, 99))
def test_shards_give_each_client_exactly_k_classes_and_cover_classes_evenly(data, classes, clients, seed):
    k = data.draw(st.integers(1, classes))
    labels = rng(seed).permutation(np.repeat(np.arange(classes), clients))
    parts = shards(labels, clients, rng(seed), k)
    assert_shared_out(labels, parts, clients, all_used=False)
    held = histogram(labels, parts, classes) > 0
    assert (held.sum(axis=1) == k).all()
    assert np.ptp(held.sum(axis=0)) <= 1


@given(labels_and_clients(), st.integers(1, 7), st.integers(0, 99))
def test_shards_of_scarce_classes_either_have_exactly_k_classes_or_are_impossible(case, k, seed):
    labels, clients = case
    counts = np.unique(labels, return_counts=True)[1]
    if k > len(counts) or np.minimum(counts, clients).sum() < k * clients:
        with pytest.raises(ConfigError):
            shards(labels, clients, rng(seed), k)
    else:
        parts = shards(labels, clients, rng(seed), k)
        assert_shared_out(labels, parts, clients, all_used=False)
        assert all(len(np.unique(labels[part])) == k for part in parts)


def test_a_held_class_is_shared_out_completely_and_in_equal_parts():
    labels = np.repeat(np.arange(10), 100)
    held = histogram(labels, shards(labels, 10, rng(), 2), 10)
    assert held.sum() == 1000
    assert set(np.unique(held)) == {0, 50}


def test_classes_of_one_shard_are_not_always_the_same_neighbours():
    labels = np.repeat(np.arange(10), 100)
    pairs = {tuple(np.unique(labels[part])) for part in shards(labels, 50, rng(), 2)}
    assert len(pairs) > 10


SPLITS = {
    "uniform": lambda labels, clients, generator: uniform(labels, clients, generator),
    "dirichlet": lambda labels, clients, generator: dirichlet(labels, clients, generator, 0.3),
    "shards": lambda labels, clients, generator: shards(labels, clients, generator, 2),
}


@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS.keys())
def test_a_split_depends_on_its_generator_only(split):
    labels = np.repeat(np.arange(10), 50)
    first, again, other = (split(labels, 7, rng(seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS.keys())
@pytest.mark.parametrize("clients", [-1, 0, 21])
def test_every_split_refuses_an_impossible_number_of_clients(split, clients):
    with pytest.raises(ConfigError, match=rf"20 samples .* {clients} clients"):
        split(np.arange(20) % 2, clients, rng())


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (lambda labels: dirichlet(labels, 2, rng(), 0.0), r"alpha must be above 0 .* not 0\.0"),
        (lambda labels: dirichlet(labels, 2, rng(), float("nan")), "alpha .* not nan"),
        (lambda labels: dirichlet(labels, 2, rng(), float("inf")), "alpha .* not inf"),
        (lambda labels: dirichlet(labels, 4, rng(), 1.0, minimum=6), "20 samples .* 4 clients at least 6"),
        (lambda labels: dirichlet(labels, 4, rng(), 1.0, minimum=0), "at least 0"),
        (lambda labels: shards(labels, 2, rng(), 0), r"1…2 .* not 0"),
        (lambda labels: shards(labels, 2, rng(), 3), r"1…2 .* not 3"),
        (lambda labels: shards(labels, 20, rng(), 2), "20 clients with 2 classes each need 40 .* 20 only"),
        (lambda labels: histogram(labels, [np.arange(20)], 1), "from 0 to 1, which 1 classes"),
    ],
)
def test_an_impossible_request_is_refused_with_its_values(request_, message):
    with pytest.raises(ConfigError, match=message):
        request_(np.arange(20) % 2)


def test_the_histogram_says_who_has_what_also_of_a_class_nobody_has():
    labels = np.array([0, 0, 2, 2, 2])
    parts = [np.array([0, 2]), np.array([1, 3, 4])]
    assert histogram(labels, parts, 4).tolist() == [[1, 0, 1, 0], [1, 0, 2, 0]]
