import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repshare.sharing import fixed_point

TERMS = st.lists(st.tuples(st.floats(-1000, 1000, width=32), st.integers(1, 1000)), min_size=1, max_size=20)


@given(TERMS, st.randoms())
def test_the_order_of_terms_never_changes_a_sum(terms, random):
    shuffled = random.sample(terms, len(terms))
    weigh = fixed_point.weigh
    totals = [sum(weigh(np.array([value]), weight) for value, weight in order) for order in (terms, shuffled)]
    assert totals[0].tobytes() == totals[1].tobytes()


@given(TERMS, st.floats(-1000, 1000, width=32), st.integers(1, 1000))
def test_what_is_added_and_taken_away_leaves_no_trace(terms, value, weight):
    before = sum(fixed_point.weigh(np.array([v]), w) for v, w in terms)
    term = fixed_point.weigh(np.array([value]), weight)
    assert (before + term - term == before).all()


@given(TERMS)
def test_the_mean_is_the_weighted_mean(terms):
    weight = sum(w for _, w in terms)
    total = sum(fixed_point.weigh(np.array([v]), w) for v, w in terms)
    assert float(fixed_point.mean(total, weight)[0]) == pytest.approx(sum(v * w for v, w in terms) / weight, abs=1e-6)


def test_what_does_not_fit_is_told_apart():
    assert fixed_point.fits(1.0, 2**29)
    assert not fixed_point.fits(1.0, 2**31)
    assert not fixed_point.fits(float("inf"), 1)
    assert not fixed_point.fits(float("nan"), 1)
    assert not fixed_point.fits(1.0, 2**30)
    assert not fixed_point.overflows(np.array([2**61, -(2**61)]))
    assert fixed_point.overflows(np.array([0, -(2**62) - 2**40]))
