"""What servers do to the Redis engine: settings, rights, full memory, restarts, crashes, damage."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from threading import Event

import pytest
import redis as driver
from redis._parsers.base import BaseParser

from forebay.domain.enqueue_rates import FULL_AFTER_MS
from forebay.domain.job import DEFAULT_QUEUE, QueueName
from forebay.domain.job_query import JobQuery
from forebay.domain.outcome import AttemptError, Discarded
from forebay.domain.settlement import decide
from forebay.errors import ConfigError, SchemaNewer, StoreError, StoreUnavailable, StoreUnusable
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from forebay.stores.redis.errors import translate_error
from forebay.stores.redis.reader import _conditions
from tests.redis_server import RedisServer
from tests.stores.support import WORKER, claim, complete, everything, new_job

MAIL = QueueName("mail")
BODY = b'{"v":1,"args":["' + b"x" * 1_000 + b'"],"kwargs":{}}'


@pytest.fixture(scope="module")
def own_server() -> Iterator[RedisServer]:
    """A server whose settings no other test uses."""
    started = RedisServer(appendonly="yes", appendfsync="always")
    yield started
    started.close()


@pytest.fixture
def admin(own_server: RedisServer) -> Iterator[driver.Redis]:
    with driver.Redis(port=own_server.port) as client:
        yield client
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")
        client.flushall()


@pytest.fixture
def engine(own_server: RedisServer, admin: driver.Redis) -> Engine:
    return open_engine(own_server.url())


@pytest.fixture
def store(engine: Engine) -> Iterator[Store]:
    with closing(engine.store()) as store:
        yield store


def problems(engine: Engine) -> tuple[str, ...]:
    with closing(engine.reader()) as reader:
        return reader.health().problems


def tried(call: Callable[[], object], error: type[StoreError] = StoreUnavailable) -> None:
    """Call until it works: the first call after a restart may find the old connection closed."""
    for _ in range(100):
        try:
            call()
        except error:
            continue
        return
    raise AssertionError("the store does not come back")


@pytest.mark.shows("R-STORE-46")
def test_a_server_that_throws_jobs_away_is_refused(engine: Engine, admin: driver.Redis) -> None:
    admin.config_set("maxmemory-policy", "allkeys-lru")

    with pytest.raises(StoreUnusable, match="set maxmemory-policy to noeviction"):
        engine.store()


@pytest.mark.shows("R-STORE-46")
def test_a_server_that_forgets_everything_is_warned_of_unless_that_is_accepted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = RedisServer()
    try:
        open_engine(server.url() + "?persistence=none").store().close()
        assert caplog.messages == []

        open_engine(server.url()).store().close()
        assert "writes no append-only file" in caplog.messages[0]
    finally:
        server.close()


@pytest.mark.shows("R-STORE-48")
def test_a_server_behind_a_socket(own_server: RedisServer, admin: driver.Redis) -> None:
    with closing(open_engine(f"unix://{own_server.socket}?db=0").store()) as store:
        store.insert([new_job()])

    with closing(open_engine(own_server.url()).reader()) as reader:
        assert len(everything(reader)) == 1


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:pa/ss@host/0",
        "redis://host:port/0",
        "redis://host/jobs",
        "redis://host/0?namespace=a:b",
        "redis://host/0?colour=red",
        "redis://host/0?max_finished=many",
        "redis://host/0?persistence=some",
    ],
)
def test_an_address_that_makes_no_sense_is_refused_before_a_server_is_asked(url: str) -> None:
    with pytest.raises(ConfigError):
        open_engine(url)


@pytest.mark.shows("R-EDGE-68")
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("CLUSTERDOWN The cluster is down", StoreUnavailable),
        ("MASTERDOWN Link with MASTER is down", StoreUnavailable),
        ("TRYAGAIN Multiple keys request during rehashing of slot", StoreUnavailable),
        ("LOADING Redis is loading the dataset in memory", StoreUnavailable),
        ("READONLY You can't write against a read only replica.", StoreUnavailable),
        ("MISCONF Errors writing to the AOF file: No space left on device", StoreUnavailable),
        ("NOREPLICAS Not enough good replicas to write.", StoreUnavailable),
        ("BUSY Redis is busy running a script.", StoreUnavailable),
        ("OOM command not allowed when used memory > 'maxmemory'.", StoreUnavailable),
        ("ERR max number of clients reached", StoreUnavailable),
        ("NOAUTH Authentication required.", StoreUnusable),
        ("WRONGPASS invalid username-password pair or user is disabled.", StoreUnusable),
        ("NOPERM this user has no permissions to run the 'evalsha' command", StoreUnusable),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", StoreUnusable),
    ],
)
def test_what_passes_is_told_from_what_does_not(answer: str, error: type[StoreError]) -> None:
    """As the driver reads it: it leaves out words for which it has a class."""
    read = BaseParser.parse_error(answer)  # type: ignore[no-untyped-call]  # the driver has no types here

    assert type(translate_error("here", read)) is error


def test_a_server_that_is_not_there_may_come_later() -> None:
    server = RedisServer()
    url = server.url()
    server.close()

    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        open_engine(url).store()


def test_a_namespace_of_a_newer_program_is_left_alone(engine: Engine, admin: driver.Redis) -> None:
    engine.store().close()
    engine.check_schema()
    admin.hset("{forebay}:schema", mapping={"number": 9, "readable_from": 9})

    with pytest.raises(SchemaNewer):
        engine.store()
    admin.delete("{forebay}:schema")
    with pytest.raises(StoreUnusable, match="has no store yet"):
        engine.check_schema()


@pytest.mark.shows("R-STORE-50", "R-EDGE-69")
def test_a_full_server_refuses_new_jobs_and_lets_old_ones_end(
    engine: Engine, store: Store, admin: driver.Redis
) -> None:
    store.insert([new_job(payload=BODY)] * 20)
    jobs = claim(store, 10)
    admin.config_set("maxmemory", 1)

    with pytest.raises(StoreUnavailable, match="has no memory left"):
        store.insert([new_job()])
    answer = store.settle_and_claim(WORKER, [complete(job) for job in jobs])
    assert len(answer.settled) == 10
    assert len(claim(store, 5)) == 5
    store.prune()

    admin.config_set("maxmemory", 0)
    assert problems(engine) == ()
    store.insert([new_job()])


@pytest.mark.shows("R-STORE-50", "R-EDGE-61", "R-EDGE-69")
def test_a_server_that_is_nearly_full_is_told_of_before_it_refuses(
    engine: Engine, store: Store, admin: driver.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    def limit(share: float) -> None:
        admin.config_set("maxmemory", round(admin.info("memory")["used_memory"] / share))

    limit(0.7)
    store.prune()
    assert (caplog.messages, problems(engine)) == ([], ())
    limit(0.85)
    store.prune()
    store.prune()
    limit(0.7)
    store.prune()
    limit(0.85)
    store.prune()

    # Once for each time that it fills up.
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert "% full" in caplog.messages[0]
    [problem] = problems(engine)
    assert "raise maxmemory, or keep less history" in problem


@pytest.mark.shows("R-EDGE-61")
def test_a_server_that_begins_to_evict_is_told_of(
    engine: Engine, store: Store, admin: driver.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    admin.config_set("maxmemory-policy", "allkeys-lfu")

    store.prune()

    assert "evicts keys" in caplog.messages[0]
    assert "set maxmemory-policy to noeviction" in problems(engine)[0]


@pytest.mark.shows("R-STORE-50")
def test_a_full_server_forgets_its_oldest_history_before_it_refuses_a_job(
    engine: Engine, store: Store, admin: driver.Redis
) -> None:
    store.insert([new_job(payload=BODY)] * 500 + [new_job(payload=BODY, queue=MAIL)] * 50)
    ended = [*claim(store, 450), *claim(store, 45, MAIL)]
    discarded = Discarded(AttemptError(type="Boom", message="no"))
    store.settle_and_claim(WORKER, [decide(job, discarded, 0.0) for job in ended[:5]])
    store.settle_and_claim(WORKER, [complete(job) for job in ended[5:]])
    admin.config_set("maxmemory", admin.info("memory")["used_memory"] - 100_000)

    [receipt] = store.insert([new_job(payload=BODY)])

    assert receipt.is_new
    with closing(engine.reader()) as reader:
        default, mail = (reader.counts()[name] for name in (DEFAULT_QUEUE, MAIL))
        left = {job.id for job in everything(reader)}
    assert (default.pending, mail.pending, default.dead) == (51, 5, 5)
    assert 0 < default.completed < 445
    assert 0 < mail.completed < 45
    assert ended[5].id not in left
    assert ended[449].id in left
    admin.config_set("maxmemory", 0)
    assert problems(engine) == ()


@pytest.mark.shows("R-STORE-49", "R-SWEEP-22", "R-NFR-08", "R-ENQ-17")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_no_accepted_job_is_lost_when_the_server_is_started_again(
    own_server: RedisServer, engine: Engine, store: Store, how: int
) -> None:
    receipts = store.insert([new_job()] * 50)
    [job] = claim(store)
    heard = Event()

    own_server.stop(how)
    with pytest.raises(StoreUnavailable):
        store.insert([new_job()])
    with closing(engine.wakeups()) as wakeups:
        wakeups.start(heard.set)
        own_server.start()
        assert heard.wait(120)

    tried(lambda: store.renew(WORKER, []))
    assert store.settle_and_claim(WORKER, [complete(job)]).settled == (job.id,)
    with closing(engine.reader()) as reader:
        assert {one.id for one in everything(reader)} == {receipt.id for receipt in receipts}
    assert problems(engine) == ()


def test_a_connection_that_was_closed_meanwhile_costs_no_call(
    store: Store, admin: driver.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.stores.redis.connection.IDLE_SECONDS", 0.0)
    store.insert([new_job()])

    admin.client_kill_filter(_type="normal", skipme=True)

    assert len(store.insert([new_job()])) == 1


def test_a_wake_up_comes_with_a_job(engine: Engine, store: Store) -> None:
    listening, heard = Event(), Event()
    with closing(engine.wakeups()) as wakeups:
        wakeups.start(lambda: heard.set() if listening.is_set() else listening.set())
        assert listening.wait(120)

        store.insert([new_job()])

        assert heard.wait(120)


def test_a_job_whose_record_is_gone_delays_no_other_job(
    engine: Engine, store: Store, admin: driver.Redis
) -> None:
    [first, second, third] = store.insert([new_job()] * 3)
    assert first.id is not None
    assert third.id is not None
    admin.hdel("{forebay}:headers", first.id)

    [job] = claim(store)
    assert job.id == second.id
    admin.hdel("{forebay}:headers", job.id)
    answer = store.settle_and_claim(WORKER, [complete(job)])

    assert [refusal.reason for refusal in answer.refused] == ["gone"]
    assert problems(engine) != ()
    assert [one.id for one in claim(store, 5)] == [third.id]


def test_a_fairness_key_whose_only_job_is_gone_is_forgotten(store: Store, admin: driver.Redis) -> None:
    [gone, other] = store.insert([new_job(limit_keys={"fairness": share}) for share in "ab"])
    assert gone.id is not None
    admin.hdel("{forebay}:headers", gone.id)

    jobs = [job.id for _ in range(3) for job in claim(store)]

    assert jobs == [other.id]
    assert not admin.exists("{forebay}:fairness_keys:default")


def test_a_bucket_stays_for_longer_than_the_slowest_rate_takes_to_fill_it(
    store: Store, admin: driver.Redis
) -> None:
    store.save_queue(DEFAULT_QUEUE, {"enqueue_rate": 1_000, "enqueue_burst": 1})

    store.insert([new_job()])

    assert admin.pttl("{forebay}:enqueue_bucket:enqueue:default") > FULL_AFTER_MS


@pytest.mark.parametrize("damage", [b"", b"\xc1", b"\x93\x01\x02", b"text"])
def test_a_job_whose_head_is_damaged_delays_no_other_job_and_is_found(
    engine: Engine, store: Store, admin: driver.Redis, damage: bytes
) -> None:
    [first, second] = store.insert([new_job()] * 2)
    assert first.id is not None
    admin.hset("{forebay}:headers", first.id, damage)

    assert f"job {first.id} has a damaged header" in problems(engine)
    assert [job.id for job in claim(store, 5)] == [second.id]
    assert store.delete([first.id])[0].applied is False


def test_a_job_without_its_body_reaches_no_handler_with_arguments(store: Store, admin: driver.Redis) -> None:
    store.insert([new_job(payload=BODY)])
    admin.delete("{forebay}:body:1")

    [job] = claim(store)

    assert job.payload == b""


@pytest.mark.shows("R-STORE-52")
def test_a_claim_and_an_insert_take_as_many_commands_whatever_waits(
    store: Store, admin: driver.Redis
) -> None:
    def commands() -> dict[str, int]:
        admin.config_resetstat()
        store.insert([new_job()])
        store.settle_and_claim(WORKER, [complete(job) for job in claim(store, 10)])
        found = admin.info("commandstats")
        return {name: stats["calls"] for name, stats in found.items() if "config" not in name}

    store.insert([new_job(priority=number % 5) for number in range(100)])
    commands()  # a server that has not seen a script yet is given it
    few = commands()
    store.insert([new_job(priority=number % 5) for number in range(5_000)])

    assert commands() == few


@pytest.mark.shows("R-STORE-52")
def test_a_look_at_large_jobs_is_cut_and_the_page_is_whole(engine: Engine, store: Store) -> None:
    receipts = store.insert([new_job(payload=b"x" * 1_000_000)] * 9)

    with closing(engine.reader()) as reader:
        ask = {**_conditions(JobQuery()), "below": None, "limit": 200, "max_bytes": 4_000_000}
        below, _, rows = reader._run("search", ask)  # type: ignore[attr-defined]  # behind the store contract
        page = reader.search(JobQuery(), limit=100)

    assert (below, len(rows)) == (6, 4)
    assert [job.id for job in page.jobs] == [receipt.id for receipt in reversed(receipts)]


def test_a_namespace_that_another_program_uses_is_named_as_such(store: Store, admin: driver.Redis) -> None:
    admin.set("{forebay}:headers", "something")

    with pytest.raises(StoreUnusable, match="keys of another program"):
        store.insert([new_job()])
