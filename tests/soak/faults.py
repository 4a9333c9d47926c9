"""Processes that are killed or stopped under load, and what is there afterwards."""

import random
import signal
import time
from contextlib import ExitStack, contextmanager

from parties import eventually
from redises import Redis
from relays import Relay
from soak.audit import audit
from soak.load import TASK, Load, ask, connect, make_release


def kill_relay(folder, *, kills, clients=48, threads=6, seed=0):
    """SIGKILL a relay on SQLite at random moments."""
    rng, under_way = random.Random(seed), 0
    with ExitStack() as stack:
        relay = start(stack, folder)
        with Load([relay.url], clients=clients, threads=threads, seed=seed) as load:
            for _ in range(kills):
                time.sleep(rng.uniform(0.02, 0.5))
                broken = load.counts["broken"] + load.counts["cut"]
                relay.stop(signal.SIGKILL)
                load.pause()
                under_way += load.counts["broken"] + load.counts["cut"] > broken
                relay = start(stack, folder)
                load.check(audit(folder / "relay.db"))
                load.resume(relay.url)
        load.check(audit(folder / "relay.db"))
    assert not load.wrong, load.wrong[:3]
    assert under_way >= 0.8 * kills, "hardly any kill came while a request was under way"
    return {
        "kills": kills, "with a request under way": under_way, "acknowledged": load.counts[200], "lost": 0,
    }  # fmt: skip


def kill_redis(folder, *, kills, clients=48, threads=6, seed=0):
    """SIGKILL the Redis under a relay at random moments; the relay says so, and goes on when Redis is back."""
    rng, slowest, done_anyway = random.Random(seed), 0.0, 0
    with own_redis(folder) as redis, ExitStack() as stack:
        relay = start(stack, folder, "--redis", redis.url)
        probe = connect(relay.url)
        stack.callback(probe.close)
        with Load([relay.url], clients=clients, threads=threads, seed=seed) as load:
            for number in range(kills):
                time.sleep(rng.uniform(0.02, 0.5))
                away = load.counts[503]
                redis.kill()
                status, _ = ask(probe, "PUT", "/v1/tasks/digits/clients/probe/release", make_release(number, rng))
                assert status == 503, status
                eventually(lambda: load.counts[503] > away, "clients are told that the store is away")  # noqa: B023
                load.pause()
                begun = time.monotonic()
                redis.start()
                eventually(lambda: ask(probe, "GET", "/healthz")[0] == 200, "the relay is well again")
                slowest = max(slowest, time.monotonic() - begun)
                kept = audit(redis.url)
                load.check(kept)
                done_anyway += sum(kept.get(p.name) != p.acknowledged for p in load.parties)
                load.resume()
        load.check(audit(redis.url))
    assert not load.wrong, load.wrong[:3]
    assert load.counts["broken"] + load.counts["cut"] + load.counts["refused"] == 0  # the relay itself was always there
    return {
        "kills": kills, "acknowledged": load.counts[200], "answered 503": load.counts[503],
        "done though answered 503": done_anyway, "lost": 0, "slowest recovery [s]": round(slowest, 1),
    }  # fmt: skip


def share(folder, *, relays, seconds, redis=True, clients=48, threads=9, seed=0):
    """Several relays over one Redis, or one SQLite file: no update is lost, and no teacher is torn."""
    with ExitStack() as stack:
        place = ("--redis", stack.enter_context(own_redis(folder)).url) if redis else ("--db", folder / "relay.db")
        urls = [start(stack, folder / str(number), *place).url for number in range(relays)]
        with Load(urls, clients=clients, threads=threads, seed=seed, collects=0.3) as load:
            time.sleep(seconds)
        kept = audit(place[1])
    assert not load.wrong, load.wrong[:3]
    assert set(load.counts) == {200}, load.counts
    assert all(kept.get(party.name) == party.acknowledged for party in load.parties)
    return {
        "relays": relays,
        "store": "Redis" if redis else "SQLite",
        "requests": load.counts[200],
        "lost": 0,
        "torn": 0,
    }


def stop_gracefully(folder, *, stops, clients=48, threads=6, seed=0):
    """SIGTERM under load: whole answers or none, and what was not answered was not done."""
    rng, unanswered = random.Random(seed), 0
    with ExitStack() as stack:
        relay = start(stack, folder)
        with Load([relay.url], clients=clients, threads=threads, seed=seed) as load:
            for _ in range(stops):
                time.sleep(rng.uniform(0.05, 0.5))
                assert relay.stop(signal.SIGTERM) == 0
                load.pause()
                kept = audit(folder / "relay.db")
                assert all(kept.get(party.name) == party.acknowledged for party in load.parties)
                relay = start(stack, folder)
                load.resume(relay.url)
            unanswered = load.counts["broken"]
    assert not load.wrong, load.wrong[:3]
    assert load.counts["cut"] == 0, load.counts
    assert unanswered <= stops, "requests that had been sent were not answered"  # a listener that closes may drop one
    assert load.counts["refused"] >= stops, "no stop came under load"
    return {
        "stops": stops, "acknowledged": load.counts[200], "connections refused": load.counts["refused"],
        "connections closed before the request was read": unanswered, "cut answers": 0, "lost": 0,
    }  # fmt: skip


def expire(folder, *, turns, max_age=1.0, clients=40, threads=4, seed=0):
    """Clients take turns in falling silent: the silent are forgotten, the others never."""
    rng, forgotten, slowest = random.Random(seed), 0, 0.0
    with ExitStack() as stack:
        relay = start(stack, folder, "--max-age", max_age)
        calm = {"withdrawals": 0.0, "pause_seconds": 0.005}
        with Load([relay.url], clients=clients, threads=threads, seed=seed, **calm) as load:
            for _ in range(turns):
                load.silent = set()
                begun = time.monotonic()
                eventually(lambda: all(p.acknowledged_at > begun for p in load.parties), "all publish")  # noqa: B023
                load.silent = set(rng.sample([party.name for party in load.parties], clients // 2))
                begun = time.monotonic()
                eventually(lambda: not load.silent & seen(relay, load, max_age), "the silent are forgotten")
                slowest, forgotten = max(slowest, time.monotonic() - begun), forgotten + len(load.silent)
            load.pause()
            kept = audit(folder / "relay.db")
            assert not load.silent & kept.keys()
    assert not load.wrong, load.wrong[:3]
    assert set(load.counts) == {200}, load.counts
    return {
        "max-age [s]": max_age, "requests": load.counts[200], "forgotten": forgotten,
        "slowest to be forgotten [s]": round(slowest, 1), "forgotten though they published": 0,
    }  # fmt: skip


def seen(relay, load, max_age):
    """The clients that the relay knows now, among them all that published lately."""
    lately = {party.name for party in load.parties if time.monotonic() - party.acknowledged_at < max_age - 0.5}
    # Those who stop just now may be forgotten while the relay is asked: half a second is left for that.
    names = {member["name"] for member in relay.ask("GET", "/v1/tasks/digits/status?limit=1000").json()["shown"]}
    assert lately <= names | load.silent, lately - names
    return names


@contextmanager
def own_redis(folder):
    """A Redis for one run."""
    (folder / "redis").mkdir()
    server = Redis(folder / "redis")
    try:
        yield server
    finally:
        server.kill()


def start(stack, folder, *options):
    """A relay that is stopped at the end, if it is still there."""
    folder.mkdir(exist_ok=True)
    relay = Relay(folder, *options, *TASK)
    stack.callback(relay.stop)
    stack.callback(relay.http.close)
    return relay
