"""What a crash or a failover may take from the Redis engine, and what it may not."""

from __future__ import annotations

import signal
import time
from contextlib import closing

import pytest
import redis as driver

from forebay.domain.job import Job, JobId
from forebay.domain.job_states import JobState
from forebay.errors import StoreUnavailable
from forebay.stores.contract.claims_and_results import SettleAndClaimResult
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from tests.redis_server import RedisServer
from tests.stores.support import OTHER_WORKER, WORKER, claim, complete, everything, new_job
from tests.worker.support import eventually

BOUND = 2.0  # seconds: what docs/guide/redis.md says that `everysec` can lose
SLACK = 1.0  # of a machine that is busy


Acknowledged = list[tuple[float, JobId]]  # what the server has acknowledged, and when


def work_until_killed(store: Store, server: RedisServer) -> tuple[Acknowledged, Acknowledged]:
    """Enqueue and complete one job after the other for a while, then kill the server; what was accepted and
    what was settled."""
    accepted: Acknowledged = []
    settled: Acknowledged = []
    until = time.monotonic() + 2 * BOUND
    while time.monotonic() < until:
        [receipt] = store.insert([new_job()])
        assert receipt.id is not None
        accepted.append((time.monotonic(), receipt.id))
        ends = [complete(job) for job in claim(store)]
        settled += [(time.monotonic(), job_id) for job_id in store.settle_and_claim(WORKER, ends).settled]
    server.stop(signal.SIGKILL)
    return accepted, settled


@pytest.mark.shows("R-STORE-46", "R-NFR-27")
def test_with_everysec_a_crash_takes_only_what_was_told_at_last() -> None:
    server = RedisServer(appendonly="yes", appendfsync="everysec")
    try:
        with closing(open_engine(server.url()).store()) as store:
            accepted, settled = work_until_killed(store, server)
        server.start()

        with closing(open_engine(server.url()).reader()) as reader:
            kept = {job.id: job.state for job in everything(reader, limit=1_000)}
            assert reader.health().problems == ()
        lost = [at for at, job_id in accepted if job_id not in kept]
        lost += [at for at, job_id in settled if kept.get(job_id) is not JobState.COMPLETED]
        assert all(at > settled[-1][0] - BOUND - SLACK for at in lost)
        assert set(kept) <= {job_id for _, job_id in accepted}
    finally:
        server.close()


def wait_for_the_replica(admin: driver.Redis) -> None:
    """Until it has everything. WAIT is about what its own connection has written, and all before that;
    without a write of its own it is content with any replica."""
    admin.set("mark", "here")
    assert admin.wait(1, 120_000) == 1


def settled_when_possible(store: Store, job: Job) -> SettleAndClaimResult:
    """The answer to a settlement, asked for until there is one."""
    until = time.monotonic() + 120
    while True:
        try:
            return store.settle_and_claim(WORKER, [complete(job)])
        except StoreUnavailable:
            assert time.monotonic() < until
            time.sleep(0.05)


@pytest.mark.shows("R-STORE-48", "R-STORE-51")
def test_when_a_replica_takes_over_the_holder_settles_and_no_other_worker() -> None:
    master = RedisServer()
    replica = RedisServer(replicaof=f"127.0.0.1 {master.port}")
    try:
        hosts = f"127.0.0.1:{master.port},127.0.0.1:{replica.port}"
        engine = open_engine(f"redis://{hosts}/0?persistence=none")
        with closing(engine.store()) as store, driver.Redis(port=master.port) as admin:
            store.insert([new_job()] * 3)
            first, second = claim(store, 2)
            wait_for_the_replica(admin)
            master.stop(signal.SIGKILL)

            # Until an operator makes it the master, a replica refuses.
            with pytest.raises(StoreUnavailable):
                store.insert([new_job()])
            with pytest.raises(StoreUnavailable, match="read-only"):
                store.insert([new_job()])
            with driver.Redis(port=replica.port) as other:
                other.replicaof("NO", "ONE")

            assert settled_when_possible(store, first).settled == (first.id,)
            assert settled_when_possible(store, first).repeated == (first.id,)
            stranger = store.settle_and_claim(OTHER_WORKER, [complete(second)])
            assert [refusal.reason for refusal in stranger.refused] == ["other worker"]
            assert len(claim(store, 5)) == 1
        with closing(engine.reader()) as reader:
            assert reader.health().problems == ()
    finally:
        master.close()
        replica.close()


@pytest.mark.shows("R-STORE-48")
def test_sentinels_lead_to_the_master_and_to_the_next_one() -> None:
    master = RedisServer()
    replica = RedisServer(replicaof=f"127.0.0.1 {master.port}")
    sentinel = RedisServer(master.port)
    try:
        url = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.port}/jobs/0?persistence=none"
        with closing(open_engine(url).store()) as store, driver.Redis(port=sentinel.port) as watcher:
            store.insert([new_job()])
            [job] = claim(store)
            eventually(lambda: int(watcher.sentinel_master("jobs")["num-slaves"]) == 1)
            with driver.Redis(port=master.port) as admin:
                wait_for_the_replica(admin)

            master.stop(signal.SIGKILL)

            assert settled_when_possible(store, job).settled == (job.id,)
        with pytest.raises(StoreUnavailable, match="no Sentinel names a master"):
            open_engine(url.replace("/jobs/", "/others/")).store()
    finally:
        for server in (sentinel, replica, master):
            server.close()
