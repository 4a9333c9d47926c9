"""Stores in a Redis Cluster: each lives on one primary, with its replicas; a failure of one leaves the others.

The cluster's own failover makes a replica the primary. Until then the stores of that primary are unavailable, and what
its replicas had not heard of is lost: `replicas` has every change wait for them.
"""

from contextlib import suppress
from typing import Any

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisClusterException

from repshare.errors import ConfigError
from repshare.stores.redis import SECONDS, RedisDatabase

SCHEMES = {"redis+cluster": "redis", "rediss+cluster": "rediss"}
PORT = 6379


class ClusterDatabase(RedisDatabase):
    """A Redis Cluster, as `redis+cluster://:password@host:port,host:port?replicas=1`: some of its nodes, or one."""

    def connect(self, url: str) -> None:
        """Ask one of these nodes who else there is."""
        scheme, _, rest = url.partition("://")
        user, at, places = rest.rpartition("@")
        first, *others = places.partition("/")[0].partition("?")[0].split(",")
        options = places[len(",".join([first, *others])) :]
        self.cluster: Any = RedisCluster(
            url=f"{SCHEMES[scheme]}://{user}{at}{first}{options}",
            startup_nodes=[_node(place) for place in others],
            require_full_coverage=False,  # a slot without a primary is an error of the stores in it alone
            socket_timeout=SECONDS,
            socket_connect_timeout=SECONDS,
        )

    def at(self, key: str) -> "redis.Redis":
        """Return the connections to the primary that has this key."""
        connection: redis.Redis = self.cluster.get_redis_connection(self.cluster.get_node_from_key(key))
        return connection

    def refresh(self) -> None:
        """Ask again which primary has which keys."""
        with suppress(redis.RedisError, RedisClusterException):  # what comes next will say so
            self.cluster.nodes_manager.initialize()

    def servers(self) -> "list[redis.Redis]":
        """Return connections to all primaries."""
        return [self.cluster.get_redis_connection(node) for node in self.cluster.get_primaries()]

    def inspect(self) -> list[str]:
        """Check that every node keeps what it is given, and that each primary has replicas enough."""
        fewest = self._fewest_replicas()
        if fewest < self.replicas:
            raise ConfigError(
                f"a primary of this cluster has {fewest} replicas: with replicas={self.replicas} nothing could be "
                "written. Add replicas to the cluster, or ask for fewer"
            )
        warnings = [
            warning
            for node in self.cluster.get_nodes()
            for warning in self.inspect_server(self.cluster.get_redis_connection(node))
        ]
        if not self.replicas:
            warnings.append(
                "Redis: if a primary fails, the last moments of what was acknowledged may be lost: add ?replicas=1 "
                "to the address"
            )
        return list(dict.fromkeys(warnings))

    def _fewest_replicas(self) -> int:
        """Return the number of replicas of the primary that has fewest."""
        slots = self.cluster.nodes_manager.slots_cache.values()
        return min((len(nodes) - 1 for nodes in slots), default=0)

    def close(self) -> None:
        """Close the connections. Where nodes came from an address, redis-py itself leaves theirs open."""
        self.cluster.close()
        for node in self.cluster.get_nodes():
            self.cluster.get_redis_connection(node).connection_pool.disconnect()


def _node(place: str) -> ClusterNode:
    host, _, port = place.rpartition(":")
    return ClusterNode(  # type: ignore[no-untyped-call]
        host or place, int(port) if host else PORT
    )
