"""The API is what its own description says, whatever it is asked."""

import os

import pytest

from soak.schema import ask_all, explore
from support.relays import start_open_relay

EXAMPLES = int(os.environ.get("REPSHARE_SCHEMA_EXAMPLES", "5"))


def test_an_open_relay_does_as_it_says(tmp_path):
    with start_open_relay(tmp_path, "--rate", 0) as relay:
        assert ask_all(relay, None, EXAMPLES, seed=1) > 0
        assert not [line for line in relay.log() if line["level"] == "error"]


@pytest.mark.parametrize("role", ["client", "viewer"])
def test_a_relay_with_tokens_does_as_it_says(tmp_path, role):
    assert explore(tmp_path, examples=EXAMPLES, roles=[role], names=["any"])["5xx"] == 0
