"""Bodies that hypothesis makes up: each is refused with a reason, nothing changes, and memory stays bounded."""

import queue
import random
import re
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

import hypothesis

from soak.bodies import KINDS, bad_bodies, real
from soak.load import CLASSES, DIMENSION, ask, connect
from support.relays import create_task, invite, start_relay

MOST_MEGABYTES = 50
BETWEEN = 1_000_000  # the round that alice has published
AT_ONCE = 5000  # bodies that hypothesis makes up in one go: it remembers them all
CONNECTIONS = 8
LONGEST_REASON = 3000  # bytes: a reason is not as long as what it refuses
SETTINGS = hypothesis.settings(
    database=None,
    deadline=None,
    phases=[hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
)
NOTES = re.compile(r"check/")  # of the check that the store works


def fuzz(folder, *, bodies, seed=0):
    """Send so many bodies that are no release of the task, over some connections at once."""
    create_task(folder, "digits", "--classes", CLASSES, "--dimension", DIMENSION, "--minimum-count", 1)
    tokens = {name: invite(folder, name, "--task", "digits") for name in ("alice", "bob")}
    rng = random.Random(seed)
    with start_relay(folder, "--rate", 0, cold=True) as relay:
        for name in ("alice", "bob"):
            assert relay.publish(name, real(rng, BETWEEN), tokens[name]).status_code == 200
        before, megabytes = keep(folder), memory(relay, "VmRSS")
        statuses, made = send(relay.url, tokens, bodies, seed)
        grown = memory(relay, "VmHWM") - megabytes
        assert keep(folder) == before, "a refused body changed something"
        assert relay.publish("alice", real(rng), tokens["alice"]).status_code == 200
        assert not [line for line in relay.log() if line["level"] == "error"]
    assert grown < MOST_MEGABYTES, f"the relay grew by {grown:.0f} MB"
    assert sum(made.values()) >= bodies, f"only {sum(made.values())} bodies were made"
    assert set(made) == {kind.__name__ for kind in KINDS}
    answers = {f"answered {status}": statuses[status] for status in sorted(statuses)}
    return {
        "bodies": sum(made.values()), "kinds": len(made), "fewest of a kind": min(made.values()), **answers, "5xx": 0,
        "changes": 0, "memory grew by [MB]": round(grown),
    }  # fmt: skip


def send(url, tokens, bodies, seed):
    """Send bodies, and count the answers' statuses and the bodies' kinds."""
    statuses, made, wrong = Counter(), Counter(), []
    waiting = queue.Queue(4 * CONNECTIONS)

    def work():
        connection = connect(url)
        while (pair := waiting.get()) is not None:
            kind, body = pair
            path, token = f"/v1/tasks/digits/clients/{body.client}/release", f"Bearer {tokens['alice']}"
            status, answer = ask(connection, "PUT", path, body.content, Authorization=token)
            statuses[status] += 1
            if status not in body.statuses or (status != 200 and len(answer) > LONGEST_REASON):
                wrong.append((kind, path, body.content[:300], status, answer[:300]))
        connection.close()

    workers = [threading.Thread(target=work) for _ in range(CONNECTIONS)]
    for worker in workers:
        worker.start()
    try:
        for start in range(0, bodies, AT_ONCE):
            make_up(min(AT_ONCE, bodies - start), seed + start, made, waiting.put)
    finally:
        for _ in workers:
            waiting.put(None)
        for worker in workers:
            worker.join()
    assert not wrong, wrong[:5]
    return statuses, made


def make_up(count, seed, made, give):
    """Let hypothesis make up so many bodies, and give each to this."""

    @hypothesis.seed(seed)
    @hypothesis.settings(SETTINGS, max_examples=count)
    @hypothesis.given(bad_bodies(KINDS))
    def make(pair):
        made[pair[0]] += 1
        give(pair)

    make()


def keep(folder):
    """All that the relay keeps, apart from who was seen when."""
    with closing(sqlite3.connect(folder / "relay.db")) as connection:
        rows = connection.execute("SELECT key, value FROM kept").fetchall()
    return {key: value for key, value in rows if not NOTES.match(key)}


def memory(relay, what):
    """A process's memory now (VmRSS) or at most (VmHWM), in MB."""
    status = Path(f"/proc/{relay.process.pid}/status").read_text()
    return int(re.search(rf"{what}:\s+(\d+)", status).group(1)) / 1024
