"""A real Redis Cluster for tests: three primaries and a replica of each, on loopback, to be stopped and killed."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import redis
from redis.crc import key_slot

from repshare.relay.tasks import Tasks
from repshare.sharing.task import Task
from repshare.stores import open_database
from support.redis_servers import Redis, find_port

PATIENT_MS = 10_000  # after which a node that does not answer is suspected, on a busy machine
SLOTS = 16_384
PRIMARIES = 3


class Node(Redis):
    """One server in cluster mode. Its folder has the file in which it knows the others."""

    def __init__(self, folder, timeout_ms):
        folder.mkdir()
        self.bus = find_port()
        super().__init__(
            folder,
            cluster_enabled="yes",
            cluster_port=self.bus,
            cluster_node_timeout=timeout_ms,
            cluster_replica_validity_factor=0,  # a replica takes over however long it was cut off: tests may be slow
            repl_diskless_sync_delay=0,
            repl_ping_replica_period=1,
        )

    def ask(self, *words):
        with redis.Redis(port=self.port, decode_responses=True) as connection:
            return connection.execute_command(*words)

    def is_linked(self):
        """Whether this replica has all that its primary has."""
        return self.ask("INFO", "replication").get("master_link_status") == "up"

    def signal(self, which):
        self.process.send_signal(which)


class Cluster:
    """Three primaries, each with a third of the slots and one replica."""

    def __init__(self, folder, timeout_ms=PATIENT_MS):
        folder.mkdir(exist_ok=True)
        with ThreadPoolExecutor() as pool:
            folders = [folder / str(number) for number in range(2 * PRIMARIES)]
            self.nodes = list(pool.map(lambda each: Node(each, timeout_ms), folders))
        try:
            self._join()
        except BaseException:
            self.stop()
            raise

    def _join(self):
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[::2])
        bounds = [SLOTS * number // PRIMARIES for number in range(PRIMARIES + 1)]
        for number, node in enumerate(self.nodes):
            node.ask("CLUSTER SET-CONFIG-EPOCH", number + 1)
            for other in self.nodes[:number]:
                node.ask("CLUSTER MEET", "127.0.0.1", other.port, other.bus)
        for node, start, end in zip(self.primaries, bounds, bounds[1:], strict=False):
            node.ask("CLUSTER ADDSLOTSRANGE", start, end - 1)
        self.wait(lambda: all(len(node.ask("CLUSTER NODES")) == len(self.nodes) for node in self.nodes), "all have met")
        for primary, replica in zip(self.primaries, self.replicas, strict=True):
            replica.ask("CLUSTER REPLICATE", primary.ask("CLUSTER MYID"))
        self.wait(self.is_whole, "every primary has its replica")

    @property
    def primaries(self):
        return self.nodes[:PRIMARIES]

    @property
    def replicas(self):
        return self.nodes[PRIMARIES:]

    def is_whole(self):
        """Whether replicas have what their primaries have, and every node knows of all of them."""
        return (
            all(node.is_linked() for node in self.replicas)
            and all(node.ask("CLUSTER INFO")["cluster_state"] == "ok" for node in self.nodes)
            and all(len(part) == 4 for node in self.nodes for part in node.ask("CLUSTER SLOTS"))  # and two nodes
        )

    def pair_of(self, key):
        """The primary that has this key, and its replica."""
        number = next(n for n in range(PRIMARIES) if key_slot(key.encode()) < SLOTS * (n + 1) // PRIMARIES)
        return self.primaries[number], self.replicas[number]

    def empty(self):
        for node in self.primaries:
            node.ask("FLUSHALL")

    def stop(self):
        for node in self.nodes:
            node.signal(signal.SIGKILL)  # also what was stopped
            node.process.wait()

    @staticmethod
    def wait(condition, what, seconds=30):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds} s: {what}"
            time.sleep(0.02)


def create_task_in(url, name):
    """Create a task, and return its board's key in Redis."""
    database = open_database(url)
    Tasks(database).create(name, Task(10, 8))
    key = Tasks(database).get(name).board.store.hash
    database.close()
    return key
