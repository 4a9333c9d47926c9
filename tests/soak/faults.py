"""Processes that are killed or stopped under load, and what is there afterwards."""

import random
import resource
import signal
import time
from contextlib import ExitStack, closing, contextmanager
from functools import partial

from repshare.relay.tasks import Tasks
from repshare.stores import open_database
from soak.audit import audit
from soak.load import TASK, Load, ask, connect, make_release
from support.processes import eventually
from support.redis_servers import Redis
from support.relays import Relay


def kill_relay(folder, *, kills, clients=48, threads=6, seed=0):
    """SIGKILL a relay on SQLite at random moments."""
    rng, under_way = random.Random(seed), 0
    with ExitStack() as stack:
        begin = partial(start, stack, folder)
        relay = begin()
        with Load([relay.url], clients=clients, threads=threads, seed=seed) as load:
            for _ in range(kills):
                time.sleep(rng.uniform(0.02, 0.5))
                broken = load.counts["broken"] + load.counts["cut"]
                relay.stop(signal.SIGKILL)
                load.pause()
                under_way += load.counts["broken"] + load.counts["cut"] > broken
                relay = begin()
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
        relay = start(stack, folder, "--db", redis.url)
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


def fill_disk(folder, *, times, clients=48, threads=6, seed=0):
    """No room on the disk under a relay on SQLite, at random moments and in the middle of files; then there is again.

    Every other time, the relay is killed before there is.
    """
    rng, done_anyway = random.Random(seed), 0
    with ExitStack() as stack:
        begin = partial(start, stack, folder)
        relay = begin()
        with Load([relay.url], clients=clients, threads=threads, seed=seed) as load:
            for number in range(times):
                time.sleep(rng.uniform(0.02, 0.5))
                refused = load.counts[503]
                limit_files(relay, rng.randrange((folder / "relay.db-wal").stat().st_size))
                eventually(lambda: load.counts[503] > refused, "clients are told that the store is away")  # noqa: B023
                load.pause()
                if number % 2:
                    relay.stop(signal.SIGKILL)
                    relay = begin()
                limit_files(relay, resource.RLIM_INFINITY)
                eventually(lambda: relay.ask("GET", "/healthz").status_code == 200, "the relay is well")  # noqa: B023
                kept = audit(folder / "relay.db")
                load.check(kept)
                done_anyway += sum(kept.get(p.name) != p.acknowledged for p in load.parties)
                load.resume(relay.url)
        load.check(audit(folder / "relay.db"))
    assert not load.wrong, load.wrong[:3]
    return {
        "times": times, "killed meanwhile": times // 2, "acknowledged": load.counts[200],
        "answered 503": load.counts[503], "done though answered 503": done_anyway, "lost": 0,
    }  # fmt: skip


def limit_files(relay, size):
    """Let no file of the relay's grow beyond so many bytes: what is written there fails, as on a full disk."""
    _, hard = resource.prlimit(relay.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(relay.process.pid, resource.RLIMIT_FSIZE, (size, hard))


def share(folder, *, relays, seconds, redis=True, clients=48, threads=9, seed=0):
    """Several relays over one Redis, or one SQLite file: no update is lost, and no teacher is torn."""
    with ExitStack() as stack:
        place = ("--db", stack.enter_context(own_redis(folder)).url if redis else folder / "relay.db")
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
    """Clients take turns in falling silent: the silent are forgotten, the others never. Also when the relay says so."""
    rng, forgotten, slowest = random.Random(seed), 0, 0.0
    with ExitStack() as stack:
        relay = start(stack, folder, "--max-age", max_age)
        database = stack.enter_context(closing(open_database(str(folder / "relay.db"))))
        board = Tasks(database).get("digits").board  # beside the relay, whose status is some moments old
        calm = {"withdrawals": 0.0, "pause_seconds": 0.005}
        with Load([relay.url], clients=clients, threads=threads, seed=seed, **calm) as load:
            for _ in range(turns):
                load.silent = set()
                begun = time.monotonic()
                eventually(lambda: all(p.acknowledged_at > begun for p in load.parties), "all publish")  # noqa: B023
                load.silent = set(rng.sample([party.name for party in load.parties], clients // 2))
                begun = time.monotonic()
                eventually(lambda: not load.silent & seen(board, load, max_age), "the silent are forgotten")
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


def seen(board, load, max_age):
    """The clients that are on the board now, among them all that published lately."""
    lately = {party.name for party in load.parties if time.monotonic() - party.acknowledged_at < max_age - 0.5}
    # Those who stop just now may be forgotten while the board is read: half a second is left for that.
    there = {member.name for member in board.status().shown}
    assert lately <= there | load.silent, lately - there
    return there


@contextmanager
def own_redis(folder):
    """A Redis for one run."""
    (folder / "redis").mkdir()
    server = Redis(folder / "redis")
    try:
        yield server
    finally:
        server.kill()


def start(stack, folder, *options, popen=None):
    """A relay that is stopped at the end, if it is still there."""
    folder.mkdir(exist_ok=True)
    relay = Relay(folder, *options, *TASK, popen=popen)
    stack.callback(relay.stop)
    stack.callback(relay.http.close)
    return relay
