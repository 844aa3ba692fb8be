"""Edges while another transaction has locked their jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event
from time import sleep

import pytest

from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.domain.dependencies import PROPAGATION_BATCH
from forebay.domain.dependency_graph import dependencies_of
from forebay.domain.job import DAY_MS, Job, JobId, NewJob, OnFailure, QueueName
from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.outcome import Discarded
from forebay.domain.settlement import Settlement, decide
from forebay.errors import StoreUnavailable
from forebay.stores.postgres import dependency_propagation
from forebay.stores.postgres import row_locks as holding
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.insert import InsertRules, insert_all
from forebay.stores.postgres.job_actions import delete, update_job
from forebay.stores.postgres.maintenance import AGE_CAP_SCAN, rescore
from forebay.stores.postgres.store import PostgresStore
from forebay.stores.postgres.transaction import Transaction
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import BOOM
from tests.stores.postgres_support import make_engine, problems, raw, wait_for_a_lock
from tests.stores.sqlite_support import in_thread
from tests.stores.support import WORKER, claim, complete, new_job


@pytest.fixture
def engine(clock: ManualClock, patient_locks: object) -> Iterator[PostgresEngine]:
    engine = make_engine(clock)
    yield engine
    assert problems(engine) == ()


@pytest.fixture
def store(engine: PostgresEngine) -> Iterator[PostgresStore]:
    store = engine.store()
    yield store
    store.close()


def put(store: PostgresStore, *jobs: NewJob) -> list[JobId]:
    return [JobId(receipt.id or "") for receipt in store.insert(jobs)]


def states(engine: PostgresEngine, *ids: JobId) -> list[JobState | None]:
    reader = engine.reader()
    found = [None if job is None else job.state for job in reader.jobs(ids)]
    reader.close()
    return found


@pytest.mark.shows("R-DEP-11")
def test_a_parent_that_changes_while_its_child_is_inserted_knows_of_it(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    [parent] = put(store, new_job())
    schema = engine.address.schema
    with raw() as changing:
        changing.autocommit = False
        changing.execute(f"update {schema}.jobs set updated_at = updated_at + 1")
        inserting = in_thread(lambda: put(store, new_job(depends_on=dependencies_of([parent]))))
        wait_for_a_lock(schema)
        changing.commit()
    [child] = inserting()

    [job] = claim(store)
    store.settle_and_claim(WORKER, [complete(job)])

    assert job.id == parent
    assert states(engine, child) == [JobState.PENDING]


def test_a_revival_before_its_death_was_heard_of_is_heard_of_after_it(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has ended the parent dies before it works on the list; an operator revives it before another worker
    does."""
    [parent] = put(store, new_job())
    [child] = put(store, new_job(depends_on=dependencies_of([parent], OnFailure.HOLD)))
    [job] = claim(store)
    with monkeypatch.context() as patched:
        patched.setattr(PostgresStore, "_propagate", lambda _: 0)
        store.settle_and_claim(WORKER, [decide(job, Discarded(BOOM), 0.5)])
        store.revive([parent])
    store.promote()

    [job] = claim(store)
    store.settle_and_claim(WORKER, [complete(job)])

    assert states(engine, parent, child) == [JobState.COMPLETED, JobState.PENDING]


def test_a_parent_by_place_whose_id_is_taken_is_the_holder(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    put(store, new_job(id=JobId("x")))

    receipts = store.insert(
        [new_job(id=JobId("x")), new_job(depends_on=dependencies_of([1]))], on_conflict="ignore"
    )

    assert [receipt.is_new for receipt in receipts] == [False, True]
    assert receipts[1].state is JobState.BLOCKED


@pytest.mark.shows("R-DEP-11")
def test_who_deletes_a_blocked_job_waits_for_its_edges_before_it_takes_the_job(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    parent, child = put(store, new_job(), new_job(depends_on=dependencies_of([1])))
    schema = engine.address.schema
    with raw() as releasing:
        releasing.autocommit = False
        releasing.execute(f"select 1 from {schema}.dependencies for update")
        deleting = in_thread(lambda: store.delete([child]))
        wait_for_a_lock(schema)

        releasing.execute(f"select 1 from {schema}.blocked for update nowait")

        releasing.commit()
    assert [result.applied for result in deleting()] == [True]
    assert states(engine, parent, child) == [JobState.PENDING, None]


def test_a_claim_under_limits_waits_for_no_session_that_holds_a_job_that_it_parks(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    store.save_limit(Limit(scope="task:t", concurrency=1))
    first, second = put(store, new_job(task="t"), new_job(task="t"))
    schema = engine.address.schema
    with raw() as inserting:
        inserting.autocommit = False
        # As who inserts a job that depends on it.
        inserting.execute(f"select 1 from {schema}.jobs where id = %s for no key update", [second])

        claimed = claim(store, 2)

        inserting.rollback()
    assert [job.id for job in claimed] == [first]


def test_the_place_of_an_attempt_that_begins_stays_while_those_of_others_are_forgotten(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    store.save_limit(Limit(scope="task:t", concurrency=1))
    put(store, new_job(task="t"))
    claim(store)
    schema = engine.address.schema
    with raw() as claiming:
        claiming.execute(f"create temporary table lease as select * from {schema}.leases")
        claiming.execute(f"delete from {schema}.leases")
        claiming.autocommit = False
        # As a claim of the job after its revival, which is not committed yet.
        claiming.execute(f"update {schema}.limit_slots set attempt = 2")
        claiming.execute(f"insert into {schema}.leases select * from lease")
        pruning = in_thread(store.prune)
        wait_for_a_lock(schema)
        claiming.commit()
        pruning()
        places = claiming.execute(f"select attempt from {schema}.limit_slots").fetchall()

    assert places == [(2,)]


@pytest.mark.shows("R-DEP-11")
def test_a_join_is_released_once_by_parents_that_end_one_by_one_and_together(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    others = engine.store()
    *_, join = put(store, *[new_job()] * 5, new_job(depends_on=dependencies_of([1, 2, 3, 4, 5])))
    jobs = claim(store, 5)

    store.settle_and_claim(WORKER, [complete(jobs[0])])
    others.settle_and_claim(WORKER, [complete(job) for job in jobs[1:4]])
    before = states(engine, join)
    store.settle_and_claim(WORKER, [complete(jobs[4])])

    assert before == [JobState.BLOCKED]
    assert [job.id for job in claim(store, 9)] == [join]
    others.close()


@pytest.mark.shows("R-DEP-11")
def test_a_parent_with_more_children_than_are_looked_at_at_once_releases_them_all(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    jobs = [new_job(), *(new_job(depends_on=dependencies_of([number])) for number in range(1, 41))]
    _, *children = put(store, *jobs)
    [parent] = claim(store)

    store.settle_and_claim(WORKER, [complete(parent)])

    assert states(engine, *children) == [JobState.PENDING] * 40


def test_parents_that_end_while_their_child_is_revived_are_heard_of(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    one, other, child = put(store, new_job(), new_job(), new_job(depends_on=dependencies_of([1, 2])))
    store.cancel([child])
    reviving = engine.store()
    schema = engine.address.schema
    jobs = claim(store, 2)
    with raw() as holding:
        holding.autocommit = False
        # Who revives has looked at the parents when it comes to this row.
        holding.execute(f"select 1 from {schema}.finished where id = %s for update", [child])
        revived = in_thread(lambda: reviving.revive([child]))
        wait_for_a_lock(schema)
        ended = in_thread(lambda: store.settle_and_claim(WORKER, [complete(job) for job in jobs]))
        wait_for_a_lock(schema, sessions=2)
        holding.commit()
    revived()
    ended()

    assert states(engine, one, other, child) == [JobState.COMPLETED, JobState.COMPLETED, JobState.PENDING]
    reviving.close()


def test_who_revives_waits_for_who_works_on_the_end_of_a_parent(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They see no blocked child, and so lower no number for it."""
    _, child = put(store, new_job(), new_job(depends_on=dependencies_of([1])))
    store.cancel([child])
    [parent] = claim(store)
    with monkeypatch.context() as patched:
        patched.setattr(PostgresStore, "_propagate", lambda _: 0)
        store.settle_and_claim(WORKER, [complete(parent)])
    schema = engine.address.schema
    with raw() as working:
        working.autocommit = False
        working.execute(f"delete from {schema}.dependency_outbox")
        revived = in_thread(lambda: store.revive([child]))
        wait_for_a_lock(schema)
        working.commit()
    revived()

    assert states(engine, child) == [JobState.PENDING]


def test_who_revives_goes_on_with_the_end_of_a_parent_that_others_pass_by_meanwhile(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, child = put(store, new_job(), new_job(depends_on=dependencies_of([1])))
    store.cancel([child])
    [parent] = claim(store)
    with monkeypatch.context() as patched:
        patched.setattr(PostgresStore, "_propagate", lambda _: 0)
        store.settle_and_claim(WORKER, [complete(parent)])
    others = engine.store()
    schema = engine.address.schema
    with raw() as holding:
        holding.autocommit = False
        holding.execute(f"select 1 from {schema}.finished where id = %s for update", [child])
        revived = in_thread(lambda: others.revive([child]))
        wait_for_a_lock(schema)
        store.promote()
        before = holding.execute(f"select count(*) from {schema}.dependency_outbox").fetchone()
        holding.commit()
    revived()

    assert before == (1,)
    assert states(engine, child) == [JobState.PENDING]
    others.close()


def test_a_child_of_its_callers_transaction_hears_alone_of_a_parent_that_has_completed(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    """The other child has heard of it, and its edge looks the same as before."""
    mail = QueueName("mail")
    parent, other, child = put(
        store, new_job(), new_job(queue=mail), new_job(depends_on=dependencies_of([1, 2]))
    )
    with raw() as caller:
        caller.autocommit = False
        [receipt] = engine.insert_tx(caller, [new_job(depends_on=dependencies_of([parent]))])
        store.settle_and_claim(WORKER, [complete(job) for job in claim(store)])
        caller.commit()
    late = JobId(receipt.id or "")
    before = states(engine, child, late)

    store.promote()

    assert before == [JobState.BLOCKED, JobState.BLOCKED]
    assert states(engine, child, late) == [JobState.BLOCKED, JobState.PENDING]
    [job] = claim(store, queue=mail)
    store.settle_and_claim(WORKER, [complete(job)])
    assert (job.id, states(engine, child)) == (other, [JobState.PENDING])


def test_a_child_of_its_callers_transaction_whose_parent_is_gone_meanwhile_is_cancelled(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    parent, *_ = put(store, new_job())
    with raw() as caller:
        caller.autocommit = False
        [receipt] = engine.insert_tx(caller, [new_job(depends_on=dependencies_of([parent]))])
        store.delete([parent])
        caller.commit()

    store.promote()

    assert states(engine, JobId(receipt.id or "")) == [JobState.CANCELLED]


def test_the_id_of_a_job_whose_end_still_goes_round_is_refused_in_its_callers_transaction(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = JobId("root")
    put(store, new_job(id=root), new_job(depends_on=dependencies_of([1])))
    with monkeypatch.context() as patched:
        patched.setattr(PostgresStore, "_propagate", lambda _: 0)
        store.settle_and_claim(WORKER, [complete(job) for job in claim(store)])
        store.delete([root])
    with raw() as caller:
        caller.autocommit = False
        with pytest.raises(StoreUnavailable, match="job id root was just deleted"):
            engine.insert_tx(caller, [new_job(id=root)])
        store.promote()
        [receipt] = engine.insert_tx(caller, [new_job(id=root)])
        caller.commit()

    assert (receipt.id, receipt.is_new) == (root, True)


@pytest.mark.shows("R-DEP-11")
def test_jobs_that_are_released_to_several_places_are_taken_in_the_order_of_their_ids(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    ids = ["a", "b", "c"]
    children = [
        new_job(id=JobId(child), depends_on=dependencies_of([number]), priority=int(child == "b"))
        for number, child in enumerate(ids, start=1)
    ]
    put(store, new_job(), *children)
    [parent] = claim(store)
    schema = engine.address.schema
    with raw() as holding:
        holding.autocommit = False
        holding.execute(f"select 1 from {schema}.jobs where id = 'b' for update")
        ended = in_thread(lambda: store.settle_and_claim(WORKER, [complete(parent)]))
        wait_for_a_lock(schema)

        holding.execute(f"select 1 from {schema}.jobs where id = 'c' for update nowait")

        holding.commit()
    ended()
    assert states(engine, *map(JobId, ids)) == [JobState.PENDING] * 3


@pytest.mark.shows("R-PRI-20")
def test_a_job_that_is_released_while_the_walk_of_a_short_cap_comes_past_it_reaches_its_own(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock
) -> None:
    store.save_queue(QueueName("default"), {"aging_ms": 60_000, "max_aging_bonus": 10.0})
    store.save_queue(QueueName("short"), {"aging_ms": 1_000, "max_aging_bonus": 10.0})
    store.rescore()
    _, child = put(store, new_job(), new_job(depends_on=dependencies_of([1])))
    clock.advance(ms=6_000)
    [parent] = claim(store)
    walking = engine.store()

    def walk(tx: Transaction) -> None:
        rescore(tx, 100)
        store.settle_and_claim(WORKER, [complete(parent)])

    walking._write(walk)
    walking.close()
    clock.advance(ms=DAY_MS)
    store.rescore()

    reader = engine.reader()
    [job] = reader.jobs([child])
    reader.close()
    assert job is not None
    assert job.age_capped


@pytest.mark.shows("R-PRI-20")
@pytest.mark.parametrize(
    ("age_ms", "walked_to", "timed"),
    [
        (1_000, 0, 0),
        (6_000, 0, 2 * PROPAGATION_BATCH),
        (1_000, 2 * PROPAGATION_BATCH + 1, 2 * PROPAGATION_BATCH),
    ],
    ids=["young", "old", "walked past"],
)
def test_many_children_that_the_walk_may_miss_are_told_when_their_age_is_capped(
    engine: PostgresEngine, store: PostgresStore, clock: ManualClock, age_ms: int, walked_to: int, timed: int
) -> None:
    store.save_queue(QueueName("default"), {"aging_ms": 1_000, "max_aging_bonus": 10.0})
    put(
        store,
        new_job(),
        *(new_job(depends_on=dependencies_of([at])) for at in range(1, 2 * PROPAGATION_BATCH + 1)),
    )
    clock.advance(ms=age_ms)
    with raw() as connection:
        schema = engine.address.schema
        connection.execute(
            f"insert into {schema}.maintenance (name, due_at, scan_position) values (%s, 0, %s)",
            [AGE_CAP_SCAN, walked_to],
        )

        store.settle_and_claim(WORKER, [complete(job) for job in claim(store)])

        [(found,)] = connection.execute(f"select count(rescore_at) from {schema}.jobs").fetchall()
    assert blocked(engine) == [(None, 0)]
    assert found == timed


@pytest.mark.shows("R-DEP-11")
def test_a_child_that_is_deleted_and_brought_again_while_its_parent_ends_waits_for_its_own(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    mail, child = QueueName("mail"), JobId("child")
    others = engine.store()
    [other] = put(others, new_job(queue=mail))
    put(store, new_job(), new_job(id=child, depends_on=dependencies_of([1])))
    [parent] = claim(store)

    def replace(tx: Transaction) -> Callable[[], object]:
        tx.all("edges_lock_blocked", {"ids": [child]})
        holding.apply_to_jobs(tx, [child], lambda jobs: delete(tx, jobs, ""))
        ended = in_thread(lambda: store.settle_and_claim(WORKER, [complete(parent)]))
        wait_for_a_lock(engine.address.schema)
        insert_all(tx, [new_job(id=child, depends_on=dependencies_of([other]))], InsertRules(), atomic=True)
        return ended

    others._write(replace)()

    assert states(engine, child) == [JobState.BLOCKED]
    [job] = claim(store, queue=mail)
    store.settle_and_claim(WORKER, [complete(job)])
    assert states(engine, child) == [JobState.PENDING]
    others.close()


def test_a_number_of_edges_that_is_too_low_delays_no_other_job(
    engine: PostgresEngine, store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    *_, child = put(store, new_job(), new_job(), new_job(depends_on=dependencies_of([1, 2])))
    [sound] = put(store, new_job(depends_on=dependencies_of([child])))
    jobs = claim(store, 2)
    with raw() as damaging:
        damaging.execute(f"update {engine.address.schema}.blocked set unmet = 1 where id = %s", [child])

    store.settle_and_claim(WORKER, [complete(job) for job in jobs])

    assert states(engine, child, sound) == [JobState.PENDING, JobState.BLOCKED]
    assert f"job {child} was blocked by 1 edges too few" in caplog.text


def test_the_id_of_a_parent_that_is_not_checked_yet_is_not_taken_for_it(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    parent = JobId("parent")
    put(store, new_job(id=parent))
    with raw() as caller:
        caller.autocommit = False
        [receipt] = engine.insert_tx(caller, [new_job(depends_on=dependencies_of([parent]))])
        store.settle_and_claim(WORKER, [complete(job) for job in claim(store)])
        caller.commit()
    store.delete([parent])

    put(store, new_job(id=parent))

    child = JobId(receipt.id or "")
    assert states(engine, parent, child) == [JobState.PENDING, JobState.PENDING]


def test_a_job_that_is_revived_while_it_is_cancelled_with_its_dependants_is_cancelled_too(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, child = put(store, new_job(), new_job(depends_on=dependencies_of([1], OnFailure.HOLD)))
    [job] = claim(store)
    store.settle_and_claim(WORKER, [decide(job, Discarded(BOOM), 0.5)])
    others = engine.store()
    hold = holding.lock_failed

    def hold_late(tx: Transaction, ids: list[JobId]) -> None:
        others.revive(ids)
        hold(tx, ids)

    with monkeypatch.context() as patched:
        patched.setattr("forebay.stores.postgres.store.lock_failed", hold_late)
        [result] = store.cancel([parent], dependants=True)

    assert result.applied
    assert states(engine, parent, child) == [JobState.CANCELLED] * 2
    others.close()


def discard(job: Job) -> Settlement:
    return decide(job, Discarded(BOOM), 0.5)


IGNORING = dependencies_of([1], OnFailure.IGNORE)
RELEASES = {
    "completed": (new_job(), new_job(depends_on=dependencies_of([1])), complete),
    "ignored": (new_job(), new_job(depends_on=IGNORING), discard),
    "in a sequence": (new_job(sequence="s"), new_job(sequence="s"), complete),
}


def update_while_released(
    tx: Transaction, child: JobId, queue: QueueName, promoting: PostgresStore
) -> Callable[[], object]:
    """Update a job, and go on when a transaction that releases it waits for that."""
    assert update_job(tx, child, JobUpdate(queue=queue, priority=9), "").applied
    released = in_thread(promoting.promote)
    wait_for_a_lock(promoting._address.schema)
    return released


@pytest.mark.shows("R-PRI-10", "R-DEP-11")
@pytest.mark.parametrize("queue", ["default", "mail"])
@pytest.mark.parametrize("release", RELEASES)
def test_a_job_that_is_updated_while_its_release_waits_for_it_stands_where_it_belongs_now(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, release: str, queue: str
) -> None:
    first, second, end_parent = RELEASES[release]
    updating, promoting = engine.store(), engine.store()
    _, child = put(store, first, second)
    [parent] = claim(store)
    [rival] = put(store, new_job(queue=QueueName(queue), priority=5))
    with monkeypatch.context() as patched:
        patched.setattr(PostgresStore, "_propagate", lambda _: 0)
        store.settle_and_claim(WORKER, [end_parent(parent)])

    updating._write(lambda tx: update_while_released(tx, child, QueueName(queue), promoting))()

    assert [job.id for job in claim(promoting, 2, queue=QueueName(queue))] == [child, rival]
    updating.close()
    promoting.close()


@pytest.mark.shows("R-PRI-10", "R-DEP-11")
@pytest.mark.parametrize("queue", ["default", "mail"])
def test_one_of_many_children_that_is_updated_while_its_release_waits_for_it_stands_where_it_belongs_now(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, queue: str
) -> None:
    updating, promoting = engine.store(), engine.store()
    put(
        store,
        new_job(),
        *(new_job(depends_on=dependencies_of([at])) for at in range(1, 2 * PROPAGATION_BATCH + 1)),
    )
    [parent] = claim(store)
    [rival] = put(store, new_job(queue=QueueName(queue), priority=5))
    with monkeypatch.context() as patched:
        patched.setattr(PostgresStore, "_propagate", lambda _: 0)
        store.settle_and_claim(WORKER, [complete(parent)])
    promoting.promote()
    [(child, left)] = blocked(engine)
    assert child
    assert left == PROPAGATION_BATCH  # these are released by one statement

    updating._write(lambda tx: update_while_released(tx, child, QueueName(queue), promoting))()

    assert blocked(engine) == [(None, 0)]
    assert [job.id for job in claim(promoting, 2, queue=QueueName(queue))] == [child, rival]
    updating.close()
    promoting.close()


@pytest.mark.shows("R-DEP-11")
@pytest.mark.parametrize("odd", [0, 7])
def test_children_that_stand_alike_are_released_batch_by_batch_to_the_last(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, odd: int
) -> None:
    monkeypatch.setattr(dependency_propagation, "IDENTICAL_AT_ONCE", PROPAGATION_BATCH)
    children = 4 * PROPAGATION_BATCH
    put(
        store,
        new_job(),
        *(
            new_job(depends_on=dependencies_of([at]), priority=odd if at % 90 == 0 else 0)
            for at in range(1, children)
        ),
    )

    store.settle_and_claim(WORKER, [complete(job) for job in claim(store)])
    while store.promote():
        pass

    assert blocked(engine) == [(None, 0)]
    assert len(claim(store, 2 * children)) == children - 1


def blocked(engine: PostgresEngine) -> list[tuple[JobId | None, int]]:
    """The last of the blocked jobs, and how many they are."""
    with raw() as connection:
        return connection.execute(f"select max(id), count(*) from {engine.address.schema}.blocked").fetchall()


@pytest.mark.shows("R-PRI-10", "R-DEP-11")
@pytest.mark.parametrize("release", RELEASES)
def test_a_job_that_is_released_while_its_update_waits_for_it_is_updated_where_it_is_then(
    engine: PostgresEngine, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    is_locked = Event()

    def noted(seconds: float) -> None:
        is_locked.set()
        sleep(seconds)

    monkeypatch.setattr(holding, "sleep", noted)
    first, second, end_parent = RELEASES[release]
    others = engine.store()
    _, child = put(store, first, second)
    [parent] = claim(store)
    [rival] = put(store, new_job(priority=5))
    schema = engine.address.schema
    with raw() as held:
        held.autocommit = False
        # Who releases has the blocked row when it comes to this one, and the updater tries that row again.
        held.execute(f"select 1 from {schema}.jobs where id = %s for update", [child])
        ended = in_thread(lambda: store.settle_and_claim(WORKER, [end_parent(parent)]))
        wait_for_a_lock(schema)
        updated = in_thread(lambda: others.update_job(child, JobUpdate(priority=9)))
        assert is_locked.wait(60)
        held.commit()
    ended()

    assert updated().state is JobState.PENDING
    assert [job.id for job in claim(store, 2)] == [child, rival]
    others.close()
