"""fp16 and back: NumPy's own conversions are the oracle."""

import sys

import numpy as np
import pytest
import torch

from repshare.sharing.half_precision import encode_halves, widen

EVERY = np.arange(1 << 16, dtype=np.uint16).view(np.float16)  # of which there are no more


@pytest.fixture
def numbers():
    """All finite halves, what lies between two of them, both neighbours of each, and a million others."""
    with np.errstate(all="ignore"):
        finite = np.sort(EVERY[np.isfinite(EVERY)].astype(np.float64))
        exact = np.concatenate([finite, (finite[:-1] + finite[1:]) / 2]).astype(np.float32)
        beside = [np.nextafter(exact, np.float32(towards)) for towards in (-np.inf, np.inf)]
        others = np.arange(0, 1 << 32, 4001, dtype=np.int64).astype(np.uint32).view(np.float32)
        together = np.concatenate([exact, *beside, others])
        return together[np.abs(together) <= 65504]


@pytest.fixture(params=["NumPy alone", "PyTorch"])
def loaded(request, monkeypatch):
    """A process that has loaded PyTorch, or has not."""
    if request.param == "PyTorch":
        monkeypatch.setitem(sys.modules, "torch", torch)
    else:
        monkeypatch.delitem(sys.modules, "torch")


@pytest.mark.usefixtures("loaded")
def test_every_number_becomes_the_half_that_numpy_makes_of_it(numbers):
    with np.errstate(all="ignore"):
        expected = numbers.astype(np.float16)
    assert np.array_equal(encode_halves(numbers).view(np.uint16), expected.view(np.uint16))
    assert encode_halves(numbers.reshape(-1, 1)[::2]).shape == (len(numbers[::2]), 1)
    assert encode_halves(numbers[::-3]).tobytes() == expected[::-3].tobytes()
    assert encode_halves(np.zeros((0, 3), np.float32)).shape == (0, 3)
    numbers.flags.writeable = False
    assert np.array_equal(encode_halves(numbers).view(np.uint16), expected.view(np.uint16))


def test_every_half_becomes_the_number_that_it_is():
    with np.errstate(all="ignore"):
        expected = EVERY.astype(np.float32)
    assert np.array_equal(widen(EVERY).view(np.uint32), expected.view(np.uint32))


def test_a_number_that_is_too_large_is_still_reported():
    with pytest.warns(RuntimeWarning, match="overflow"):
        assert encode_halves(np.array([1e6], np.float32)).tolist() == [np.inf]
    assert np.isnan(encode_halves(np.array([np.nan, 1.0], np.float32))).tolist() == [True, False]
