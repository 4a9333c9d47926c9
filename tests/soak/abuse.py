"""Ordinary clients at work while others abuse the relay."""

import random
import time

import numpy as np

from soak.attackers import attacks
from soak.fuzz import memory
from soak.load import TASK, ask, connect, make_release
from support.relays import start_relay

MOST_SECONDS = 2.0  # of the slowest hundredth of round trips; generous, because machines of tests are busy
MOST_MEGABYTES = 100  # two bodies of 16 MB, each there twice for a moment, and 1,200 connections


def abuse(folder, *, seconds, gigabytes=2.0, idle=1000, slow=100, seed=0):
    """Bodies of 2 GB, slow heads, slow bodies and idle connections, all at once, beside a client at work."""
    rng = random.Random(seed)
    with start_relay(folder, *TASK, "--head-seconds", 3, "--body-seconds", 3, cold=True) as relay:
        connection = connect(relay.url)
        before = work(connection, rng, seconds / 4)
        megabytes = memory(relay, "VmRSS")
        with attacks(relay.port, idle=idle, slow=slow, gigabytes=gigabytes) as deeds:
            during = work(connection, rng, seconds)
        grown = memory(relay, "VmHWM") - megabytes
        connection.close()
    assert deeds["large"] >= 2, deeds
    assert deeds["bytes"] > 10e6, deeds
    assert min(deeds["heads closed"], deeds["bodies closed"]) >= slow, deeds
    assert deeds["idle"] == idle, deeds
    assert np.percentile(during, 99) < MOST_SECONDS, during
    assert grown < MOST_MEGABYTES, f"the relay grew by {grown:.0f} MB"
    figures = {
        "p50": (before, 50),
        "p99": (before, 99),
        "p50 under attack": (during, 50),
        "p99 under attack": (during, 99),
    }
    closed = deeds["heads closed"] + deeds["bodies closed"]
    return {
        "idle connections": deeds["idle"], "slow ones": deeds["slow"], "closed for being slow": closed,
        "bodies of 2 GB begun": deeds["large"], "of their bytes sent [GB]": round(deeds["bytes"] / 1e9, 1),
        "round trips": len(during), "memory grew by [MB]": round(grown),
        **{f"{name} [ms]": round(1000 * float(np.percentile(*of)), 1) for name, of in figures.items()},
    }  # fmt: skip


def work(connection, rng, seconds):
    """Publish and collect for so long; how long each round trip took."""
    took, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        begun = time.monotonic()
        work.round += 1
        body = make_release(work.round, rng)
        assert ask(connection, "PUT", "/v1/tasks/digits/clients/alice/release", body)[0] == 200
        assert ask(connection, "GET", "/v1/tasks/digits/teacher?client=alice")[0] == 200
        took.append(time.monotonic() - begun)
        time.sleep(0.005)
    return took


work.round = 0
