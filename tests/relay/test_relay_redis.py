"""A relay over Redis: what it asks of that Redis at its start, and what it survives."""

import signal

import pytest
import redis

from repshare.relay.tasks import Tasks
from repshare.stores import open_database
from support.damage import garble
from support.processes import eventually
from support.redis_servers import Redis, find_port
from support.relays import DIGITS, release, repshare, start_relay
from support.warm import run_warm

OPEN = ("--insecure", "--task", "digits", *DIGITS)


@pytest.fixture
def start_redis(tmp_path):
    servers = []

    def start(**options):
        servers.append(Redis(tmp_path, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.mark.parametrize("policy", ["allkeys-random", "allkeys-lru", "allkeys-lfu"])
@pytest.mark.parametrize("forbidden", [{}, {"rename_command": 'CONFIG ""'}])
def test_a_redis_that_drops_what_it_was_given_is_refused(tmp_path, start_redis, policy, forbidden):
    url = start_redis(maxmemory_policy=policy, **forbidden).url
    told = repshare("relay", "serve", "--db", url, "--port", 0, *OPEN, cwd=tmp_path, expect=2)
    assert len(told.splitlines()) == 1
    assert f"its maxmemory-policy is {policy}" in told
    with redis.Redis.from_url(url) as connection:
        assert connection.dbsize() == 0, "nothing was entrusted to it"


@pytest.mark.parametrize("command", ["tasks create digits", "tasks list", "invite alice --task digits", "check"])
def test_each_command_refuses_a_redis_that_drops_what_it_was_given(tmp_path, start_redis, command):
    url = start_redis(maxmemory_policy="allkeys-lru").url
    words = [*command.split(), *(DIGITS if "create" in command else ())]
    told = repshare("relay", *words, "--db", url, cwd=tmp_path, expect=2)
    assert "its maxmemory-policy is allkeys-lru" in told
    with redis.Redis.from_url(url) as connection:
        assert connection.dbsize() == 0, "nothing was entrusted to it"


def test_a_policy_that_changes_under_a_running_relay_shows_in_its_health(tmp_path, start_redis):
    server = start_redis()
    with start_relay(tmp_path, "--db", server.url, *OPEN) as relay, redis.Redis.from_url(server.url) as connection:
        health = lambda: relay.ask("GET", "/healthz").status_code  # noqa: E731
        assert health() == 200
        connection.config_set("maxmemory-policy", "allkeys-lru")
        eventually(lambda: health() == 503, "it is checked every few seconds")
        assert "maxmemory-policy is allkeys-lru" in relay.logged(kind="store-away")["reason"]
        connection.config_set("maxmemory-policy", "noeviction")
        eventually(lambda: health() == 200, "it is well again")


def warnings(relay):
    return [line["event"] for line in relay.log() if line["level"] == "warning"]


def test_a_redis_without_a_log_is_warned_of(tmp_path, start_redis):
    with start_relay(tmp_path, "--db", start_redis(appendonly="no").url, *OPEN) as relay:
        assert [told for told in warnings(relay) if "appendonly is off" in told]
        assert relay.publish("alice", release()).status_code == 200


def test_a_redis_that_syncs_when_it_likes_is_warned_of(tmp_path, start_redis):
    with start_relay(tmp_path, "--db", start_redis(appendfsync="no").url, *OPEN) as relay:
        assert [told for told in warnings(relay) if "appendfsync is no" in told]


@pytest.mark.parametrize("forbidden", ["CONFIG", "CONFIG and INFO"])
def test_a_redis_that_does_not_say_what_it_does_is_warned_of(tmp_path, start_redis, forbidden):
    server = start_redis()
    with redis.Redis.from_url(server.url) as connection:
        commands = [f"-{name.lower()}" for name in forbidden.split(" and ")]
        connection.execute_command("ACL", "SETUSER", "default", *commands)
    with start_relay(tmp_path, "--db", server.url, *OPEN) as relay:
        told = " ".join(warnings(relay))
        assert "its appendfsync cannot be read" in told
        assert ("its maxmemory-policy cannot be read" in told) is (forbidden != "CONFIG")
        assert relay.publish("alice", release()).status_code == 200


def test_a_redis_that_keeps_what_it_is_given_is_not_warned_of(tmp_path, start_redis):
    with start_relay(tmp_path, "--db", start_redis().url, *OPEN) as relay:
        assert warnings(relay) == []


def test_a_registry_that_vanishes_under_a_running_relay_deletes_nothing(tmp_path, redis_url):
    with start_relay(tmp_path, "--db", redis_url, *OPEN, "--max-age", 3600) as relay:
        assert relay.publish("alice", release()).status_code == 200
        with redis.Redis.from_url(redis_url) as connection:
            kept = connection.dump("repshare:{tasks}")
            connection.delete("repshare:{tasks}")
            asked = "/v1/tasks/digits/status"
            eventually(lambda: relay.ask("GET", asked).status_code == 404, "the relay knows of no such task")
            connection.restore("repshare:{tasks}", 0, kept)
        assert relay.ask("GET", "/v1/tasks/digits/status").json()["clients"] == 1


def test_a_redis_that_lost_its_last_changes_is_noticed_in_the_midst_of_work(redis_url):
    """After a failover or a crash, versions are counted again: the same number must not mean the same values."""
    database = open_database(redis_url)
    connection, name, store, seen = database.connection, "repshare:{t}", database.store("t"), []
    store.transact(lambda state: state.set({"a": b"0", "b": b"0"}))
    before = connection.dump(name)
    store.transact(lambda state: state.set({"a": b"lost", "b": b"lost"}))

    def work(state):
        seen.extend(state.get(["a"]))
        if len(seen) == 1:
            connection.restore(name, 0, before, replace=True)
            database.store("t").transact(lambda other: other.set({"a": b"new", "b": b"new"}))
        return seen[-1], *state.get(["b"])

    assert store.read(work) == (b"new", b"new")
    assert seen == [b"lost", b"new"]
    database.close()


def test_a_relay_finds_no_fault_with_what_is_kept_in_redis(tmp_path, redis_url):
    def check(*options):
        return run_warm("relay", "check", "--db", redis_url, *options, cwd=tmp_path).returncode

    with start_relay(tmp_path, "--db", redis_url, *OPEN) as relay:
        assert relay.publish("alice", release()).status_code == 200
        assert check() == 0
    database = open_database(redis_url)
    garble(Tasks(database).get("digits").board.store, "release/alice")
    database.close()
    assert check() == 1


def test_what_is_acknowledged_is_at_a_replica_where_one_is_waited_for(tmp_path):
    folders = [tmp_path / name for name in ("primary", "replica", "relay")]
    for folder in folders:
        folder.mkdir()
    primary = Redis(folders[0])
    replica = Redis(folders[1], replicaof=f"127.0.0.1 {primary.port}")
    try:
        with redis.Redis.from_url(primary.url) as asked:
            joined = lambda: asked.info("replication").get("slave0", {}).get("state") == "online"  # noqa: E731
            eventually(joined, "the replica has all that there is")
        with start_relay(folders[2], "--db", f"{primary.url}?replicas=1", *OPEN) as relay:
            assert relay.publish("alice", release()).status_code == 200
            replica.process.send_signal(signal.SIGSTOP)
            refused = [relay.publish("bob", release()) for _ in range(2)]
            primary.kill()
            replica.process.send_signal(signal.SIGCONT)
        answers = [(each.status_code, each.headers.get("Retry-After")) for each in refused]
        assert answers == [(503, "1")] * 2, "nor is the same again acknowledged, though the primary has it"
        with redis.Redis.from_url(replica.url) as asked:
            asked.replicaof("no", "one")
        database = open_database(replica.url)
        board = Tasks(database).get("digits").board
        assert board.find_faults() == {}
        assert board.find("alice")
        database.close()
    finally:
        replica.process.send_signal(signal.SIGCONT)
        for server in (primary, replica):
            server.stop()


def test_a_redis_cluster_is_refused_and_the_last_commit_that_uses_one_named(tmp_path, start_redis):
    node = start_redis(cluster_enabled="yes", cluster_port=find_port()).url
    for address in (node, node.replace("redis://", "redis+cluster://")):
        told = repshare("relay", "serve", "--db", address, "--port", 0, "--insecure", cwd=tmp_path, expect=2)
        assert "befa941" in told
