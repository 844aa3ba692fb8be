"""What happens to the servers of the Redis engine while jobs flow, and what it does to them: nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing

import pytest
import redis as driver

from forebay.stores.redis.key_layout import tag
from tests.redis_cluster import RedisCluster
from tests.redis_server import RedisServer
from tests.stores.redis_load import Load
from tests.worker.support import eventually

SAFE = {"appendonly": "yes", "appendfsync": "always"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    timing = {"cluster-node-timeout": "1000", "cluster-replica-validity-factor": "0"}
    with closing(RedisCluster(**SAFE, **timing)) as started:
        yield started


def url_of(cluster: RedisCluster, namespace: str) -> str:
    return f"{cluster.url}?namespace={namespace}"


def is_the_end_of(lost: list[int], accepted: int) -> bool:
    """Whether what is lost are the last of so many that were accepted: a replica receives everything in its
    order. One more may have been accepted while they were counted."""
    return not lost or (lost == list(range(lost[0], lost[-1] + 1)) and accepted - 1 <= lost[-1] <= accepted)


@pytest.mark.shows("R-STORE-48", "R-STORE-51", "R-STORE-53", "R-EDGE-68")
def test_the_slot_of_a_store_moves_to_another_node(cluster: RedisCluster) -> None:
    slot, source = cluster.slot_of(tag("moved")), cluster.owner_of(tag("moved"))
    target = next(node for node in cluster.nodes if node is not source)

    with Load(url_of(cluster, "moved")) as load:
        before = load.refused
        for _ in cluster.move(slot, source, target):
            # Half of the keys are here and half of them there: no program may work with either.
            eventually(lambda: load.refused > before)
        load.goes_on()

    assert cluster.owner_of(tag("moved")) is target
    assert load.accepted_once()


@pytest.mark.shows("R-STORE-48", "R-STORE-49", "R-SWEEP-22")
def test_a_node_of_a_cluster_is_started_again(cluster: RedisCluster) -> None:
    with Load(url_of(cluster, "restarted")) as load:
        owner = cluster.owner_of(tag("restarted"))
        owner.stop(signal.SIGKILL)
        owner.start()
        load.goes_on()

    assert load.accepted_once()


@pytest.mark.shows("R-STORE-48", "R-STORE-51", "R-EDGE-68")
def test_a_replica_takes_over_from_a_node_of_a_cluster(cluster: RedisCluster) -> None:
    owner = cluster.owner_of(tag("replaced"))
    replica = cluster.add_replica(owner)

    with Load(url_of(cluster, "replaced")) as load:
        owner.stop(signal.SIGKILL)
        accepted = len(load.accepted)
        eventually(lambda: cluster.owner_of(tag("replaced")) is replica, 60)
        load.goes_on()
        lost = load.lost()

    assert is_the_end_of(lost, accepted)
    assert load.done_once(lost)


@pytest.mark.shows("R-STORE-48", "R-STORE-51", "R-EDGE-68")
def test_sentinels_name_another_master() -> None:
    master = RedisServer(**SAFE)
    replica = RedisServer(**SAFE, replicaof=f"127.0.0.1 {master.port}")
    sentinel = RedisServer(master.port)
    try:
        with driver.Redis(port=sentinel.port) as watcher:
            eventually(lambda: int(watcher.sentinel_master("jobs")["num-slaves"]) == 1)
        with driver.Redis(port=replica.port) as admin:
            eventually(lambda: admin.info("replication")["master_link_status"] == "up")
        with Load(f"redis+sentinel://127.0.0.1:{sentinel.port}/jobs/0") as load:
            master.stop(signal.SIGKILL)
            accepted = len(load.accepted)
            load.goes_on()
            lost = load.lost()

        assert is_the_end_of(lost, accepted)
        assert load.done_once(lost)
    finally:
        for server in (sentinel, replica, master):
            server.close()


@pytest.mark.shows("R-STORE-46", "R-STORE-49")
def test_a_file_is_rewritten_and_its_server_crashes() -> None:
    server = RedisServer(**SAFE)
    try:
        with Load(server.url()) as load, driver.Redis(port=server.port) as admin:
            admin.bgrewriteaof()
            load.goes_on()
            eventually(lambda: not admin.info("persistence")["aof_rewrite_in_progress"])
            admin.bgrewriteaof()
            server.stop(signal.SIGKILL)
            server.start()
            load.goes_on()

        assert load.accepted_once()
    finally:
        server.close()


@pytest.mark.shows("R-STORE-50", "R-EDGE-69")
def test_memory_is_full_for_a_while() -> None:
    server = RedisServer(**SAFE)
    try:
        with Load(server.url()) as load, driver.Redis(port=server.port) as admin:
            admin.config_set("maxmemory", 1)
            eventually(lambda: load.refused > 0)
            # Only producers that bring more are held up by that: what is there gets done.
            eventually(load.is_done)
            admin.config_set("maxmemory", 0)
            load.goes_on()

        assert load.accepted_once()
    finally:
        server.close()


@pytest.mark.shows("R-STORE-51")
def test_scripts_are_flushed_again_and_again() -> None:
    server = RedisServer()
    try:
        with Load(f"{server.url()}?persistence=none") as load, driver.Redis(port=server.port) as admin:
            for _ in range(20):
                admin.script_flush()
                load.goes_on(5)

        assert load.refused == 0
        assert load.accepted_once()
    finally:
        server.close()
