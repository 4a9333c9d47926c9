"""Clients with a privacy budget that are killed: what they were charged for, and what left."""

import random
import signal
from contextlib import ExitStack
from pathlib import Path

from repshare import RelayExchange
from repshare.privacy.ledger import read_ledger
from support.interrupted_clients import BUDGET, WHERE
from support.private_clients import create_private_task
from support.processes import RelayProcess, records
from support.warm import start_warm

TESTS = Path(__file__).parent.parent
OPEN = ("--db", "relay.db", "--insecure")
PATIENCE_SECONDS = 300
PEER_EVERY = 5  # of so many clients, one shares with peers, the others through a relay


def kill_clients(folder, *, kills, seed=0):
    """SIGKILL clients in every round of theirs, each time at another point of it; then let them finish.

    Each is charged once for each round, and what it is charged for leaves, however often it is sent.
    """
    points, clients, offers = spread(kills, random.Random(seed)), 0, 0
    with ExitStack() as stack:
        create_private_task(folder)
        relay = RelayProcess(folder, *OPEN)
        stack.callback(relay.stop)
        for start in range(0, kills, BUDGET.releases):
            url = "peer" if clients % PEER_EVERY == PEER_EVERY - 1 else relay.url
            with RelayExchange(relay.url, "digits", client="alice") as exchange:
                exchange.withdraw()
            place = folder / f"client {clients}"
            place.mkdir()
            offers += interrupt_all(place, url, points[start : start + BUDGET.releases])
            clients += 1
    return {"kills": kills, "points of a round": len(set(points)), "clients": clients,
            "releases that were charged and acknowledged": clients * BUDGET.releases,
            "times that one of them was sent": offers, "charged twice": 0, "lost": 0}  # fmt: skip


def spread(kills, rng):
    """A point for each kill: all of them equally often, in any order."""
    points = [list(WHERE)[number % len(WHERE)] for number in range(kills)]
    rng.shuffle(points)
    return points


def interrupt_all(place, url, points):
    """Kill one client in its first rounds at these points, and let it finish: how often it sent anything."""
    rounds = BUDGET.releases
    for number, point in enumerate(points, 1):
        assert run(place, point, number, url, rounds) == -signal.SIGKILL, tell(place)
    assert run(place, "nowhere", 0, url, rounds) == 0, tell(place)
    return check(place, rounds)


def check(place, rounds):
    """As many charges as rounds, as many different bytes that left, and all acknowledged: how often any was sent."""
    expected = list(range(1, rounds + 1))
    assert [entry["round"] for entry in read_ledger(place / "s/privacy.jsonl")[1]] == expected
    sent = [line.split() for line in (place / "sent").read_text().splitlines()]
    offered = [digest for how, digest in sent if how == "offered"]
    assert len(set(offered)) == rounds
    assert list(dict.fromkeys(offered)) == list(dict.fromkeys(digest for how, digest in sent if how == "acknowledged"))
    assert [line["round"] for line in records(place / "s")] == expected
    return len(offered)


def run(place, point, number, url, rounds):
    """`interrupted.py` with these words; its exit code."""
    words = [str(word) for word in (point, number, url, place / "s", rounds)]
    with (place / "out").open("a") as out, (place / "err").open("a") as err:
        process = start_warm(
            words, script=str(TESTS / "support/interrupted_clients.py"), cwd=place, stdout=out, stderr=err
        )
        return process.wait(PATIENCE_SECONDS)


def tell(place):
    return (place / "err").read_text()[-3000:]
