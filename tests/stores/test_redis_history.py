"""How much history the Redis engine keeps: by time, by number and by bytes, and in which steps it goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
import redis as driver

from forebay.domain.job import DEFAULT_QUEUE, QueueName
from forebay.domain.outcome import AttemptError, Discarded
from forebay.domain.settlement import decide
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from forebay.stores.redis import pruner
from forebay.stores.redis.engine import RedisEngine
from forebay.stores.redis.server_address import MAX_FINISHED
from tests.redis_server import RedisServer
from tests.stores.support import WORKER, claim, complete, everything, fail, new_job

MAIL = QueueName("mail")
KIB = 1_024


@pytest.fixture(scope="module")
def own_server() -> Iterator[RedisServer]:
    """A server whose counters no other test changes."""
    started = RedisServer()
    yield started
    started.close()


@pytest.fixture
def admin(own_server: RedisServer) -> Iterator[driver.Redis]:
    with driver.Redis(port=own_server.port) as client:
        client.flushall()
        yield client


def opened(server: RedisServer, **options: int) -> Engine:
    words = [f"{name}={value}" for name, value in options.items()]
    return open_engine(f"{server.url()}?{'&'.join(('persistence=none', *words))}")


def finish(store: Store, jobs: int, *, size: int = 100, queue: QueueName = DEFAULT_QUEUE) -> list[str]:
    """Complete so many jobs, one after the other; their ids, the oldest first."""
    done: list[str] = []
    while len(done) < jobs:
        step = min(200, jobs - len(done))
        store.insert([new_job(payload=b"x" * size, queue=queue)] * step)
        answer = store.settle_and_claim(WORKER, [complete(job) for job in claim(store, step, queue)])
        done += answer.settled
    return done


def kept(engine: Engine) -> list[str]:
    with closing(engine.reader()) as reader:
        assert reader.health().problems == ()
        return [job.id for job in everything(reader, limit=1_000)]


@pytest.mark.shows("R-HIST-08", "R-CFG-51")
def test_ten_thousand_final_jobs_are_kept_by_default() -> None:
    engine = open_engine("redis://host/0")

    assert isinstance(engine, RedisEngine)
    assert engine.address.max_finished == MAX_FINISHED == 10_000


@pytest.mark.shows("R-HIST-08", "R-HIST-23")
def test_of_final_jobs_only_so_many_are_kept(own_server: RedisServer, admin: driver.Redis) -> None:
    engine = opened(own_server, max_finished=5)
    with closing(engine.store()) as store:
        done = finish(store, 12)
        finish(store, 3, queue=MAIL)

        assert (store.prune(4), store.prune(), store.prune()) == (4, 3, 0)

    assert len(kept(engine)) == 8
    assert set(done[-5:]) < set(kept(engine))


@pytest.mark.shows("R-SWEEP-18", "R-STORE-44")
def test_a_lowered_number_is_reached_by_scripts_of_a_hundred_jobs(
    own_server: RedisServer, admin: driver.Redis
) -> None:
    with closing(opened(own_server).store()) as store:
        done = finish(store, 950)
    engine = opened(own_server, max_finished=1)
    with closing(engine.store()) as store:
        admin.config_resetstat()
        gone = store.prune(900)
        scripts = admin.info("commandstats")["cmdstat_evalsha"]["calls"]
        assert (gone, store.prune(900), store.prune(900)) == (900, 49, 0)

    assert scripts >= gone / 100
    assert kept(engine) == [done[-1]]


def test_many_queues_are_pruned_in_slices(
    own_server: RedisServer, admin: driver.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruner, "QUEUES_AT_ONCE", 2)
    engine = opened(own_server, max_finished=1)
    with closing(engine.store()) as store:
        for number in range(5):
            finish(store, 3, queue=QueueName(f"q{number}"))

        assert (store.prune(7), store.prune(), store.prune()) == (7, 3, 0)

    assert len(kept(engine)) == 5


@pytest.mark.shows("R-HIST-08")
def test_of_final_jobs_only_so_many_bytes_are_kept(own_server: RedisServer, admin: driver.Redis) -> None:
    engine = opened(own_server, max_finished_bytes=100 * KIB)
    with closing(engine.store()) as store:
        large, small = finish(store, 30, size=10 * KIB), finish(store, 50)
        others = finish(store, 20, size=KIB, queue=MAIL)

        assert store.prune() > 0
        assert store.prune() == 0

    left = kept(engine)
    assert {*small, *others} < set(left)
    # Fifty small ones are 20 to 40 KiB, a large one some bytes more than its arguments.
    fitting = [job for job in large if job in left]
    assert 5 <= len(fitting) <= 8
    assert fitting == large[-len(fitting) :]


def test_dead_letters_are_weighed_by_themselves(own_server: RedisServer, admin: driver.Redis) -> None:
    engine = opened(own_server, max_finished_bytes=100 * KIB)
    discarded = Discarded(AttemptError(type="Boom", message="no"))
    with closing(engine.store()) as store:
        done = finish(store, 8, size=10 * KIB)
        store.insert([new_job(payload=b"x" * 10 * KIB)] * 20)
        dead = claim(store, 20)
        store.settle_and_claim(WORKER, [decide(job, discarded, 0.0) for job in dead])

        assert store.prune() in (11, 12)

    assert set(done) < set(kept(engine))


def test_a_long_history_is_weighed_in_several_calls(
    own_server: RedisServer, admin: driver.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruner, "MEASURED_AT_ONCE", 10)
    monkeypatch.setattr(pruner, "MEASURED_PER_CALL", 2)
    engine = opened(own_server, max_finished_bytes=50 * KIB, max_finished=0)
    with closing(engine.store()) as store:
        done = finish(store, 100, size=KIB)

        first, second, third = store.prune(30), store.prune(30), store.prune(30)
        # What it has learned holds until the next walk is over, so that a large history does go.
        rest = store.prune(30)

    assert (first, third) == (0, 30)
    assert second == 30 or rest > 0
    assert kept(engine)[0] == done[-1]
    assert len(kept(engine)) <= 50


@pytest.mark.shows("R-STORE-42", "R-STORE-43", "R-BUG-21", "R-BUG-22")
def test_no_key_expires_by_itself(own_server: RedisServer, admin: driver.Redis) -> None:
    engine = opened(own_server)
    with closing(engine.store()) as store:
        finish(store, 2)
        store.insert(
            [new_job(unique_key="u", idempotency_key="o"), new_job(delay_ms=60_000), new_job(), new_job()]
        )
        running, retried = claim(store, 2)
        store.settle_and_claim(WORKER, [fail(retried, after_ms=60_000)])
        store.cancel([running.id])

    keys = list(admin.scan_iter())

    assert len(keys) > 10
    assert {admin.ttl(key) for key in keys} == {-1}
