"""What votes on parts cost: publishing over HTTP with and without them, in one run, in turns.

Ten clients of digits (120 samples each, the usual space) at one relay on SQLite with two tasks that differ in
--compared alone. Each part is published in both tasks, the order changing; two rounds warm up.

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

CLIENTS, SAMPLES, ROUNDS, WARM_UP = 10, 120, 40, 2
TASKS = ("votes", "no votes")


@contextmanager
def start_relay(place: str) -> Iterator[str]:
    """A relay without tokens, as a process of its own; its address."""
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
            yield "http://" + line.partition("http://")[2].split()[0].strip('"},')
        finally:
            process.terminate()


def main() -> None:
    """Measure, and print."""
    data = load("digits").train
    agreement = Agreement(choose((), data.images[0], 0))
    with tempfile.TemporaryDirectory(prefix="votes-") as folder, ExitStack() as stack:
        place = str(Path(folder) / "relay.db")
        for task in TASKS:
            made = replace(agreement.task(10), compared=task == TASKS[0])
            Tasks(open_database(place)).create(task.replace(" ", "-"), made)
        url = stack.enter_context(start_relay(place))
        clients, seconds = [], {task: list[float]() for task in TASKS}
        for number in range(CLIENTS):
            rows, name = slice(number * SAMPLES, (number + 1) * SAMPLES), f"client-{number}"
            exchanges = {task: RelayExchange(url, task.replace(" ", "-"), client=name) for task in TASKS}
            policy = Policy(minimum_count=1, accept_exposure=True)
            made = (np.asarray(data.images[rows], np.float32), data.labels[rows])
            clients.append(
                (Client(data=made, exchange=exchanges[TASKS[0]], name=name, space=agreement, policy=policy), exchanges)
            )
        for round in range(ROUNDS):
            for client, exchanges in clients:
                client.collect()
                client.train()
                body = client.release()
                assert body is not None
                for task in TASKS[:: 1 if round % 2 else -1]:
                    began = time.perf_counter()
                    exchanges[task].publish(body)
                    seconds[task].append(time.perf_counter() - began)
                client.learner.acknowledge()
    kept = {task: 1000 * median(found[WARM_UP * CLIENTS :]) for task, found in seconds.items()}
    print(f"median of {(ROUNDS - WARM_UP) * CLIENTS} publishes of {len(body):,} bytes, ms: {kept}")
    print(f"ratio: {kept[TASKS[0]] / kept[TASKS[1]]:.2f}")


if __name__ == "__main__":
    main()
