from typing import get_args

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from repshare.board.aggregation import aggregate, strangeness
from repshare.config import Aggregation


def points(seed, clients, dimension=3):
    return np.random.default_rng(seed).normal(size=(clients, dimension))


@pytest.mark.parametrize("how", get_args(Aggregation))
def test_of_one_client_all_are_that_client(how):
    assert aggregate(np.array([[1.0, -2.0]]), how).tolist() == [1.0, -2.0]


@pytest.mark.parametrize("how", get_args(Aggregation))
def test_of_clients_that_agree_all_are_what_they_say(how):
    assert aggregate(np.full((7, 2), 3.0), how) == pytest.approx([3.0, 3.0])


@pytest.mark.parametrize(("how", "expected"), [("mean", 22.0), ("median", 3.0), ("trimmed", 3.0), ("geometric", 3.0)])
def test_on_a_line(how, expected):
    assert aggregate(np.array([[1.0], [2.0], [3.0], [4.0], [100.0]]), how) == pytest.approx([expected], abs=1e-4)


@given(st.integers(0, 2**32), st.integers(1, 30))
def test_trimmed_is_what_a_plain_loop_leaves_over(seed, clients):
    rows = points(seed, clients)
    cut = min(-(-clients // 5), (clients - 1) // 2)
    loop = [np.mean(sorted(column)[cut : clients - cut]) for column in rows.T]
    assert aggregate(rows, "trimmed") == pytest.approx(loop)


@example(74, 3)  # the coordinates' medians are one of the rows, which is not the median
@given(st.integers(0, 2**32), st.integers(2, 20))
def test_nothing_near_the_geometric_median_has_a_smaller_sum_of_distances(seed, clients):
    rows = points(seed, clients)
    middle = aggregate(rows, "geometric")

    def cost(point):
        return np.linalg.norm(rows - point, axis=1).sum()

    for step in points(seed + 1, 20) * 0.05:
        assert cost(middle) <= 1.001 * cost(middle + step)


@pytest.mark.parametrize("how", ["median", "trimmed", "geometric"])
def test_a_fifth_of_liars_cannot_carry_it_away_however_loud(how):
    rows = points(0, 10)
    rows[:2] = 1e6
    assert np.abs(aggregate(rows, how) - rows[2:].mean(axis=0)).max() < 1.5


def test_strangeness_names_the_one_that_is_far_away():
    rows = points(0, 9)
    rows[4] += 50
    scores = strangeness(rows)
    assert scores.argmax() == 4
    assert scores[4] > 10 > np.delete(scores, 4).max()


def test_clients_that_all_agree_are_not_strange():
    assert strangeness(np.full((5, 2), 3.0)).tolist() == [0] * 5
