"""Relays over a Redis Cluster: a task on one node, and tasks on all of them."""

import pytest

from repshare.errors import ConfigError
from repshare.relay.tasks import Tasks
from repshare.stores import open_database
from support.redis_clusters import create_task_in
from support.relays import release, repshare


def test_a_task_is_on_one_primary_and_tasks_are_on_all_of_them(redis_cluster, cluster_url):
    keys = [create_task_in(cluster_url, f"task {number}") for number in range(30)]
    database = open_database(cluster_url)
    for number in range(30):
        Tasks(database).get(f"task {number}").board.accept("alice", release())
    database.close()
    found = [set(node.ask("KEYS", "*")) for node in redis_cluster.primaries]
    for key in keys:
        assert [key in there for there in found].count(True) == 1
    assert all(there & set(keys) for there in found)
    assert [set(node.ask("KEYS", "*")) for node in redis_cluster.replicas] == found


def test_an_address_that_does_not_fit_the_servers_is_refused_with_what_to_do(redis_cluster, tmp_path):
    node = redis_cluster.nodes[0]
    told = repshare("relay", "serve", "--db", node.url, "--port", 0, "--insecure", cwd=tmp_path, expect=2)
    assert "begins with redis+cluster://" in told
    database = open_database(f"{redis_cluster.url}?replicas=2")
    with pytest.raises(ConfigError, match="has 1 replicas: with replicas=2 nothing could be written"):
        database.inspect()
    database.close()
    database = open_database(redis_cluster.url)
    assert [warning for warning in database.inspect() if "add ?replicas=1" in warning]
    database.close()
