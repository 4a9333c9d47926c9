"""Short runs of what `make soak` does for long: bad bodies, and bad queries."""

import random
from urllib.parse import quote

import numpy as np
import pytest

from repshare.errors import Malformed, Refused
from repshare.relay.app import ROUTES
from repshare.sharing.representations import Release, Representations
from repshare.sharing.task import Task
from repshare.sharing.wire import decode_release, encode_release
from soak.bodies import frame
from soak.fuzz import fuzz
from support.relays import start_open_relay


def test_bodies_that_are_no_release_are_refused_and_change_nothing(tmp_path):
    assert fuzz(tmp_path, bodies=500)["bodies"] == 500


def test_no_query_and_no_path_makes_a_relay_fail(tmp_path):
    """Each route, with values at random for all that any of them reads."""
    values = ["", "alice", "-1", "0", "1e9", "nan", "9" * 30, "é\0", "a/b", "x" * 300]
    names = ["client", "observations", "seed", "precision", "since", "members", "patience", "key", "call", "company"]
    rng = random.Random(0)
    with start_open_relay(tmp_path, "--rate", 0) as relay:
        for path, ways in [*ROUTES.items()] * 10:
            given = {name: quote(rng.choice(values), safe="") or "_" for name in ("client", "number", "step")}
            query = {name: rng.choice(values) for name in rng.sample(names, 3)} | {"wait": 0}
            task = rng.choice(["digits", "nothing"])
            answer = relay.ask(rng.choice([*ways]), path.format(task=task, **given), params=query)
            assert answer.status_code < 500, (path, given, query, answer.text)
        assert not [line for line in relay.log() if line["level"] == "error"]


def test_a_long_header_is_not_even_parsed():
    with pytest.raises(Malformed, match="a header of 20,000,000 bytes"):
        decode_release(frame(" " * 20_000_000, b""))


def test_a_release_has_a_bounded_number_of_observations():
    rows = Representations(np.zeros((1001, 2), np.float32), np.zeros(1001, np.int64), np.ones(1001, np.int64))
    task, none = Task(2, 2), rows.part(slice(0))
    task.check(decode_release(encode_release(Release(1, none, rows.part(slice(1000))))))
    with pytest.raises(Refused, match="1,001 observations of one class; at most 1,000"):
        task.check(Release(1, none, rows))
