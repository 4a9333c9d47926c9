"""An ordinary client at work while others ask for the largest teachers, over many connections at once."""

import multiprocessing
import random
import threading
import time
from collections import Counter
from contextlib import contextmanager

import numpy as np

from repshare.relay.auth import Access, Grant
from repshare.sharing.representations import Release, Representations
from repshare.sharing.wire import encode_release
from repshare.stores import open_database
from soak.fuzz import memory
from soak.load import ask, connect
from support.relays import create_task, start_relay

CLASSES, DIMENSION, OBSERVATIONS = 10, 84, 1000
MOST_MEGABYTES = 400  # far below what docs/relay.md states for all attacks together
MOST_TIMES = 5  # that the slowest hundredth of round trips may become slower


def crowd(folder, *, seconds, connections=190, tokens=1, seed=0):
    """Memory, and how long a client's round trips take, before and while so many connections ask for all there is."""
    rng = np.random.default_rng(seed)
    names = ["alice", "bob", *(f"mallory{number}" for number in range(tokens))]
    given = invite_all(folder, names)
    with start_relay(folder, cold=True) as relay:
        assert relay.publish("bob", make_large(rng), given["bob"], "t").status_code == 200
        connection = connect(relay.url)
        before = work(connection, given["alice"], seconds / 2, rng)
        attackers = [given[names[2 + number % tokens]] for number in range(connections)]
        with attack(relay.url, attackers) as statuses:
            during = work(connection, given["alice"], seconds, rng)
        peak = memory(relay, "VmHWM")
        connection.close()
    assert statuses[200], statuses
    assert set(statuses) <= {200, 429, 503}, statuses
    assert peak < MOST_MEGABYTES, f"the relay took {peak:.0f} MB"
    slow, quiet = (float(np.percentile(of, 99)) for of in (during, before))
    assert slow < MOST_TIMES * quiet, f"p99 {1000 * slow:.1f} ms under attack, {1000 * quiet:.1f} ms before"
    asked = {f"large teachers answered {status}": statuses[status] for status in sorted(statuses)}
    figures = {"p50": (before, 50), "p99": (before, 99), "p50 under attack": (during, 50)}
    return {
        "connections": connections, "tokens": tokens, **asked, "most memory [MB]": round(peak),
        "round trips": len(during),
        **{f"{name} [ms]": round(1000 * float(np.percentile(*of)), 1) for name, of in figures.items()},
        "p99 under attack [ms]": round(1000 * slow, 1), "times slower (p99)": round(slow / quiet, 1),
    }  # fmt: skip


def invite_all(folder, names):
    """A token for each of these, in a new task."""
    create_task(folder, "t", "--classes", CLASSES, "--dimension", DIMENSION)
    database = open_database(str(folder / "relay.db"))
    try:
        return {name: Access(database).invite(Grant("client", name, "t")) for name in names}
    finally:
        database.close()


def work(connection, token, seconds, rng):
    """Publish and collect for so long; how long each round trip took."""
    took, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        begun = time.monotonic()
        work.round += 1
        for method, path, body in (
            ("PUT", "clients/alice/release", make_large(rng, 1, work.round)),
            ("GET", "teacher", None),
        ):
            status, answer = ask(connection, method, f"/v1/tasks/t/{path}", body, Authorization=f"Bearer {token}")
            assert status == 200, answer
        took.append(time.monotonic() - begun)
        time.sleep(0.025)  # below the rate
    return took


work.round = 0


def make_large(rng, observations=OBSERVATIONS, round=1):
    """A release with so many observations of each class."""
    labels = np.repeat(np.arange(CLASSES), observations)
    rows = [
        Representations(rng.normal(size=(len(of), DIMENSION)).astype(np.float32), of, np.full(len(of), 20))
        for of in (np.arange(CLASSES), labels)
    ]
    return encode_release(Release(round, *rows))


@contextmanager
def attack(url, tokens):
    """A connection for each of these tokens asks for all there is, for the length of a block: the statuses."""
    context, statuses = multiprocessing.get_context("spawn"), Counter()
    ours, theirs = context.Pipe()
    attacker = context.Process(target=_attack, args=(url, tokens, theirs), daemon=True)
    attacker.start()
    try:
        assert ours.poll(60), "the attackers did not come"
        ours.recv()
        yield statuses
        ours.send("stop")
        assert ours.poll(60), "the attackers did not end"
        statuses.update(ours.recv())
    finally:
        attacker.kill()
        attacker.join()


def _attack(url, tokens, told):
    statuses, over = Counter(), threading.Event()

    def ask_on(token):
        connection = connect(url)
        while not over.is_set():
            path = f"/v1/tasks/t/teacher?observations={OBSERVATIONS}&seed={random.getrandbits(32)}"
            status, _ = ask(connection, "GET", path, Authorization=f"Bearer {token}")
            statuses[status] += 1
            over.wait(0 if status == 200 else random.uniform(1, 3))  # as Retry-After asks
        connection.close()

    threads = [threading.Thread(target=ask_on, args=(token,)) for token in tokens]
    for thread in threads:
        thread.start()
    told.send("ready")
    told.recv()
    over.set()
    for thread in threads:
        thread.join()
    told.send(statuses)
