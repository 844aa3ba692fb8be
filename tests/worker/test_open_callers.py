"""A program's transaction that stays open delays only calls that need what it has locked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import psycopg
import pytest

from forebay import Forebay, current_job
from forebay.app import busy_retry
from forebay.app.task import Task
from forebay.domain.job_states import JobState
from forebay.errors import StoreBusy
from forebay.operations.settlement_isolation import settle_and_claim_isolating
from forebay.stores.contract.claims_and_results import SettleAndClaimResult
from forebay.stores.postgres.engine import PostgresEngine
from forebay.worker import coordinator
from tests.stores.sqlite_support import in_thread
from tests.urls import url_of
from tests.worker.support import eventually

PATIENCE = 120


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Forebay]:
    with Forebay(url_of("postgresql", tmp_path), defaults={"retries": 0}) as app:
        app.counts()  # the tables are there
        yield app
        assert app.client.read(lambda reader: reader.health()).problems == ()


@pytest.fixture
def work(app: Forebay) -> Task[[], None]:
    return app.task(name="work")(lambda: None)


@pytest.fixture
def caller(app: Forebay, work: Task[[], None]) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that has taken a key, and is open."""
    engine = app.engine
    assert isinstance(engine, PostgresEngine)
    with closing(psycopg.connect(engine.address.dsn)) as connection:
        work.using(unique_key="daily").enqueue_tx(connection)
        yield connection


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy_retry, "BUSY_RETRY_SECONDS", 0.0)


def test_a_worker_goes_on_while_one_settlement_waits_for_a_key(
    app: Forebay, work: Task[[], None], caller: psycopg.Connection[Any]
) -> None:
    has_ended = Event()

    @app.task(name="follow_up_unique")
    def follow_up_unique() -> None:
        current_job().follow_up(work.using(unique_key="daily").job())
        has_ended.set()

    with app.run_worker(threads=2):
        culprit = follow_up_unique.enqueue()
        assert has_ended.wait(PATIENCE)
        innocents = [work.enqueue() for _ in range(20)]
        for one in innocents:
            one.wait(PATIENCE)
        before = culprit.refresh()
        caller.commit()
        after = culprit.wait(PATIENCE)

    assert (before.state, after.state, after.attempt) == (JobState.RUNNING, JobState.COMPLETED, 1)


def test_a_worker_goes_on_when_more_settlements_wait_for_a_key_than_it_has_threads(
    app: Forebay, work: Task[[], None], caller: psycopg.Connection[Any]
) -> None:
    have_ended = Barrier(3)

    @app.task(name="follow_up_unique")
    def follow_up_unique() -> None:
        current_job().follow_up(work.using(unique_key="daily").job())
        have_ended.wait(PATIENCE)

    with app.run_worker(threads=2):
        culprits = [follow_up_unique.enqueue() for _ in range(2)]
        have_ended.wait(PATIENCE)
        more = [follow_up_unique.enqueue() for _ in range(2)]
        have_ended.wait(PATIENCE)
        for one in [work.enqueue() for _ in range(20)]:
            one.wait(PATIENCE)
        before = {job.refresh().state for job in culprits + more}
        caller.rollback()
        after = {(job.wait(PATIENCE).state, job.refresh().attempt) for job in culprits + more}

    assert (before, after) == ({JobState.RUNNING}, {(JobState.COMPLETED, 1)})


def test_a_worker_stops_while_a_settlement_waits_and_the_job_is_not_lost(
    app: Forebay, work: Task[[], None], caller: psycopg.Connection[Any]
) -> None:
    has_ended = Event()

    @app.task(name="follow_up_unique")
    def follow_up_unique() -> None:
        current_job().follow_up(work.using(unique_key="daily").job())
        has_ended.set()

    with app.run_worker(threads=1):
        culprit = follow_up_unique.enqueue()
        assert has_ended.wait(PATIENCE)
        work.enqueue().wait(PATIENCE)
        stopping = in_thread(caller.commit)
    stopping()

    assert culprit.refresh().state is JobState.COMPLETED


def test_a_lock_on_the_row_of_a_lease_does_not_tell_a_task_that_its_lease_is_lost(
    app: Forebay, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = app.engine
    assert isinstance(engine, PostgresEngine)
    has_begun, is_locked, was_undone = Event(), Event(), Event()

    def watched(*args: Any, **options: Any) -> SettleAndClaimResult:
        answer = settle_and_claim_isolating(*args, **options)
        if answer.refused_updates or answer.busy:
            was_undone.set()
        return answer

    monkeypatch.setattr(coordinator, "settle_and_claim_isolating", watched)

    @app.task(name="steps")
    def steps() -> list[object]:
        job = current_job()
        has_begun.set()
        assert is_locked.wait(PATIENCE)
        job.progress(1, 2)
        return [job.step("count", lambda: 7), job.is_lease_lost]

    with app.run_worker(threads=1), closing(psycopg.connect(engine.address.dsn)) as other:
        job = steps.enqueue()
        assert has_begun.wait(PATIENCE)
        other.execute(f"select 1 from {engine.address.schema}.leases for update".encode())
        is_locked.set()
        assert was_undone.wait(PATIENCE)
        other.rollback()

        assert job.result(PATIENCE) == [7, False]
    assert job.refresh().attempt == 1
    assert [step.name for step in app.client.read(lambda reader: reader.progress(job.id)).steps] == ["count"]


def test_threads_that_enqueue_together_do_not_suffer_for_the_one_whose_key_is_taken(
    app: Forebay, work: Task[[], None], caller: psycopg.Connection[Any], no_patience: None
) -> None:
    rounds = 25
    all_there = Barrier(5)

    def keyed() -> int:
        all_there.wait(PATIENCE)
        return sum(_is_busy(lambda: work.using(unique_key="daily").enqueue()) for _ in range(rounds))

    def plain() -> int:
        all_there.wait(PATIENCE)
        return sum(work.enqueue().error is None for _ in range(rounds))

    calls = [in_thread(keyed), *(in_thread(plain) for _ in range(4))]

    assert [call() for call in calls] == [rounds] * 5
    assert len(app.search().jobs) == 4 * rounds


def _is_busy(call: object) -> bool:
    with pytest.raises(StoreBusy, match="unique key 'daily'"):
        call()  # type: ignore[operator]  # a lambda
    return True


def test_who_wants_the_key_waits_for_a_short_transaction_without_holding_up_others(
    app: Forebay, work: Task[[], None], caller: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    is_waiting, pauses = Event(), busy_retry.pauses

    def noted(seconds: float = PATIENCE) -> Iterator[float]:
        for pause in pauses(PATIENCE):
            is_waiting.set()
            yield pause

    monkeypatch.setattr(busy_retry, "pauses", noted)
    keyed = in_thread(lambda: work.using(unique_key="daily").enqueue())
    assert is_waiting.wait(PATIENCE)
    other = work.enqueue()
    caller.commit()

    assert keyed().id != other.id
    assert len(app.search().jobs) == 2


def test_a_coroutine_that_wants_the_key_holds_up_no_other(
    app: Forebay, work: Task[[], None], caller: psycopg.Connection[Any], no_patience: None
) -> None:
    async def all_at_once() -> list[Any]:
        calls = [work.using(unique_key="daily").enqueue_async(), *(work.enqueue_async() for _ in range(9))]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    first, *others = asyncio.run(all_at_once())

    assert isinstance(first, StoreBusy)
    assert not [one for one in others if isinstance(one, BaseException)]


def test_a_batch_that_may_be_stored_in_part_has_the_error_in_its_place(
    app: Forebay, work: Task[[], None], caller: psycopg.Connection[Any]
) -> None:

    handles = app.enqueue_many([work.job(), work.using(unique_key="daily").job(), work.job()], atomic=False)

    assert [type(one.error) for one in handles] == [type(None), StoreBusy, type(None)]


def test_a_transaction_is_known_to_the_worker_before_the_statement_that_completes_the_job(
    app: Forebay, work: Task[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt may come right behind the statement: then the settlement must not wait for its lock."""
    engine = app.engine
    assert isinstance(engine, PostgresEngine)
    opened: list[psycopg.Connection[Any]] = []
    seen: list[bool] = []
    has_ended = Event()
    complete = PostgresEngine.complete_tx

    def interrupted(*args: Any) -> None:
        complete(*args)
        seen.append(current_job().is_completed_in_tx)
        raise KeyboardInterrupt("right behind the statement")

    monkeypatch.setattr(PostgresEngine, "complete_tx", interrupted)

    @app.task(name="serve")
    def serve() -> None:
        opened.append(psycopg.connect(engine.address.dsn))
        with pytest.raises(KeyboardInterrupt):
            current_job().complete_tx(opened[0])
        seen.append(current_job().is_completed_in_tx)
        has_ended.set()
        raise ValueError("and the transaction stays open")

    with app.run_worker(threads=2):
        job = serve.enqueue()
        assert has_ended.wait(PATIENCE)
        # Settled with others, it would hold up their settle-and-claim.
        work.enqueue().wait(PATIENCE)
        before = job.refresh().state
        opened[0].commit()
        after = job.wait(PATIENCE).state
        opened[0].close()

    assert seen == [True, True]
    assert (before, after) == (JobState.RUNNING, JobState.COMPLETED)


def test_a_statement_that_was_refused_leaves_no_open_transaction_behind(app: Forebay) -> None:
    seen: list[bool] = []

    @app.task(name="serve")
    def serve() -> str:
        with pytest.raises(Exception, match="joins the transactions"):
            current_job().complete_tx(object())
        seen.append(current_job().is_completed_in_tx)
        return "served"

    with app.run_worker(threads=1):
        assert serve.enqueue().result(PATIENCE) == "served"
    assert seen == [False]


def test_an_operator_is_told_which_jobs_are_busy(app: Forebay, work: Task[[], None]) -> None:
    engine = app.engine
    assert isinstance(engine, PostgresEngine)
    jobs = [work.enqueue() for _ in range(3)]
    consumer = app.consumer()
    with closing(psycopg.connect(engine.address.dsn)) as connection:
        [held] = consumer.claim(1)
        consumer.complete_tx(connection, held)
        results = app.client.cancel([job.id for job in jobs])
        connection.commit()
    consumer.close()

    assert [result.is_busy for result in results] == [job.id == held.id for job in jobs]
    assert eventually(lambda: jobs[0].refresh().state is JobState.COMPLETED)
