"""Parts of a common classifier of the usual size, through a real relay on SQLite."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from repshare.board import Board, Wants
from repshare.relay.tasks import Tasks
from repshare.sharing.parts import SHRINKAGES, as_release
from repshare.sharing.task import make_space_task
from repshare.sharing.wire import encode_release
from repshare.stores import open_database
from support.parts import make_part
from support.relays import invite, start_relay

CLASSES, DIMENSION, SPACE = 10, 1152, "a space"
NAMES = [f"client{number}" for number in range(8)]
TASK = make_space_task(CLASSES, DIMENSION, SPACE)


def make_body(client, round):
    rng, count = np.random.default_rng([NAMES.index(client), round]), 6 + round
    vectors = rng.normal(size=(count, DIMENSION)).astype(np.float32)
    vectors *= DIMENSION**0.5 / np.linalg.norm(vectors, axis=1, keepdims=True)
    weights, hits = rng.uniform(-1, 1, (count, CLASSES)), rng.random((count, len(SHRINKAGES))) < 0.5
    part = make_part(vectors, weights, rng.integers(CLASSES, size=count), hits)
    return encode_release(as_release(part, round, SPACE), "fp16")


def test_totals_at_a_relay_have_the_bits_of_the_last_parts_added_up(tmp_path):
    database = open_database(str(tmp_path / "relay.db"))
    Tasks(database).create("t", TASK)
    tokens = {name: invite(tmp_path, name, "--task", "t") for name in NAMES}
    with start_relay(tmp_path) as relay, ThreadPoolExecutor(len(NAMES)) as clients:
        for round in (1, 2):  # the second parts replace the first, which have other counts

            def publish(name, round=round):
                return relay.publish(name, make_body(name, round), tokens[name], "t").status_code

            assert set(clients.map(publish, NAMES)) == {200}
        assert relay.ask("DELETE", f"/v1/tasks/t/clients/{NAMES[0]}/release", tokens[NAMES[0]]).is_success
        wants = {"observations": 1, "seed": 0, "precision": "fp16"}
        answers = clients.map(lambda name: relay.teacher(tokens[name], "t", **wants).content, NAMES)
        here = Board(TASK)
        for name in NAMES[1:]:
            here.accept(name, make_body(name, 2))
        assert set(answers) == {here.teach("anyone", Wants(1, 0, precision="fp16"))}
    kept = Tasks(database).get("t").board.store.items()
    assert kept["totals"] == here.store.items()["totals"]
    database.close()
