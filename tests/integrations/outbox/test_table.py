"""Jobs that are written into another database and carried to their queue, each once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any, Final

import msgspec
import psycopg
import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, MetaData, create_engine, event, select, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool

from forebay import Forebay
from forebay.domain.job import Dependency
from forebay.domain.job_query import JobQuery
from forebay.errors import (
    ConfigError,
    Forbidden,
    ForebayError,
    RateLimited,
    SchemaNewer,
    StoreError,
    StoreUnavailable,
    StoreUnusable,
    TooManyRequests,
    Unauthenticated,
)
from forebay.integrations.outbox.relay import Relay, outbox_stats, relay_batch, run_relay
from forebay.integrations.outbox.table import Outbox, outbox_table
from forebay.stores.contract.store import Store
from forebay.testing.fault_injection import inject_faults
from tests.urls import url_of
from tests.worker.support import eventually

WITHIN: Final = 60.0
SHOP: Final = """
import os, signal, sys
from sqlalchemy import create_engine, event
from forebay import Forebay
from forebay.integrations.outbox.table import Outbox
from forebay.integrations.outbox.relay_batch import relay_batch

engine = create_engine(sys.argv[1])

@event.listens_for(engine, "before_cursor_execute")
def die(connection, cursor, statement, *_):
    if statement.lstrip().upper().startswith("DELETE"):
        os.kill(os.getpid(), signal.SIGKILL)

with Forebay(sys.argv[2]) as queue:
    relay_batch(Outbox(queue).table, engine, queue.client)
print("lived")
"""


class Shop:
    """A program whose tables are here and whose queue is there."""

    def __init__(self, database: str, queue: str) -> None:
        self.database = database
        self.url = queue
        self.engine = create_engine(database)
        self.queue = Forebay(queue)
        self.double = self.queue.task(name="double")(_double)
        self.outbox = Outbox(self.queue)
        self.outbox.create(self.engine)
        with self.engine.begin() as connection:
            connection.execute(text("create table orders (id integer primary key)"))

    def close(self) -> None:
        self.queue.close()
        self.engine.dispose()

    def order(self, *numbers: int) -> list[Any]:
        with Session(self.engine) as session, session.begin():
            for number in numbers:
                session.execute(text("insert into orders values (:id)"), {"id": number})
            return self.outbox.enqueue(session, [self.double.job(number) for number in numbers])

    def carry(self, most: int = 100) -> Any:
        return relay_batch(self.outbox.table, self.engine, self.queue.client, most)

    def carry_after_a_kill(self) -> Any:
        """Wait for the rows: the server ends the transaction of a killed relay a moment later."""
        return eventually(lambda: found if (found := self.carry()).stored else None)

    def stored(self) -> list[str]:
        return sorted(job.id for job in self.queue.search(JobQuery(), limit=1_000).jobs)

    def rows(self) -> int:
        return outbox_stats(self.outbox.table, self.engine).rows


def _double(number: int) -> int:
    return 2 * number


def database_of(kind: str, folder: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{folder}/shop.db"
    url, _, schema = url_of("postgresql", folder).partition("?schema=")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}".encode())
    return f"{url.replace('postgresql:', 'postgresql+psycopg:')}?options=-csearch_path%3D{schema}"


@pytest.fixture(params=["sqlite to redis", "postgresql to redis", "sqlite to sqlite"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    here, _, there = request.param.partition(" to ")
    made = Shop(database_of(here, tmp_path), url_of(there, tmp_path))
    yield made
    made.close()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(database_of("sqlite", tmp_path), url_of("redis", tmp_path))
    yield made
    made.close()


def test_a_job_comes_with_the_commit_and_not_with_a_rollback(shop: Shop) -> None:
    [job] = shop.order(21)
    with Session(shop.engine) as session:
        shop.outbox.enqueue(session, [shop.double.job(1)])
        session.rollback()

    assert shop.stored() == []
    carried = shop.carry()

    assert (carried.stored, carried.refused, shop.rows()) == (1, 0, 0)
    assert shop.stored() == [job.id]
    with shop.queue.run_worker():
        assert job.result(timeout=WITHIN) == 42


def test_a_relay_that_dies_between_its_two_steps_carries_nothing_twice(shop: Shop) -> None:
    jobs = shop.order(1, 2, 3)

    killed(shop)

    assert shop.stored() == sorted(job.id for job in jobs)
    assert shop.rows() == 3
    with shop.queue.run_worker():
        assert [job.result(timeout=WITHIN) for job in jobs] == [2, 4, 6]
    # They are final by now, and still no relay runs them again.
    assert shop.carry_after_a_kill().stored == 3
    assert (shop.rows(), shop.stored()) == (0, sorted(job.id for job in jobs))
    assert [job.refresh().attempt for job in jobs] == [1, 1, 1]


def killed(shop: Shop) -> None:
    """A relay that has stored all and dies before it deletes a row."""
    ended = subprocess.run(
        [sys.executable, "-c", SHOP, shop.database, shop.url],
        capture_output=True,
        timeout=WITHIN,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, b"")


def test_a_job_that_the_queue_has_forgotten_is_not_carried_again(shop: Shop) -> None:
    alone = shop.order(1, 2)
    with Session(shop.engine) as session, session.begin():
        child = replace(shop.double.job(5), depends_on=(Dependency(1),))
        graph = shop.outbox.enqueue(session, [shop.double.job(4), child])
    killed(shop)
    jobs = [*alone, *graph]
    with shop.queue.run_worker():
        assert [job.result(timeout=WITHIN) for job in jobs] == [2, 4, 8, 10]
    # As Redis does by itself with all but the newest finished jobs.
    shop.queue.client.write(lambda store: store.delete([job.id for job in jobs]))
    assert shop.stored() == []

    carried = shop.carry_after_a_kill()

    assert (carried.stored, carried.refused, shop.rows()) == (3, 0, 0)
    assert shop.stored() == []


def test_an_idempotency_key_of_the_job_itself_stays(small: Shop) -> None:
    with Session(small.engine) as session, session.begin():
        [job] = small.outbox.enqueue(session, [small.double.using(idempotency_key="order 7").job(1)])

    small.carry()

    assert job.refresh().idempotency_key == "order 7"


def test_many_relays_carry_each_job_once(shop: Shop) -> None:
    jobs = [job for start in range(0, 200, 20) for job in shop.order(*range(start, start + 20))]

    def relay(_: int) -> int:
        count: int = 0
        while (carried := shop.carry(7)).has_more:
            count += carried.stored
        return count

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(relay, range(4)))

    assert eventually(lambda: shop.carry().stored == 0 and shop.rows() == 0)
    assert shop.stored() == sorted(job.id for job in jobs)


def test_a_row_that_is_refused_waits_with_its_reason_and_delays_no_other_row(small: Shop) -> None:
    small.queue.client.write(lambda store: store.save_queue("tiny", {"max_length": 1}))  # type: ignore[arg-type]
    with Session(small.engine) as session, session.begin():
        small.outbox.enqueue(session, [small.double.using(queue="tiny").job(each) for each in (1, 2)])
        small.outbox.enqueue(session, [small.double.job(3)])

    carried = small.carry()

    assert (carried.stored, carried.refused) == (2, 1)
    assert small.carry().refused == 0  # not yet due again
    held = outbox_stats(small.outbox.table, small.engine)
    assert (held.rows, held.refused) == (1, 1)
    with small.engine.connect() as connection:
        [row] = connection.execute(select(small.outbox.table)).all()
    assert "tiny" in row.error
    assert (row.tries, row.due_at > row.written_at) == (1, True)


def test_a_row_that_cannot_be_read_is_refused_and_kept(small: Shop) -> None:
    small.order(1)
    with small.engine.begin() as connection:
        connection.execute(small.outbox.table.update().values(jobs=b"\xc1"))

    assert (small.carry().refused, small.rows()) == (1, 1)


def reason_of(shop: Shop) -> str:
    with shop.engine.connect() as connection:
        [row] = connection.execute(select(shop.outbox.table)).all()
    return str(row.error)


def test_a_row_of_a_newer_program_waits_for_a_newer_relay(small: Shop) -> None:
    small.order(1)
    with small.engine.begin() as connection:
        body = connection.execute(select(small.outbox.table.c.jobs)).scalar_one()
        [job] = msgspec.msgpack.decode(body)
        job["policy"]["patience"] = 7
        connection.execute(small.outbox.table.update().values(jobs=msgspec.msgpack.encode([job])))

    assert (small.carry().refused, small.rows(), small.stored()) == (1, 1, [])
    assert "'patience' of a job is unknown here; upgrade this relay" in reason_of(small)


def test_a_row_of_an_older_program_is_carried(small: Shop) -> None:
    small.order(1)
    with small.engine.begin() as connection:
        body = connection.execute(select(small.outbox.table.c.jobs)).scalar_one()
        [job] = msgspec.msgpack.decode(body)
        del job["cost"]
        connection.execute(small.outbox.table.update().values(jobs=msgspec.msgpack.encode([job])))

    assert (small.carry().stored, small.rows()) == (1, 0)


@pytest.mark.parametrize("has_child", [False, True])
def test_a_job_whose_id_another_one_has_stays_in_the_outbox(shop: Shop, has_child: bool) -> None:
    shop.double.using(id="order-7").enqueue(1)
    jobs = [shop.double.using(id="order-7").job(2)]
    if has_child:
        jobs.append(replace(shop.double.job(3), depends_on=(Dependency(1),)))
    with Session(shop.engine) as session, session.begin():
        shop.outbox.enqueue(session, jobs)

    carried = shop.carry()

    assert (carried.stored, carried.refused, shop.rows()) == (0, 1, 1)
    assert "the id order-7 is that of another job, of task double in queue default" in reason_of(shop)


def test_a_job_that_is_repeated_with_its_id_is_stored_once(shop: Shop) -> None:
    shop.double.using(id="order-7").enqueue(1)
    with Session(shop.engine) as session, session.begin():
        shop.outbox.enqueue(session, [shop.double.using(id="order-7").job(1)])

    assert (shop.carry().stored, shop.rows(), shop.stored()) == (1, 0, ["order-7"])


def test_rows_are_stored_in_their_order(shop: Shop) -> None:
    [parent] = shop.order(1)
    with Session(shop.engine) as session, session.begin():
        child = replace(shop.double.job(2), depends_on=(Dependency(parent.id),))
        shop.outbox.enqueue(session, [child])

    carried = shop.carry()

    assert (carried.stored, carried.refused) == (2, 0)


@pytest.mark.parametrize(
    "error",
    [
        Unauthenticated("who are you"),
        Forbidden("not with this key"),
        TooManyRequests("slower", limit=1, retry_after=7.0, reset_seconds=7),
    ],
)
def test_what_keeps_out_a_whole_relay_is_no_fault_of_the_jobs(small: Shop, error: ForebayError) -> None:
    small.order(1, 2)

    with refusing(small, error), pytest.raises(type(error)):
        small.carry()

    assert outbox_stats(small.outbox.table, small.engine).refused == 0
    assert small.carry().stored == 2


def test_a_row_is_tried_again_when_the_queue_says(small: Shop) -> None:
    small.order(1)
    busy = RateLimited("slower", queue="default", client=None, limit=1, retry_after=500.0)

    with refusing(small, busy):
        assert small.carry().refused == 1

    with small.engine.connect() as connection:
        [row] = connection.execute(select(small.outbox.table)).all()
    assert row.due_at - row.written_at >= 500_000


def test_jobs_that_depend_on_each_other_are_carried_together(shop: Shop) -> None:
    first = shop.double.job(1)
    parent, child = shop.double.job(4), replace(shop.double.job(5), depends_on=(Dependency(1),))

    with Session(shop.engine) as session, session.begin():
        [_, waits] = shop.outbox.enqueue(session, [parent, child])
        shop.outbox.enqueue(session, [first])

    assert shop.rows() == 2
    assert shop.carry().stored == 2
    assert len(shop.stored()) == 3
    assert waits.refresh().state == "blocked"


def test_a_delay_counts_from_the_transaction(small: Shop) -> None:
    before = small.queue.client.now_ms()
    with Session(small.engine) as session, session.begin():
        [job] = small.outbox.enqueue(session, [small.double.using(delay=3_600).job(1)])

    small.carry()

    assert 3_600_000 <= job.refresh().run_at - before < 3_660_000


def test_while_the_queue_is_away_jobs_stay_where_they_are(small: Shop) -> None:
    small.order(1)
    away = Forebay("redis://127.0.0.1:1/0")

    with away, pytest.raises(StoreUnavailable):
        relay_batch(small.outbox.table, small.engine, away.client)

    assert (small.rows(), outbox_stats(small.outbox.table, small.engine).refused) == (1, 0)


def test_a_relay_in_the_program_carries_what_comes(small: Shop) -> None:
    with run_relay(small.outbox, small.engine, every=0.01) as relay, small.queue.run_worker():
        [job] = small.order(21)
        eventually(lambda: small.rows() == 0)
        assert job.result(timeout=WITHIN) == 42
    assert (relay.stored, relay.is_running) == (1, False)
    relay.stop()


def test_a_relay_begins_while_the_queue_is_away(small: Shop) -> None:
    small.order(1)
    with Forebay("redis://127.0.0.1:1/0") as away, run_relay(Outbox(away), small.engine) as relay:
        assert relay.is_running
    assert (relay.stored, small.rows()) == (0, 1)


def test_a_relay_outlives_an_exhausted_pool(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = create_engine(
        database_of("sqlite", tmp_path), poolclass=QueuePool, pool_size=1, max_overflow=0, pool_timeout=0.01
    )
    with Forebay(f"sqlite:///{tmp_path}/jobs.db") as queue:
        outbox = Outbox(queue)
        outbox.create(engine)
        with run_relay(outbox, engine, every=0.01) as relay:
            with engine.connect() as connection:
                eventually(lambda: "QueuePool limit" in caplog.text)
                outbox.enqueue(connection, [queue.task(name="double")(_double).job(1)])
                connection.commit()
            eventually(lambda: relay.stored == 1)
    engine.dispose()


class Refusing:
    """A store that stores nothing, for one reason."""

    def __init__(self, store: Store, error: ForebayError) -> None:
        self._store = store
        self._error = error

    def insert(self, *_: Any, **__: Any) -> Any:
        raise self._error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@contextmanager
def refusing(shop: Shop, error: ForebayError) -> Iterator[None]:
    client, engine, clock = shop.queue.client, shop.queue.engine, shop.queue.clock
    client.switch_store(inject_faults(engine, lambda store: Refusing(store, error)), clock)
    try:
        yield
    finally:
        client.switch_store(engine, clock)


@pytest.mark.parametrize("error", [StoreUnusable, SchemaNewer, StoreError])
def test_a_relay_outlives_what_is_wrong_with_the_queue(
    small: Shop, caplog: pytest.LogCaptureFixture, error: type[ForebayError]
) -> None:
    with run_relay(small.outbox, small.engine, every=0.01) as relay:
        with refusing(small, error("not now")):
            small.order(1)
            eventually(lambda: "not now" in caplog.text)
            assert (small.rows(), outbox_stats(small.outbox.table, small.engine).refused) == (1, 0)
        eventually(lambda: relay.stored == 1)


def test_a_relay_begins_with_one_batch_and_stops_between_two(small: Shop) -> None:
    small.order(1, 2, 3)
    relay = Relay(small.outbox.table, small.engine, small.queue.client, limit=1)
    is_there, may_go = Event(), Event()

    @event.listens_for(small.engine, "before_cursor_execute")
    def hold(_: Any, __: Any, statement: str, *___: Any) -> None:
        if statement.startswith("DELETE") and relay.stored == 1:
            is_there.set()
            may_go.wait(WITHIN)

    with ThreadPoolExecutor(2) as threads:
        try:
            threads.submit(relay.start).result(timeout=WITHIN / 2)  # does not wait for the second batch
            assert is_there.wait(WITHIN)
            stopped = threads.submit(relay.stop)
            eventually(relay._is_stopped.is_set)
        finally:
            may_go.set()
        stopped.result(timeout=WITHIN)
    assert (relay.stored, small.rows(), relay.is_running) == (2, 1, False)


def test_a_relay_needs_a_blocking_engine(small: Shop) -> None:
    engine = create_async_engine("postgresql+psycopg://127.0.0.1:1/shop")
    with pytest.raises(ConfigError, match="needs a blocking engine"), run_relay(small.outbox, engine):  # type: ignore[arg-type]
        pass


def test_an_async_session_writes_too(small: Shop) -> None:
    async def order() -> None:
        engine = create_async_engine(async_url)
        async with AsyncSession(engine) as session, session.begin():
            await small.outbox.enqueue_async(session, [small.double.job(1)])
        async with engine.begin() as connection:
            await small.outbox.enqueue_async(connection, [small.double.job(2)])
            with pytest.raises(ConfigError, match="AsyncConnection lives on an event loop"):
                small.outbox.enqueue(connection, [])  # type: ignore[arg-type]
        await engine.dispose()

    async_url = database_of("postgresql", Path())
    blocking = create_engine(async_url)
    small.outbox.create(blocking)

    asyncio.run(order())

    assert relay_batch(small.outbox.table, blocking, small.queue.client).stored == 2
    blocking.dispose()
    with Session(small.engine) as session, pytest.raises(ConfigError, match="Session blocks: call enqueue"):
        asyncio.run(small.outbox.enqueue_async(session, []))  # type: ignore[arg-type]


def test_the_table_is_a_part_of_the_programs_own_metadata(tmp_path: Path) -> None:
    metadata = MetaData()
    table = outbox_table(metadata, "shop_outbox")
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    metadata.create_all(engine)

    with Forebay("memory://") as queue, engine.begin() as connection:
        Outbox(queue, table).enqueue(connection, [queue.task(name="double")(_double).job(1)])

    assert outbox_stats(table, engine).rows == 1
    engine.dispose()


@pytest.mark.parametrize(
    ("most", "every"), [(0, 1.0), (1_001, 1.0), (10, 0.0), (10, float("nan")), (10, 4_000.0)]
)
def test_what_no_relay_can_do_is_refused(small: Shop, most: int, every: float) -> None:
    with pytest.raises(ConfigError, match="a relay"):
        Relay(small.outbox.table, small.engine, small.queue.client, every=every, limit=most).tick()


def test_only_jobs_are_taken(small: Shop) -> None:
    with Session(small.engine) as session, pytest.raises(ValueError, match="only jobs made by"):
        small.outbox.enqueue(session, ["double"])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="an outbox is for a Forebay object"):
        Outbox("redis://")  # type: ignore[arg-type]


# The command


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "forebay", "outbox", *words]


def run_command(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words),
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )


def test_the_command_carries_what_is_there_once(small: Shop) -> None:
    small.order(1, 2)

    answer = run_command("--once", "--json", FOREBAY_OUTBOX_DATABASE=small.database, FOREBAY_URL=small.url)

    assert json.loads(answer.stdout) == {"stored": 2, "refused": 0}, answer.stderr
    assert (len(small.stored()), small.rows()) == (2, 0)


def test_the_command_runs_until_a_signal(small: Shop) -> None:
    words = command("--database", small.database, "--url", small.url, "--polling-interval", "10ms")
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            small.order(1)
            eventually(lambda: small.rows() == 0)
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=WITHIN)
        finally:
            process.kill()
    assert (process.returncode, out) == (0, "1 rows of the outbox stored, 0 refused\n")


def test_commands_that_are_killed_at_any_time_carry_each_job_once(small: Shop) -> None:
    jobs = small.order(*range(100))
    words = command("--database", small.database, "--url", small.url, "--batch-size", "5")
    for wanted in (95, 60, 20):
        with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
            eventually(lambda wanted=wanted: small.rows() <= wanted)  # type: ignore[misc]
            process.kill()

    assert run_command("--database", small.database, "--url", small.url, "--once").returncode == 0
    assert (small.rows(), small.stored()) == (0, sorted(job.id for job in jobs))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--database", "nonsense"), "--database does not name a database that SQLAlchemy can open"),
        (("--database", "foo://x/y"), "--database does not name a database that SQLAlchemy can open"),
        (("--database", "sqlite:///{folder}/empty.db"), "there is no table forebay_outbox"),
    ],
)
def test_the_command_says_what_is_wrong(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    answer = run_command(
        "--once", "--url", f"sqlite:///{tmp_path}/jobs.db", *(word.format(folder=tmp_path) for word in words)
    )

    assert answer.returncode != 0
    assert why in answer.stderr


def test_the_command_makes_the_table_if_it_is_asked_to(tmp_path: Path) -> None:
    answer = run_command(
        "--once",
        "--create",
        *("--database", f"sqlite:///{tmp_path}/shop.db", "--table", "mine"),
        *("--url", f"sqlite:///{tmp_path}/jobs.db"),
    )

    assert (answer.returncode, answer.stdout) == (0, "0 rows of the outbox stored, 0 refused\n")
    made: Engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    assert outbox_stats(outbox_table(MetaData(), "mine"), made).rows == 0
    made.dispose()
