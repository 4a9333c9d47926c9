"""Short runs of what `make soak` does for long: bad bodies, and all that the API's description lets one ask."""

import numpy as np
import pytest

from repshare.errors import Malformed, Refused
from repshare.sharing.representations import Release, Representations
from repshare.sharing.task import Task
from repshare.sharing.wire import decode_release, encode_release
from soak.bodies import frame
from soak.fuzz import fuzz
from soak.schema import explore


def test_bodies_that_are_no_release_are_refused_and_change_nothing(tmp_path):
    assert fuzz(tmp_path, bodies=500)["bodies"] == 500


def test_the_api_does_as_it_says_to_those_who_may_only_look(tmp_path):
    asked = explore(tmp_path, examples=2, roles=("viewer",), names=("known",))
    assert asked["viewer, known names"] > 100


def test_a_long_header_is_not_even_parsed():
    with pytest.raises(Malformed, match="a header of 20,000,000 bytes"):
        decode_release(frame(" " * 20_000_000, b""))


def test_a_release_has_a_bounded_number_of_observations():
    rows = Representations(np.zeros((1001, 2), np.float32), np.zeros(1001, np.int64), np.ones(1001, np.int64))
    task, none = Task(2, 2), rows.part(slice(0))
    task.check(decode_release(encode_release(Release(1, none, rows.part(slice(1000))))))
    with pytest.raises(Refused, match="1,001 observations of one class; at most 1,000"):
        task.check(Release(1, none, rows))
