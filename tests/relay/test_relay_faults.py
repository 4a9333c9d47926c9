"""Short runs of what `make soak` does for long: faults and crowds, and what is there afterwards.

Each run checks itself (see the folder `soak`); here are its size, and that what it is about has happened.
"""

import pytest

from soak import faults
from soak.abuse import abuse


def test_what_a_relay_acknowledged_survives_kill_9(tmp_path):
    assert faults.kill_relay(tmp_path, kills=4)["acknowledged"] > 50


def test_what_a_relay_acknowledged_survives_kill_9_of_its_redis(tmp_path):
    told = faults.kill_redis(tmp_path, kills=3)
    assert told["acknowledged"] > 50
    assert told["answered 503"] > 0


@pytest.mark.parametrize(("relays", "redis"), [(2, True), (3, True), (2, False)])
def test_relays_over_one_store_lose_no_update_and_tear_no_teacher(tmp_path, relays, redis):
    assert faults.share(tmp_path, relays=relays, redis=redis, seconds=2)["requests"] > 50


def test_a_stop_under_load_cuts_no_answer_and_loses_nothing(tmp_path):
    assert faults.stop_gracefully(tmp_path, stops=2)["acknowledged"] > 20


def test_clients_that_fall_silent_are_forgotten_and_others_never(tmp_path):
    assert faults.expire(tmp_path, turns=1)["forgotten"] == 20


def test_on_a_full_disk_nothing_acknowledged_is_lost_and_room_is_all_it_needs(tmp_path):
    assert faults.fill_disk(tmp_path, times=2)["answered 503"] > 0


def test_abuse_does_not_stop_others(tmp_path):
    assert abuse(tmp_path, seconds=6)["round trips"] > 20
