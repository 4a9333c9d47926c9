"""What does the live page cost a relay? Writes benchmarks/page.md.

A relay over SQLite with many clients and rounds noted down: how long the page's documents take to make, and how many
round trips (publish and collect) a second there are with and without viewers, in alternating turns on the same relay. A
viewer asks what the page in a browser asks: it waits for news, fetches the page after each, at most once a second,
and the map after each new snapshot.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import httpx2
import numpy as np

from relay import relay_pairs
from relay_load import Load, run
from relay_servers import NAME, TASK, Inside, Server, start_relay
from repshare.board import Board
from repshare.relay.auth import Access, Grant
from repshare.relay.page import histories, presence, snapshots
from repshare.relay.tasks import Tasks
from repshare.sharing.representations import Release, Representations
from repshare.sharing.wire import encode_release
from repshare.stores import MemoryStore, open_database

CLIENTS, ROUNDS, VIEWERS, CONCURRENT = 1000, 200, 3, 16
TURNS, SECONDS = 16, 3.0
OLD_SECONDS = 8.0  # after which a document is surely made anew
AT_ONCE = 50  # clients filled in one transaction


class Answer(NamedTuple):
    """A document of the page's."""

    name: str
    size: int  # bytes
    made: list[float]  # seconds, made anew each time
    kept: list[float]  # seconds, while the last one was still good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of one turn")
    parser.add_argument("--view", nargs=2, metavar=("URL", "TOKEN"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.view:
        view(*arguments.view)
        return
    in_memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # the disk's moods would hide what is measured
    with tempfile.TemporaryDirectory(prefix="page-", dir=in_memory) as folder:
        place = str(Path(folder) / "relay.db")
        with start_relay(Path(folder), place, CLIENTS, ()) as (server, tokens):
            viewer = fill(place)
            print("filled", file=sys.stderr, flush=True)
            url = f"http://127.0.0.1:{server.port}"
            answers = [measure_document(url, viewer, name) for name in ("page", "map")]
            alone, watched = measure_trips(server, tokens, url, viewer, arguments)
    text = report(answers, alone, watched)
    print(text)
    if len(sys.argv) == 1:
        Path(__file__).with_suffix(".md").write_text(text)


def fill(place: str) -> str:
    """Note down ROUNDS rounds of every client, as the relay would have; the token of a viewer."""
    database = open_database(place)
    there = Tasks(database).get(NAME)
    members = [member.name for member in there.board.status(CLIENTS).shown]
    for start in range(0, CLIENTS, AT_ONCE):
        part = members[start : start + AT_ONCE]
        there.notes.transact(lambda state, part=part: tell(Inside(state), part))
    there.notes.transact(lambda state: film(Inside(state), members[: snapshots.CLIENTS]))
    token = Access(database).invite(Grant("viewer", "viewer", None))
    database.close()
    return token


def tell(notes: Any, names: list[str]) -> None:
    """The reports of some clients, all rounds."""
    tallies, counted = {}, presence.PresenceRecorder()
    for name in names:
        rng, kept = np.random.default_rng(len(name)), MemoryStore()
        for number in range(1, ROUNDS + 1):
            learnt = 1 - 0.9 * 0.98**number
            told = {"train_accuracy": learnt, "test_accuracy": learnt * rng.uniform(0.9, 1), "ce": 2.3 * (1 - learnt)}
            told |= {"kd": 0.1, "disc": 0.5, "bound": 1.5 * learnt, "bytes_up": 7180, "bytes_down": 7170}
            histories.record(kept, name, {"round": number, **told, "model": "LeNet5", "model_bytes": 246_824})
        for key, value in kept.items().items():
            notes.transact(lambda state, key=key, value=value: state.set({key: value}))
        counted.note(NAME, name, up=7180 * ROUNDS, down=7170 * ROUNDS, published=True)
    tallies = counted.take()[NAME]
    presence.flush(notes, tallies)


def film(notes: Any, names: list[str]) -> None:
    """The snapshots of all rounds."""
    rng, labels = np.random.default_rng(0), np.arange(TASK.classes)
    ends = rng.normal(size=(TASK.classes, TASK.dimension))
    for number in range(1, ROUNDS + 1):
        board = Board(TASK)
        for name in names:
            vectors = np.tanh(ends * number / ROUNDS + 0.3 * rng.normal(size=ends.shape)).astype(np.float32)
            rows = Representations(vectors, labels, np.full(TASK.classes, 10))
            board.accept(name, encode_release(Release(number, rows, rows)))
        snapshots.snap(board, notes)


def measure_document(url: str, token: str, name: str, times: int = 5) -> Answer:
    """How long an answer takes, made anew and not."""
    made, kept = [], []
    with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
        for _ in range(times):
            for found in (made, kept):
                begun = time.perf_counter()
                answer = http.get(f"/v1/tasks/{NAME}/{name}").raise_for_status()
                found.append(time.perf_counter() - begun)
            time.sleep(OLD_SECONDS)
    return Answer(name, len(answer.content), made, kept)


def measure_trips(
    server: Server, tokens: dict[str, str], url: str, viewer: str, arguments: argparse.Namespace
) -> tuple[list[Load], list[Load]]:
    """Turns without and with viewers, alternating."""
    pairs, alone, watched = relay_pairs(tokens), [], []
    for turn in range(arguments.turns):
        for viewers, loads in sorted(
            [(0, alone), (VIEWERS, watched)], key=lambda each: each[0], reverse=bool(turn % 2)
        ):
            with watching(url, viewer, viewers):
                load = run(
                    server.port,
                    pairs,
                    clients=CONCURRENT,
                    seconds=arguments.seconds,
                    processor=server.processor,
                )
            loads.append(load)
            print(f"{viewers} viewers: {load.rate:6.0f} round trips/s", file=sys.stderr, flush=True)
    return alone, watched


@contextmanager
def watching(url: str, token: str, viewers: int) -> Iterator[None]:
    """So many viewers, each a process, for the length of a block."""
    command = [sys.executable, __file__, "--view", url, token]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(viewers)]
    try:
        for process in processes:
            if process.stdout is None or process.stdout.readline() != b"looking\n":
                raise SystemExit("a viewer could not look")
        yield
        if any(process.poll() is not None for process in processes):
            raise SystemExit("a viewer went away")
    finally:
        for process in processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def view(url: str, token: str) -> None:
    """Ask what a browser with the page asks, for ever."""
    looked, latest, version = 0.0, None, 0
    with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
        while True:
            news = http.get(f"/v1/tasks/{NAME}/news", params={"since": version, "wait": 20}).raise_for_status()
            version = news.json()["version"]
            time.sleep(max(0.5, looked + 1 - time.monotonic()))
            page = http.get(f"/v1/tasks/{NAME}/page").raise_for_status().content
            if (now := page.partition(b'"frames":[')[2].partition(b"]")[0]) != latest:
                latest = now
                http.get(f"/v1/tasks/{NAME}/map").raise_for_status()
            if not looked:
                print("looking", flush=True)
            looked = time.monotonic()


def report(answers: list[Answer], alone: list[Load], watched: list[Load]) -> str:
    """The result as Markdown."""
    rates = [median(load.rate for load in loads) for loads in (alone, watched)]
    costs = [median(1e6 * load.processor / len(load.collects) for load in loads) for loads in (alone, watched)]
    pairs = [b.rate / a.rate for a, b in zip(alone, watched, strict=True)]
    lines = [
        "# What the live page costs a relay",
        "",
        f"{CLIENTS:,} clients with {ROUNDS} rounds noted down, {TASK.classes} classes of {TASK.dimension} numbers, "
        "SQLite (its file in memory), two cores shared with the load generator. Made by `python benchmarks/page.py`.",
        f"Niceness {os.getpriority(os.PRIO_PROCESS, 0)}; the machine's load at the end: {os.getloadavg()[0]:.0f}.",
        "",
        "| document | size | rebuilt: median | slowest | from before: median |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {each.name} | {each.size / 1000:,.0f} kB | {1000 * median(each.made):.0f} ms | "
            f"{1000 * max(each.made):.0f} ms | {1000 * median(each.kept):.1f} ms |"
            for each in answers
        ),
        "",
        f"Round trips (publish and collect) of {CONCURRENT} clients at a time, {len(alone)} turns of each, in turn:",
        "",
        "| viewers | round trips a second (median) | the relay's processor time for one |",
        "|---:|---:|---:|",
        f"| 0 | {rates[0]:,.0f} | {costs[0]:,.0f} µs |",
        f"| {VIEWERS} | {rates[1]:,.0f} | {costs[1]:,.0f} µs |",
        "",
        f"With viewers: {100 * rates[1] / rates[0] - 100:+.1f} %; the median over neighbouring turns is "
        f"{100 * median(pairs) - 100:+.1f} %, of the processor time {100 * costs[1] / costs[0] - 100:+.1f} %.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
