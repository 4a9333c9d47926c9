"""What votes on parts cost: publishing over HTTP with and without them, in one run, in turns.

Ten clients of digits (120 samples each, the usual space) at one relay on SQLite with two tasks that differ in
--compared alone. The parts of each round are published in both tasks, the order changing; two rounds warm up. Beside
the seconds of a publish, the relay's own processor seconds, which do not depend on what else the machine does.

    python benchmarks/votes.py
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from repshare import Client, Policy, RelayExchange
from repshare.relay.tasks import Tasks
from repshare.space import choose
from repshare.space.agreement import Agreement
from repshare.stores import open_database
from repshare_lab.data import load

CLIENTS, SAMPLES, ROUNDS, WARM_UP = 10, 120, 20, 2
TASKS = ("votes", "no votes")


@contextmanager
def start_relay(place: str) -> Iterator[tuple[str, int]]:
    """A relay without tokens, as a process of its own; its address and number."""
    command = [
        sys.executable,
        "-m",
        "repshare",
        "relay",
        "serve",
        "--port",
        "0",
        "--db",
        place,
        "--insecure",
        "--rate",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            line = next(line for line in process.stdout if "http://" in line)
            yield "http://" + line.partition("http://")[2].split()[0].strip('"},'), process.pid
        finally:
            process.terminate()


def used(process: int) -> float:
    """The processor seconds that a process has used, of all its threads."""
    threads = Path(f"/proc/{process}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def main() -> None:
    """Measure, and print."""
    data = load("digits").train
    agreement = Agreement(choose((), data.images[0], 0))
    with tempfile.TemporaryDirectory(prefix="votes-") as folder, ExitStack() as stack:
        place = str(Path(folder) / "relay.db")
        for task in TASKS:
            made = replace(agreement.task(10), compared=task == TASKS[0])
            Tasks(open_database(place)).create(task.replace(" ", "-"), made)
        url, process = stack.enter_context(start_relay(place))
        clients, seconds, busy = [], {task: list[float]() for task in TASKS}, dict.fromkeys(TASKS, 0.0)
        for number in range(CLIENTS):
            rows, name = slice(number * SAMPLES, (number + 1) * SAMPLES), f"client-{number}"
            exchanges = {task: RelayExchange(url, task.replace(" ", "-"), client=name) for task in TASKS}
            policy = Policy(minimum_count=1, accept_exposure=True)
            made = (np.asarray(data.images[rows], np.float32), data.labels[rows])
            clients.append(
                (Client(data=made, exchange=exchanges[TASKS[0]], name=name, space=agreement, policy=policy), exchanges)
            )
        for round in range(ROUNDS):
            bodies = []
            for client, _ in clients:
                client.collect()
                client.train()
                bodies.append(client.release())
            for task in TASKS[:: 1 if round % 2 else -1]:
                before = used(process)
                for (_, exchanges), body in zip(clients, bodies, strict=True):
                    began = time.perf_counter()
                    exchanges[task].publish(body)
                    seconds[task].append(time.perf_counter() - began)
                busy[task] += (used(process) - before) * (round >= WARM_UP)
            for client, _ in clients:
                client.learner.acknowledge()
    kept = {task: 1000 * median(found[WARM_UP * CLIENTS :]) for task, found in seconds.items()}
    count = (ROUNDS - WARM_UP) * CLIENTS
    own = {task: 1000 * each / count for task, each in busy.items()}
    for what, each in (("median of a publish", kept), ("the relay's processor", own)):
        told = ", ".join(f"{task} {value:.2f} ms" for task, value in each.items())
        print(f"{what}: {told}, ratio {each[TASKS[0]] / each[TASKS[1]]:.2f}")
    print(f"{count} publishes of {len(bodies[0]):,} bytes each, the same in both tasks")


if __name__ == "__main__":
    main()
