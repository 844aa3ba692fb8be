"""How jobs lie on a Redis server: once, in few places, changed by one script, by the server's clock."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis as driver

from forebay import Forebay
from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.domain.job import JobId
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from forebay.stores.redis import key_layout
from forebay.worker.coordinator import POLL_SECONDS
from tests.redis_server import RedisServer
from tests.stores.support import WORKER, claim, complete, fail, new_job

MARK = b"a payload that is nowhere else"
CODE = "\n".join(
    path.read_text(encoding="utf-8")
    for path in sorted(Path(key_layout.__file__).parent.rglob("*"))
    if path.suffix in (".py", ".lua")
)


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


@pytest.fixture
def engine(own_server: RedisServer, admin: driver.Redis) -> Engine:
    return open_engine(f"{own_server.url()}?persistence=none")


@pytest.fixture
def store(engine: Engine) -> Iterator[Store]:
    with closing(engine.store()) as store:
        store.insert([new_job()])  # so that all scripts of a walk are there
        store.settle_and_claim(WORKER, [fail(job, after_ms=0) for job in claim(store)])
        store.promote()
        store.settle_and_claim(WORKER, [complete(job) for job in claim(store)])
        yield store


def content(admin: driver.Redis, key: bytes) -> bytes:
    dump: bytes | None = admin.dump(key)
    return dump or b""


def places(admin: driver.Redis, job_id: JobId) -> dict[str, float]:
    """The orders in which a job stands, with its score."""
    found = {}
    for key in admin.scan_iter(_type="zset"):
        for member, score in admin.zscan_iter(key):
            if member.decode().endswith(job_id):
                found[key.decode().removeprefix("{forebay}:")] = score
    return found


def scripts(admin: driver.Redis) -> int:
    return int(admin.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"])


def now_of(admin: driver.Redis) -> int:
    seconds, micros = admin.time()
    return int(seconds) * 1_000 + int(micros) // 1_000


@pytest.mark.shows("R-STORE-33")
def test_a_payload_is_stored_once_and_orders_hold_only_ids(store: Store, admin: driver.Redis) -> None:
    admin.config_set("rdbcompression", "no")  # so that a dump shows what is there
    store.insert([new_job(payload=MARK)])

    def holders() -> list[bytes]:
        return [key for key in admin.scan_iter() if MARK in content(admin, key)]

    pending = holders()
    [job] = claim(store)
    running = holders()
    store.settle_and_claim(WORKER, [complete(job)])

    assert len(pending) == 1
    assert pending == running == holders()
    assert pending[0].startswith(b"{forebay}:body:")


@pytest.mark.shows("R-STORE-34", "R-STORE-38")
def test_an_insert_is_one_script_that_writes_all_of_it(store: Store, admin: driver.Redis) -> None:
    admin.config_resetstat()

    [receipt] = store.insert([new_job(unique_key="u")])

    assert scripts(admin) == 1
    assert receipt.id is not None
    assert set(places(admin, receipt.id)) == {"ready:default"}
    assert admin.hexists("{forebay}:headers", receipt.id)
    assert admin.hget("{forebay}:unique:default", "u") == receipt.id.encode()
    assert admin.hget("{forebay}:counts", "default pending") == b"1"
    assert admin.exists("{forebay}:body:2") == 1


@pytest.mark.shows("R-STORE-35", "R-STORE-38", "R-BUG-28", "R-LEASE-51")
def test_a_claim_is_one_script_that_names_its_holder_and_its_end(store: Store, admin: driver.Redis) -> None:
    store.insert([new_job(lease_ms=60_000)])
    before = now_of(admin)
    admin.config_resetstat()

    [job] = claim(store)

    assert scripts(admin) == 1
    [(place, ends_at)] = places(admin, job.id).items()
    assert place == f"leases:{WORKER}"
    assert before + 60_000 <= ends_at <= now_of(admin) + 60_000


@pytest.mark.shows("R-STORE-36", "R-EDGE-89", "R-BUG-31")
def test_a_retry_stands_by_its_due_time_and_moves_in_one_script(store: Store, admin: driver.Redis) -> None:
    store.insert([new_job()])
    [job] = claim(store)
    before = now_of(admin)
    store.settle_and_claim(WORKER, [fail(job, after_ms=60_000)])
    [(place, due_at)] = places(admin, job.id).items()
    assert place == "delayed:default"
    assert before + 60_000 <= due_at <= now_of(admin) + 60_000

    admin.zincrby("{forebay}:delayed:default", -due_at, f"{job.seq:013}:{job.id}")
    admin.config_resetstat()
    assert store.promote() == 1

    assert scripts(admin) == 1
    assert set(places(admin, job.id)) == {"ready:default"}


@pytest.mark.shows("R-STORE-44", "R-STORE-52")
def test_many_due_jobs_are_promoted_by_scripts_of_a_hundred(store: Store, admin: driver.Redis) -> None:
    store.insert([new_job(run_at=1 + now_of(admin) + 60_000)] * 250)
    for member, _ in admin.zscan_iter("{forebay}:delayed:default", count=1_000):
        admin.zadd("{forebay}:delayed:default", {member: 1})
    admin.config_resetstat()

    assert (store.promote(220), store.promote()) == (220, 30)

    assert scripts(admin) == 4


@pytest.mark.shows("R-STORE-38")
def test_a_final_job_stands_by_queue_state_and_time(store: Store, admin: driver.Redis) -> None:
    store.insert([new_job()])
    [job] = claim(store)
    before = now_of(admin)

    store.settle_and_claim(WORKER, [complete(job)])

    [(place, ended_at)] = places(admin, job.id).items()
    assert place == "completed:default"
    assert before <= ended_at <= now_of(admin)


@pytest.mark.shows("R-STORE-45")
def test_every_time_is_the_servers(
    store: Store, engine: Engine, admin: driver.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 0.0)
    monkeypatch.setattr("time.time_ns", lambda: 0)
    before = now_of(admin)

    [receipt] = store.insert([new_job(delay_ms=1)])

    assert receipt.id is not None
    with closing(engine.reader()) as reader:
        [job] = reader.jobs([receipt.id])
        assert job is not None
        assert before <= job.created_at <= reader.now()
        assert job.run_at == job.created_at + 1
        assert before <= reader.now() <= now_of(admin)


@pytest.mark.shows("R-BUG-29")
def test_the_first_in_is_the_first_out_and_states_are_in_lower_case(
    store: Store, admin: driver.Redis
) -> None:
    receipts = store.insert([new_job()] * 20) + store.insert([new_job()])

    assert [job.id for job in claim(store, 30)] == [receipt.id for receipt in receipts]
    states = {str(field).rstrip("'").rpartition(" ")[2] for field in admin.hkeys("{forebay}:counts")}
    assert {"pending", "running", "completed"} <= states
    assert all(state == state.lower() for state in states)


@pytest.mark.shows("R-CFG-55")
def test_the_namespace_is_the_beginning_of_all_keys(own_server: RedisServer, admin: driver.Redis) -> None:
    with closing(open_engine(f"{own_server.url()}?persistence=none&namespace=billing").store()) as store:
        store.insert([new_job()])
        claim(store)

    assert {key.partition(b":")[0] for key in admin.scan_iter()} == {b"{billing}"}


@pytest.mark.shows("R-STORE-37")
def test_no_call_waits_inside_the_server() -> None:
    assert not re.search(r"['\"](B[LRZ]\w*POP\w*|BLMOVE|XREAD\w*|WAIT|WAITAOF)['\"]", CODE)
    assert POLL_SECONDS <= 5


@pytest.mark.shows("R-NFR-10", "R-STORE-47", "R-STORE-08")
def test_a_program_with_a_worker_needs_few_connections(own_server: RedisServer, admin: driver.Redis) -> None:
    with Forebay(f"{own_server.url()}?persistence=none") as app:

        @app.task(name="answer")
        def answer(number: int) -> int:
            return number

        with app.run_worker(threads=16):
            jobs = app.enqueue_many([answer.job(number) for number in range(200)])
            assert [job.result(timeout=120) for job in jobs] == list(range(200))

            clients = [one for one in admin.client_list() if one["name"] == "forebay"]

    assert 0 < len(clients) <= 10


def test_a_job_that_is_ended_by_force_leaves_no_place_behind(store: Store, admin: driver.Redis) -> None:
    store.save_limit(Limit(scope="key:tenant", concurrency=1))
    store.insert([new_job(limit_keys={"tenant": "a"})])
    [job] = claim(store)

    store.cancel([job.id], force=True)

    assert admin.exists("{forebay}:limit_slots") == 0
