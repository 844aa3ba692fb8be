"""Claims begin behind what was claimed before, and still find all that comes in with a lower rank."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, Final

import psycopg
import pytest
from msgspec.structs import replace

from forebay.domain.job import JobId, QueueName
from forebay.domain.job_update import JobUpdate
from forebay.domain.outcome import Completed, Interrupted, Lost
from forebay.domain.queue import QueueState
from forebay.domain.settlement import decide
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.postgres import claim_cursor as module
from forebay.stores.postgres.claim_cursor import HEAD, ClaimCursor, ClaimCursors, TxSnapshot
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.store import PostgresStore
from forebay.stores.postgres.transaction import Transaction
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import rescore_all
from tests.stores.postgres_support import end_connections, make_engine, problems, raw, server
from tests.stores.support import OTHER_WORKER, WORKER, claim, complete, fail, new_job

DEFAULT: Final = QueueName("default")
HOUR: Final = 3_600_000


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
def other(engine: PostgresEngine) -> Iterator[PostgresStore]:
    """Another handle, whose cursor is its own."""
    store = engine.store()
    yield store
    store.close()


@pytest.fixture
def only_arrivals(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its first claim a handle never looks from the head: what it finds, it finds by its arrival."""
    monkeypatch.setattr(ClaimCursors, "may_scan_head", lambda self, queue: False)
    monkeypatch.setattr(module, "FULL_SCAN_SECONDS", 1e9)


def put(store: PostgresStore, n: int = 1, **changes: Any) -> list[JobId]:
    return [JobId(receipt.id or "") for receipt in store.insert([new_job(**changes)] * n)]


def claimed(store: PostgresStore, n: int = 1) -> list[JobId]:
    return [job.id for job in claim(store, n)]


@contextmanager
def transaction() -> Iterator[psycopg.Connection[Any]]:
    """A transaction of another session, left open."""
    connection = psycopg.connect(server().url())
    try:
        yield connection
    finally:
        connection.close()


@pytest.mark.usefixtures("only_arrivals")
def test_a_job_with_a_lower_rank_is_claimed_next_however_far_the_cursor_is(
    store: PostgresStore, other: PostgresStore
) -> None:
    go_past(store)

    [urgent] = put(other, priority=50)
    [mild] = put(store, priority=1)

    assert claimed(store, 3)[:2] == [urgent, mild]


@pytest.mark.usefixtures("only_arrivals")
def test_a_job_that_was_handed_back_is_seen_by_cursors_beyond_it(
    store: PostgresStore, other: PostgresStore
) -> None:
    put(other, priority=90)
    [job] = claim(other, worker=OTHER_WORKER)
    go_past(store)

    other.settle_and_claim(OTHER_WORKER, [decide(job, Interrupted(), 0.0)])

    assert claimed(store) == [job.id]


@pytest.mark.usefixtures("only_arrivals")
def test_a_job_that_was_swept_is_seen_by_cursors_beyond_it(
    store: PostgresStore, other: PostgresStore
) -> None:
    put(other, priority=90)
    claim(other, worker=OTHER_WORKER)
    go_past(store)

    [job] = other.sweep(WORKER, dead=[OTHER_WORKER])
    other.settle_and_claim(WORKER, [decide(job, Lost("its worker died"), 0.0)])

    assert claimed(store) == [job.id]


@pytest.mark.usefixtures("only_arrivals")
def test_a_job_that_was_revived_is_seen_by_cursors_beyond_it(
    store: PostgresStore, other: PostgresStore
) -> None:
    [first] = put(other, priority=90)
    other.cancel([first])
    go_past(store)

    other.revive([first])

    assert claimed(store) == [first]


@pytest.mark.usefixtures("only_arrivals")
def test_a_job_that_was_promoted_is_seen_by_cursors_beyond_it(
    store: PostgresStore, other: PostgresStore, clock: ManualClock
) -> None:
    [first] = put(other, priority=90, delay_ms=1_000)
    go_past(store)

    clock.advance(ms=1_000)
    other.promote()

    assert claimed(store) == [first]


@pytest.mark.usefixtures("only_arrivals")
def test_a_job_that_was_updated_is_seen_by_cursors_beyond_it(
    store: PostgresStore, other: PostgresStore, engine: PostgresEngine
) -> None:
    [first] = put(other, priority=90)
    with_lock_held(engine, first, lambda: go_past(store))

    other.update_job(first, JobUpdate(priority=91))

    assert claimed(store) == [first]


@pytest.mark.usefixtures("only_arrivals")
def test_a_job_that_was_moved_to_the_queue_is_seen_by_cursors_beyond_it(
    store: PostgresStore, other: PostgresStore
) -> None:
    [first] = put(other, priority=90, queue=QueueName("mail"))
    go_past(store)

    other.update_job(first, JobUpdate(queue=DEFAULT))

    assert claimed(store) == [first]


@pytest.mark.usefixtures("only_arrivals")
def test_a_job_that_was_rescored_is_seen_by_cursors_beyond_it(
    store: PostgresStore, other: PostgresStore, engine: PostgresEngine
) -> None:
    [first] = put(other, priority=90)
    with_lock_held(engine, first, lambda: go_past(store))

    other.save_queue(DEFAULT, {"aging_ms": 1_000})
    rescore_all(other)

    assert claimed(store) == [first]


@pytest.mark.usefixtures("only_arrivals")
def test_a_job_that_is_tried_again_is_seen_by_cursors_beyond_it(
    store: PostgresStore, other: PostgresStore
) -> None:
    put(other, priority=90)
    [job] = claim(other, worker=OTHER_WORKER)
    go_past(store)

    other.settle_and_claim(OTHER_WORKER, [fail(job, after_ms=0)])

    assert claimed(store) == [job.id]


@pytest.mark.usefixtures("only_arrivals")
def test_a_follow_up_is_seen_by_cursors_beyond_it(store: PostgresStore, other: PostgresStore) -> None:
    put(other, priority=90)
    [job] = claim(other, worker=OTHER_WORKER)
    go_past(store)

    more = Completed(b"1", follow_ups=(new_job(priority=80),))
    other.settle_and_claim(OTHER_WORKER, [decide(job, more, 0.0)])

    [found] = claim(store)
    assert (found.priority, found.parent_id) == (80, job.id)


@pytest.mark.usefixtures("only_arrivals")
def test_a_job_in_a_lane_is_seen_by_cursors_beyond_it(store: PostgresStore, other: PostgresStore) -> None:
    [held] = put(other, task="u", priority=90)
    go_past(store, QueueClaim(DEFAULT, 5, None, frozenset(["task:t"])))

    assert claimed(store) == [held]


@pytest.mark.usefixtures("only_arrivals")
def test_a_job_that_came_while_its_queue_was_paused_is_seen_by_cursors_beyond_it(
    store: PostgresStore, other: PostgresStore
) -> None:
    go_past(store)
    other.save_queue(DEFAULT, state=QueueState.PAUSED)
    [urgent] = put(other, priority=90)
    while_paused = claimed(store)

    other.save_queue(DEFAULT, state=QueueState.ACTIVE)

    assert (while_paused, claimed(store)) == ([], [urgent])


def go_past(store: PostgresStore, request: QueueClaim | None = None) -> None:
    """Claim some ordinary jobs of many, so that the cursor stands among them."""
    put(store, 10)
    store.settle_and_claim(WORKER, claims=[request or QueueClaim(DEFAULT, 5)], room=5)


def with_lock_held(engine: PostgresEngine, job_id: JobId, work: Any) -> None:
    """While another transaction has locked this job."""
    with transaction() as connection:
        connection.execute(f"select * from {engine.address.schema}.ready where id = %s for update", [job_id])
        work()
        connection.rollback()  # a server frees locks some time after a connection was closed


@pytest.mark.parametrize("known", [None, ()])
def test_a_second_look_from_the_head_does_not_hide_what_arrives_after_it(
    store: PostgresStore, engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch, known: tuple[()] | None
) -> None:
    """By the fast path, and by the slow path, which a claim with known leases takes."""
    monkeypatch.setattr(module, "CHEAP_SCAN_SECONDS", inf)  # a second look is made on a busy machine, too
    put(store)
    claimed(store)
    [early] = put(store)
    put(store)
    with_lock_held(engine, early, lambda: claimed(store))  # the cursor stands behind `early`
    [held] = put(store, priority=50)

    def second_look() -> None:
        # An arrival in the hands of another claim, and `early` from the head.
        answer = store.settle_and_claim(WORKER, claims=[QueueClaim(DEFAULT, 1)], room=1, known=known)
        assert [job.id for job in answer.jobs] == [early]

    with_lock_held(engine, held, second_look)
    monkeypatch.setattr(ClaimCursors, "may_scan_head", lambda self, queue: False)
    monkeypatch.setattr(module, "FULL_SCAN_SECONDS", 1e9)
    [urgent] = put(store, priority=90)
    put(store, 10)

    assert claimed(store, 2) == [urgent, held]


@pytest.mark.usefixtures("only_arrivals")
def test_a_job_that_was_inserted_before_the_look_and_committed_after_it_is_found(
    store: PostgresStore, engine: PostgresEngine
) -> None:
    put(store, 10)
    claimed(store, 1)
    with transaction() as late:
        [receipt] = engine.insert_tx(late, [new_job(priority=50)])
        # Later transactions come and go, and the cursor looks past them.
        put(store)
        claimed(store, 5)
        late.commit()

    assert claimed(store) == [receipt.id]


@pytest.mark.usefixtures("only_arrivals")
def test_a_job_of_a_transaction_that_was_prepared_and_committed_by_others_is_found(
    store: PostgresStore, engine: PostgresEngine
) -> None:
    put(store, 10)
    claimed(store, 1)
    with transaction() as late:
        late.tpc_begin(late.xid(1, "late", ""))
        # A transaction that notifies cannot be prepared.
        quiet = PostgresEngine(replace(engine.address, notifies=False))
        [receipt] = quiet.insert_tx(late, [new_job(priority=50)])
        late.tpc_prepare()
    put(store)
    claimed(store, 5)

    with transaction() as someone:
        [prepared] = someone.tpc_recover()
        someone.rollback()
        someone.tpc_commit(prepared)

    assert claimed(store) == [receipt.id]


@pytest.mark.usefixtures("only_arrivals")
def test_more_arrivals_than_there_is_room_for_are_all_found_in_their_order(store: PostgresStore) -> None:
    put(store, 30)
    claimed(store, 20)

    overtakers = [put(store, priority=number % 7 - 3)[0] for number in range(25)]
    found = [job for _ in range(8) for job in claim(store, 4)]
    rest = claim(store, 100)

    everything = [*found, *rest]
    assert set(overtakers) <= {job.id for job in everything}
    assert len(everything) == 35
    assert [job.rank for job in everything] == sorted(job.rank for job in everything)


@pytest.mark.usefixtures("only_arrivals")
def test_an_arrival_that_another_class_goes_before_is_not_forgotten(
    store: PostgresStore, other: PostgresStore, clock: ManualClock
) -> None:
    [held] = put(store, task="u", priority=90)
    go_past(store, QueueClaim(DEFAULT, 5, None, frozenset(["task:t"])))
    [urgent] = put(other, priority=50)
    [old] = put(other, priority=100)

    # From a lane, from the order of the arrivals, and all the others.
    assert [claimed(store) for _ in range(3)] == [[old], [held], [urgent]]
    assert len(claimed(store, 10)) == 5


@pytest.mark.usefixtures("only_arrivals")
def test_an_arrival_that_a_capped_job_goes_before_is_not_forgotten(
    store: PostgresStore, other: PostgresStore, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, {"max_aging_bonus": 1.0})
    [first] = put(store)
    claimed(store)
    [capped] = put(other, priority=50)
    clock.advance(ms=2 * HOUR)
    rescore_all(other)
    [late] = put(other, priority=3)

    assert [claimed(store) for _ in range(3)] == [[capped], [late], []]
    assert first not in (capped, late)


@pytest.mark.usefixtures("only_arrivals")
def test_workers_with_cursors_of_their_own_find_every_overtaker_once(engine: PostgresEngine) -> None:
    stores = [engine.store() for _ in range(3)]
    put(stores[0], 60)
    for handle in stores:
        claimed(handle, 10)

    overtakers = [job_id for number in range(40) for job_id in put(stores[0], priority=number % 11)]
    found: list[JobId] = []
    while batch := [job_id for handle in stores for job_id in claimed(handle, 7)]:
        found += batch

    assert len(found) == len(set(found)) == 70
    assert set(overtakers) <= set(found)
    for handle in stores:
        handle.close()


@pytest.mark.usefixtures("only_arrivals")
@pytest.mark.parametrize("known", [None, ()], ids=["fast path", "slow path"])
def test_arrivals_that_others_have_in_hand_are_passed_over_and_asked_for_again(
    store: PostgresStore, other: PostgresStore, engine: PostgresEngine, known: tuple[()] | None
) -> None:
    put(store, 2)
    claimed(store, 2)
    [*first, last] = [put(other, priority=50 - number)[0] for number in range(4)]

    def look(n: int) -> list[JobId]:
        return [job.id for job in store.settle_and_claim(WORKER, (), [QueueClaim(DEFAULT, n)], n, known).jobs]

    with transaction() as connection:
        connection.execute(f"select * from {engine.address.schema}.ready where id <> %s for update", [last])
        while_held = [look(1), look(1)]
        connection.rollback()

    assert while_held == [[last], []]
    assert look(9) == first


def test_what_no_arrival_tells_is_found_by_a_look_from_the_head(
    store: PostgresStore, engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHEAP_SCAN_SECONDS", inf)  # however busy the machine is
    [passed_over, *_] = put(store, 3)
    with_lock_held(engine, passed_over, lambda: claimed(store, 2))

    assert claimed(store) == [passed_over]


def test_a_cursor_is_dropped_with_its_connection(
    store: PostgresStore, engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.stores.postgres.connection.IDLE_SECONDS", inf)  # however busy the machine is
    [passed_over, *_] = put(store, 4)
    with_lock_held(engine, passed_over, lambda: claimed(store, 2))
    end_connections()
    with pytest.raises(Exception, match="cannot be reached"):
        claimed(store)

    assert claimed(store) == [passed_over]


def test_a_claim_that_is_undone_does_not_move_the_cursor(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = put(store, 3)

    def fail(*_: object) -> None:
        raise RuntimeError("in the last moment")

    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "flush_counts", fail)
        with pytest.raises(RuntimeError):
            # A call that asks what it holds takes the slow path; the fast one cannot be undone.
            store.settle_and_claim(WORKER, claims=[QueueClaim(DEFAULT, 1)], room=1, known=[])

    assert claimed(store, 3) == ids


def test_claims_do_not_read_what_was_removed_while_the_vacuum_is_held_up(
    store: PostgresStore, engine: PostgresEngine
) -> None:
    schema = engine.address.schema
    store.save_queue(DEFAULT, {"lease_ms": HOUR})
    put(store, 1_000)
    drain(store, 10)
    with raw() as connection:
        # As it happens by itself while there is nothing to do: whatever is planned now seems to cost nothing.
        connection.execute(f"analyze {schema}.ready, {schema}.leases, {schema}.jobs")
    with transaction() as pin:
        pin.execute("set transaction isolation level repeatable read")
        pin.execute("select 1 from pg_class")
        for _ in range(6):
            put(store, 1_000)
        drain(store, 50)
        before = entries_read(store, engine)
        drain(store, 10)

        read = entries_read(store, engine)

    assert {index: read[index] - before[index] for index in read if read[index] - before[index] > 5_000} == {}


def drain(store: PostgresStore, batches: int) -> None:
    for _ in range(batches):
        jobs = claim(store, 100)
        assert len(jobs) == 100
        store.settle_and_claim(WORKER, [complete(job) for job in jobs])


def entries_read(store: PostgresStore, engine: PostgresEngine) -> dict[str, int]:
    """How many entries of the indexes of `ready` and `leases` were read so far."""
    own = store._connection.open()
    own.execute(b"select pg_stat_force_next_flush()")
    own.execute(b"select 1")
    with raw() as connection:
        rows = connection.execute(
            "select indexrelname, idx_tup_read from pg_stat_user_indexes where schemaname = %s"
            " and relname in ('ready', 'leases')",
            [engine.address.schema],
        ).fetchall()
    return dict(rows)


def test_a_snapshot_knows_who_was_under_way_and_ourselves() -> None:
    assert TxSnapshot.of("10:20:12,15", "17") == TxSnapshot("20", ("12", "15", "17"))
    assert TxSnapshot.of("10:10:", None) == TxSnapshot("10", ())


def test_a_snapshot_names_no_transaction_twice() -> None:
    assert TxSnapshot.of("5:9:5,7", "7") == TxSnapshot("9", ("5", "7"))
    # Ourselves are among those from 9 on.
    assert TxSnapshot.of("5:9:5", "9") == TxSnapshot("9", ("5",))
    assert TxSnapshot.of("99:100:", "100") == TxSnapshot("100", ())


def test_cursors_of_another_connection_are_forgotten() -> None:
    cursors = ClaimCursors()
    cursors.reset_if_reconnected(1)
    cursors.record_head_scan("q", 0.0)
    cursors.apply({"q": ClaimCursor(5, 6)}, {"q": 7})

    kept = cursors.of("q"), cursors.due_from("q")
    cursors.reset_if_reconnected(2)

    assert kept == (ClaimCursor(5, 6), 7)
    assert (cursors.of("q"), cursors.due_from("q")) == (HEAD, HEAD.rank)


def test_a_look_from_the_head_that_takes_long_is_not_made_at_every_turn() -> None:
    cursors = ClaimCursors()
    cursors.record_head_scan("cheap", 0.001)
    cursors.record_head_scan("costly", 1.0)

    assert cursors.may_scan_head("cheap")
    assert not cursors.may_scan_head("costly")
    assert cursors.may_scan_head("never seen")
