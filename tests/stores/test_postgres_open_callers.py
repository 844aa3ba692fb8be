"""A caller's transaction that stays open stops nothing but the calls that need what it holds.

Every test keeps such a transaction open and uses the lock time-out that users have. A call that waited for
the transaction would raise for the whole batch after two seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from forebay.app.due_schedules import fire_due
from forebay.domain.dependency_graph import dependencies_of
from forebay.domain.job import Job, JobId, NewJob
from forebay.domain.job_update import JobUpdate
from forebay.domain.outcome import Completed
from forebay.domain.schedule import Schedule, ScheduleDefinition
from forebay.domain.schedule_runs import POSTPONE_MS, plan_advance, plan_runs
from forebay.domain.settlement import Settlement, decide
from forebay.errors import StoreBusy
from forebay.operations.settlement_isolation import failed_settlement, settle_and_claim_isolating
from forebay.stores.contract.claims_and_results import ActionResult, QueueClaim
from forebay.stores.postgres import dependency_propagation
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.reader import PostgresReader
from forebay.stores.postgres.store import PostgresStore
from forebay.stores.postgres.transaction import JobKey, Transaction
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import DEFAULT, MAIL, MINUTE, look, put, put_many
from tests.stores.postgres_support import hasty_locks, make_engine, problems, raw, server
from tests.stores.support import SWEEPER, WORKER, claim, complete, new_job


@pytest.fixture
def engine(clock: ManualClock, postgres: object) -> Iterator[PostgresEngine]:
    engine = make_engine(clock)
    yield engine
    assert problems(engine) == ()


@pytest.fixture
def store(engine: PostgresEngine) -> Iterator[PostgresStore]:
    store = engine.store()
    yield store
    store.close()


@pytest.fixture
def reader(engine: PostgresEngine) -> Iterator[PostgresReader]:
    reader = engine.reader()
    yield reader
    reader.close()


@contextmanager
def open_caller() -> Iterator[psycopg.Connection[Any]]:
    """A transaction that is open until the block ends, and then undone."""
    connection = psycopg.connect(server().url())
    try:
        yield connection
    finally:
        connection.rollback()  # a server notices the end of a connection some time after it
        connection.close()


def keyed(kind: str, key: str = "daily", **changes: Any) -> NewJob:
    ttl = {"idempotency_ttl_ms": MINUTE} if kind == "idempotency" else {}
    return new_job(**{f"{kind}_key": key}, **ttl, **changes)


def ended(job: Job, *follow_ups: NewJob) -> Settlement:
    return decide(job, Completed(follow_ups=follow_ups), 0.0)


def outcomes(results: list[ActionResult]) -> list[tuple[bool, bool]]:
    return [(result.applied, result.is_busy) for result in results]


# Keys and ids


@pytest.mark.parametrize("kind", ["unique", "idempotency"])
def test_a_key_of_an_open_transaction_is_refused_as_busy_and_is_there_for_the_next_after_its_end(
    engine: PostgresEngine, store: PostgresStore, kind: str
) -> None:
    with open_caller() as caller:
        [theirs] = engine.insert_tx(caller, [keyed(kind)])
        with pytest.raises(StoreBusy, match=rf"{kind} key 'daily' of queue default .* open transaction"):
            store.insert([keyed(kind)])
        [other] = store.insert([keyed(kind, "weekly")])
        caller.commit()
        [known] = store.insert([keyed(kind)])
    with open_caller() as caller:
        engine.insert_tx(caller, [keyed(kind, "monthly")])
    [new] = store.insert([keyed(kind, "monthly")])

    assert (other.is_new, known.is_new, known.id, new.is_new) == (True, False, theirs.id, True)


def test_a_key_that_a_stored_job_holds_is_answered_whichever_transaction_wants_it(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    holder = put(store, unique_key="daily")
    with open_caller() as caller, open_caller() as another:
        theirs = [engine.insert_tx(one, [keyed("unique")])[0].id for one in (caller, another)]
        [ours] = store.insert([keyed("unique")])

    assert {ours.id, *theirs} == {holder}


def test_one_transaction_may_take_the_same_keys_and_ids_again_and_again(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    with open_caller() as caller:
        first = [engine.insert_tx(caller, [keyed("unique", str(n))])[0] for n in range(40)]
        again = [engine.insert_tx(caller, [keyed("unique", str(n))])[0] for n in range(40)]
        [(locks,)] = caller.execute(
            "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
        ).fetchall()
        caller.commit()

    assert [one.id for one in first] == [one.id for one in again]
    assert locks == 17  # the server has 64 for each connection, for all that it locks


@pytest.fixture
def endless_locks(store: PostgresStore) -> Iterator[None]:
    """A lock that is waited for as long as usual ends the statement, and that is no StoreBusy."""
    session = store._connection.open()
    session.execute("set lock_timeout = 0; set statement_timeout = '10s'", prepare=False)
    yield
    session.execute("reset lock_timeout; reset statement_timeout", prepare=False)


@pytest.mark.usefixtures("endless_locks")
def test_a_key_behind_the_first_sixteen_of_a_transaction_is_waited_for_briefly(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    with open_caller() as caller:
        engine.insert_tx(caller, [keyed("unique", str(n)) for n in range(17)])
        with pytest.raises(StoreBusy, match="16"):
            store.insert([keyed("unique", "16")])  # the seventeenth in their order is "9"
        with pytest.raises(StoreBusy, match=r'lock.*relation "job_keys"'):
            store.insert([keyed("unique", "9")])
        [other] = store.insert([keyed("unique", "other")])
        caller.commit()
    [known] = store.insert([keyed("unique", "9")])

    assert (other.is_new, known.is_new) == (True, False)


@pytest.mark.usefixtures("endless_locks")
def test_an_id_behind_the_first_sixteen_of_a_transaction_is_waited_for_briefly(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    brought = [new_job(id=JobId(f"mine-{n:02}")) for n in range(17)]
    with open_caller() as caller:
        engine.insert_tx(caller, brought)
        with pytest.raises(StoreBusy, match="mine-15"):
            store.insert([brought[15]])
        with pytest.raises(StoreBusy, match=r'lock.*relation "jobs'):
            store.insert([brought[16]])
        [other] = store.insert([new_job(id=JobId("other"))])
    [new] = store.insert([brought[16]])

    assert (other.is_new, new.is_new) == (True, True)


@pytest.mark.usefixtures("endless_locks")
def test_a_revival_waits_briefly_for_a_key_behind_the_first_sixteen(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    dead = put(store, unique_key="9")
    store.cancel([dead])
    with open_caller() as caller:
        engine.insert_tx(caller, [keyed("unique", str(n)) for n in range(17)])
        with pytest.raises(StoreBusy, match=r'lock.*relation "job_keys"'):
            store.revive([dead])
    [revived] = store.revive([dead])

    assert revived.applied


def test_locks_are_waited_for_as_usual_after_keys(engine: PostgresEngine, store: PostgresStore) -> None:
    def seen(tx: Transaction) -> tuple[str, str]:
        tx.find_key_holders([JobKey("default", "unique", "other")])
        with tx.short_lock_timeout():
            inside = lock_timeout(tx)
        return inside, lock_timeout(tx)

    with open_caller() as caller:
        engine.insert_tx(caller, [keyed("unique", str(n)) for n in range(17)])
        crowded = store._transact_with_retry(seen)

    assert (crowded, len(set(store._transact_with_retry(seen)))) == (("10ms", crowded[1]), 1)
    assert crowded[1] != "10ms"


def lock_timeout(tx: Transaction) -> str:
    row = tx._raw.execute(b"select current_setting('lock_timeout')", binary=True).fetchone()
    assert row is not None
    return str(row[0])


def test_an_id_of_an_open_transaction_is_refused_as_busy(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    brought = new_job(id=JobId("mine"))
    with open_caller() as caller:
        engine.insert_tx(caller, [brought])
        with pytest.raises(StoreBusy, match="job id mine is taken in an open transaction"):
            store.insert([brought])
        receipts = store.insert([brought, new_job(id=JobId("other"))], atomic=False)
        with pytest.raises(StoreBusy):
            store.insert([brought], on_conflict="ignore")
    [new] = store.insert([brought])

    assert [(type(one.error), one.is_new) for one in receipts] == [(StoreBusy, False), (type(None), True)]
    assert new.is_new


def test_jobs_that_are_stored_one_by_one_do_not_suffer_for_a_busy_one(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    with open_caller() as caller:
        engine.insert_tx(caller, [keyed("unique")])
        receipts = store.insert([new_job(), keyed("unique"), keyed("unique", "weekly")], atomic=False)

    assert [(one.is_new, type(one.error)) for one in receipts] == [
        (True, type(None)),
        (False, StoreBusy),
        (True, type(None)),
    ]


# Settlements and schedules


def test_a_settlement_whose_follow_up_is_busy_stays_behind_and_all_others_are_settled(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    put_many(store, 9)
    jobs = claim(store, 8)
    ends = [ended(job, keyed("unique")) if n == 3 else ended(job, new_job()) for n, job in enumerate(jobs)]

    def fallback(end: Settlement, error: Exception) -> Settlement:
        return failed_settlement(jobs[0], end, error, 0.0)

    with open_caller() as caller:
        engine.insert_tx(caller, [keyed("unique")])
        answer = settle_and_claim_isolating(
            store, WORKER, ends, [QueueClaim(DEFAULT, 1)], 1, fallback=fallback
        )
        again = settle_and_claim_isolating(store, WORKER, [ends[3]], fallback=fallback)
    last = settle_and_claim_isolating(store, WORKER, [ends[3]], fallback=fallback)

    assert answer.settled == tuple(job.id for n, job in enumerate(jobs) if n != 3)
    assert (answer.busy, answer.refused) == (((jobs[3].id, jobs[3].attempt),), ())
    assert (len(answer.jobs), again.busy) == (1, answer.busy)
    assert (last.settled, last.busy) == ((jobs[3].id,), ())


def test_a_schedule_whose_key_is_busy_stays_due_and_all_others_fire(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock
) -> None:
    for name in ("daily", "weekly"):
        definition = ScheduleDefinition(name=name, cron="* * * * *", job=new_job())
        store.save_schedule(plan_runs(Schedule(definition=definition), clock.now_ms(), 0.0))
    clock.advance(MINUTE)
    [daily] = [one for one in store.due_schedules().schedules if one.name == "daily"]
    [run] = plan_advance(daily, clock.now_ms(), 0.0).runs  # it has the key of its schedule
    with open_caller() as caller:
        engine.insert_tx(caller, [run.job])
        fired, _ = fire_due(store, lambda: 0.0)
        due_at_once = store.due_schedules()
    clock.advance(POSTPONE_MS)
    later, _ = fire_due(store, lambda: 0.0)

    assert (due_at_once.schedules, due_at_once.next_due_ms) == ((), POSTPONE_MS)
    assert (fired, later) == (1, 1)


# What operators do


def test_a_batch_of_operators_leaves_out_the_job_that_an_open_transaction_completes(
    engine: PostgresEngine, store: PostgresStore, reader: PostgresReader
) -> None:
    ids = put_many(store, 5)
    [job] = claim(store)
    with open_caller() as caller:
        engine.complete_tx(caller, WORKER, complete(job))
        cancelled = store.cancel(ids[:3])
        forced = store.cancel([job.id], force=True)
        updated = store.update_job(job.id, JobUpdate(priority=7))
        deleted = store.delete([job.id, *ids[3:]])
        with pytest.raises(StoreBusy, match=f"job {job.id}"):
            updated.check()
        caller.commit()

    assert outcomes(cancelled) == [(False, True), (True, False), (True, False)]
    assert (outcomes(forced), outcomes([updated])) == ([(False, True)], [(False, True)])
    assert outcomes(deleted) == [(False, True), (True, False), (True, False)]
    assert look(reader, job.id).state == "completed"


@pytest.mark.parametrize("state", ["pending", "scheduled", "blocked"])
def test_a_waiting_job_whose_row_another_transaction_holds_for_long_is_busy(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """Nothing of Forebay holds such a row for long; what others do to the tables is not waited for either."""
    monkeypatch.setattr("forebay.stores.postgres.row_locks.LOCK_WAIT_SECONDS", 0.05)
    parent = put(store)
    how: dict[str, dict[str, Any]] = {
        "pending": {},
        "scheduled": {"delay_ms": MINUTE},
        "blocked": {"depends_on": dependencies_of([parent])},
    }
    held, free = (put(store, **how[state]) for _ in range(2))
    table = {"pending": "ready", "scheduled": "delayed", "blocked": "blocked"}[state]
    with open_caller() as caller:
        caller.execute(f"select 1 from {engine.address.schema}.{table} where id = '{held}' for update")
        results = store.cancel([held, free])
    again = store.cancel([held])

    assert (outcomes(results), outcomes(again)) == ([(False, True), (True, False)], [(True, False)])


def test_a_row_that_is_held_for_a_moment_is_tried_again(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = put(store)
    pauses: list[float] = []
    with open_caller() as caller:
        caller.execute(f"select 1 from {engine.address.schema}.ready where id = '{job_id}' for update")

        def let_go(seconds: float) -> None:
            pauses.append(seconds)
            caller.rollback()

        monkeypatch.setattr("forebay.stores.postgres.row_locks.sleep", let_go)
        results = store.cancel([job_id])

    assert (outcomes(results), len(pauses)) == ([(True, False)], 1)


def test_a_job_whose_key_is_busy_is_neither_revived_nor_moved_and_the_others_are(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    dead, other = put(store, unique_key="daily"), put(store)
    moving = put(store, unique_key="weekly")
    store.cancel([dead, other])
    with open_caller() as caller:
        engine.insert_tx(caller, [keyed("unique"), keyed("unique", "weekly", queue=MAIL)])
        revived = store.revive([dead, other])
        moved = store.update_job(moving, JobUpdate(queue=MAIL))
    again = store.revive([dead])

    assert (outcomes(revived), outcomes([moved])) == ([(False, True), (True, False)], [(False, True)])
    assert "open transaction" in moved.reason
    assert outcomes(again) == [(True, False)]


# Dependants


def test_a_child_of_a_job_that_an_open_transaction_completes_is_busy(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    put(store)
    [parent] = claim(store)
    child = new_job(depends_on=dependencies_of([parent.id]))
    with open_caller() as caller:
        engine.complete_tx(caller, WORKER, complete(parent))
        with pytest.raises(StoreBusy, match=f"job {parent.id} is completed in an open transaction"):
            store.insert([child])
        receipts = store.insert([child, new_job()], atomic=False)
        caller.commit()
    [new] = store.insert([child])

    assert [type(one.error) for one in receipts] == [StoreBusy, type(None)]
    assert new.state == "pending"


def test_maintenance_tasks_wait_for_no_open_transaction(
    engine: PostgresEngine, store: PostgresStore, reader: PostgresReader, clock: ManualClock
) -> None:
    """A child of a caller's transaction whose parent another open one completes waits on the list; what else
    is due is promoted, swept and pruned."""
    put_many(store, 3)
    parent, lost, _ = claim(store, 3)
    with open_caller() as first:
        [child] = engine.insert_tx(first, [new_job(depends_on=dependencies_of([parent.id]))])
        first.commit()
    later = put(store, delay_ms=MINUTE)
    with open_caller() as caller:
        engine.complete_tx(caller, WORKER, complete(parent))
        clock.advance(2 * MINUTE)
        store.promote()
        swept = {job.id for job in store.sweep(SWEEPER)}
        store.rescore()
        store.prune()
        waiting, promoted = look(reader, JobId(child.id or "")), look(reader, later)
        caller.commit()
    store.promote()

    assert (waiting.state, promoted.state) == ("blocked", "pending")
    assert lost.id in swept
    assert parent.id not in swept
    assert look(reader, JobId(child.id or "")).state == "pending"


def test_dependants_of_a_job_that_an_open_transaction_completes_hide_no_others(
    engine: PostgresEngine,
    store: PostgresStore,
    reader: PostgresReader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dependency_propagation, "ENTRIES", 2)
    monkeypatch.setattr(dependency_propagation, "PAGES", 2)  # so the other children have to be passed by
    put_many(store, 3)
    held, free, other = claim(store, 3)
    with open_caller() as first:
        waiting = insert_children(engine, first, held, 5)
        [behind] = insert_children(engine, first, free, 1)
        [last] = insert_children(engine, first, other, 1)
        first.commit()
    with open_caller() as caller, open_caller() as another:
        engine.complete_tx(caller, WORKER, complete(held))
        engine.complete_tx(another, WORKER, complete(other))
        store.settle_and_claim(WORKER, [ended(free)])
        store.promote()
        meanwhile = [look(reader, child).state for child in (*waiting, behind, last)]
        caller.commit()
        store.promote()
        store.promote()
        store.promote()
        later = [look(reader, child).state for child in (*waiting, last)]

    assert meanwhile == [*["blocked"] * 5, "pending", "blocked"]
    assert later == [*["pending"] * 5, "blocked"]
    store.promote()


def insert_children(
    engine: PostgresEngine, caller: psycopg.Connection[Any], parent: Job, jobs: int
) -> list[JobId]:
    children = [new_job(depends_on=dependencies_of([parent.id])) for _ in range(jobs)]
    return [JobId(receipt.id or "") for receipt in engine.insert_tx(caller, children)]


# The server's own limit


def test_a_lock_that_is_waited_for_in_vain_names_its_row_and_has_changed_nothing(
    engine: PostgresEngine, store: PostgresStore, reader: PostgresReader
) -> None:
    """What a program of an earlier release has taken, or another program, has no lock of its number."""
    with raw() as other, other.transaction():
        schema = engine.address.schema
        other.execute(
            f"insert into {schema}.job_keys (queue, kind, key, job_id) values ('default', 'unique', 'k', 'x')"
        )
        with (
            hasty_locks(store),
            pytest.raises(StoreBusy, match=r'end it and try again .*relation "job_keys"'),
        ):
            store.insert([new_job(), keyed("unique", "k")])
        other.execute(f"delete from {schema}.job_keys")

    assert reader.counts() == {}
