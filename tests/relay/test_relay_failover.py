"""A primary of a Redis Cluster is killed under load: what was acknowledged is there, if replicas were waited for."""

import signal
import threading
from itertools import count, islice

from repshare.exchange.http import Connection
from repshare.relay.tasks import Tasks
from repshare.stores import open_database
from support.processes import eventually
from support.redis_clusters import Cluster, create_task_in
from support.relays import release, start_relay

REGISTRY = "repshare:{tasks}"


def create_two(cluster, primary):
    """Return the names of two new tasks on this primary."""
    names = (f"task-{number}" for number in count())
    return list(islice((name for name in names if cluster.pair_of(create_task_in(cluster.url, name))[0] is primary), 2))


class Load:
    """Publishes, each as a client of its own, with the retries of real clients; and what was acknowledged."""

    def __init__(self, relay, task):
        self.relay, self.task, self.acknowledged, self.failed = relay, task, [], []
        self.numbers, self.done = count(), threading.Event()
        self.threads = [threading.Thread(target=self.work) for _ in range(2)]
        for thread in self.threads:
            thread.start()

    def work(self):
        connection = Connection(self.relay.url, patience=60)
        while not self.done.is_set():
            name = f"client {next(self.numbers)}"
            try:
                connection.ask("PUT", f"/v1/tasks/{self.task}/clients/{name}/release", body=release())
                self.acknowledged.append(name)
            except Exception as error:
                self.failed.append(error)
        connection.close()

    def goes_on(self, publishes):
        wanted = len(self.acknowledged) + publishes
        eventually(lambda: len(self.acknowledged) >= wanted, f"{publishes} more publishes of {self.task}")

    def stop(self):
        self.done.set()
        for thread in self.threads:
            thread.join()


def lost(url, load):
    """The acknowledged clients that the board does not have; the board itself is whole."""
    database = open_database(url)
    board = Tasks(database).get(load.task).board
    assert board.find_faults() == {}, "nothing is half-written"
    missing = [name for name in load.acknowledged if board.find(name) is None]
    database.close()
    return missing


def test_nothing_acknowledged_is_lost_with_a_primary_where_replicas_are_waited_for(tmp_path):
    """The replica is cut off, the primary goes on, and is killed: without waiting, that costs what it acknowledged."""
    cluster = Cluster(tmp_path / "cluster", timeout_ms=600)
    try:
        primary, replica = cluster.pair_of(REGISTRY)
        careful, careless = create_two(cluster, primary)
        address = ("--insecure", "--rate", 0, "--db")
        (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
        with (
            start_relay(tmp_path / "a", *address, f"{cluster.url}?replicas=1") as waiting,
            start_relay(tmp_path / "b", *address, cluster.url) as hasty,
        ):
            loads = [Load(waiting, careful), Load(hasty, careless)]
            try:
                for load in loads:
                    load.goes_on(20)
                replica.signal(signal.SIGSTOP)
                primary.ask("CLIENT KILL", "TYPE", "replica")
                loads[1].goes_on(50)
                refused = [waiting.publish("x", release(), task=careful) for _ in range(2)]
                primary.kill()
                replica.signal(signal.SIGCONT)
                eventually(lambda: replica.ask("ROLE")[0] == "master", "the replica takes over")
                loads[1].goes_on(20)
                primary.start()  # and becomes a replica, for which the others wait
                loads[0].goes_on(20)
            finally:
                for load in loads:
                    load.stop()
        assert [load.failed for load in loads] == [[], []], "clients' own retries were enough"
        assert len(lost(cluster.url, loads[1])) >= 50, "the fault happened, and took what only the primary had"
        assert lost(cluster.url, loads[0]) == []
        answers = [(each.status_code, each.headers.get("Retry-After")) for each in refused]
        assert answers == [(503, "1"), (503, "1")], "nor is the same again acknowledged, though the primary has it"
    finally:
        cluster.stop()
