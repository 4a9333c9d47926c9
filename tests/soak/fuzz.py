"""Bodies that hypothesis makes up: each is refused with a reason, nothing changes, and memory stays bounded."""

import random
import re
from collections import Counter
from pathlib import Path

import hypothesis

from relays import create_task, invite, start_relay
from repshare.relay.tasks import Tasks
from repshare.stores import open_database
from soak.bodies import KINDS, bad_bodies, real
from soak.load import CLASSES, DIMENSION, ask, connect

MOST_MEGABYTES = 50
BETWEEN = 1_000_000  # the round that alice has published


def fuzz(folder, *, bodies, seed=0):
    """Send so many bodies that are no release of the task."""
    create_task(folder, "digits", "--classes", CLASSES, "--dimension", DIMENSION, "--min-count", 1)
    tokens = {name: invite(folder, name, "--task", "digits") for name in ("alice", "bob")}
    rng = random.Random(seed)
    with start_relay(folder, "--rate", 0, cold=True) as relay:
        connection = connect(relay.url)
        for name, token in tokens.items():
            assert relay.publish(name, real(rng, BETWEEN), token).status_code == 200
        before, megabytes = keep(folder), memory(relay, "VmRSS")
        statuses, kinds = send(connection, tokens["alice"], bodies, seed)
        grown = memory(relay, "VmHWM") - megabytes
        connection.close()
        assert keep(folder) == before, "a refused body changed something"
        assert relay.publish("alice", real(rng), tokens["alice"]).status_code == 200
        assert not [line for line in relay.log() if line["level"] == "error"]
    assert grown < MOST_MEGABYTES, f"the relay grew by {grown:.0f} MB"
    assert sum(kinds.values()) >= bodies, f"only {sum(kinds.values())} bodies were made"
    assert set(kinds) == {kind.__name__ for kind in KINDS}
    answers = {f"answered {status}": statuses[status] for status in sorted(statuses)}
    return {"bodies": sum(kinds.values()), "kinds": len(kinds), "fewest of a kind": min(kinds.values()), **answers,
            "changes": 0, "memory grew by [MB]": round(grown)}  # fmt: skip


def send(connection, token, bodies, seed):
    """Send bodies, and count the answers' statuses and the bodies' kinds."""
    statuses, kinds = Counter(), Counter()

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=bodies, database=None, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(bad_bodies())
    def try_one(made):
        kind, body = made
        path = f"/v1/tasks/digits/clients/{body.client}/release"
        status, answer = ask(connection, "PUT", path, body.content, Authorization=f"Bearer {token}")
        assert status in body.statuses, (kind, status, answer[:500])
        assert len(answer) < 3000, "a reason that is as long as what it refuses"
        statuses[status] += 1
        kinds[kind] += 1

    try_one()
    return statuses, kinds


def keep(folder):
    """All that the board keeps."""
    database = open_database(str(folder / "relay.db"))
    try:
        return dict(Tasks(database).get("digits").board.store.items())
    finally:
        database.close()


def memory(relay, what):
    """A process's memory now (VmRSS) or at most (VmHWM), in MB."""
    status = Path(f"/proc/{relay.process.pid}/status").read_text()
    return int(re.search(rf"{what}:\s+(\d+)", status).group(1)) / 1024
