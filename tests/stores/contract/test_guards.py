"""Guards that no other test would miss: `tools/mutate.py` removes each and sees one of these fail."""

from __future__ import annotations

import pytest

from forebay.domain.job import Job, JobId, QueueName
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.lease import Lease
from forebay.domain.outcome import Completed, Failed, Interrupted, Lost, Outcome
from forebay.domain.worker import WorkerInfo, WorkerState
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DAY,
    DEFAULT,
    HOUR,
    MAIL,
    SECOND,
    SWEEPER,
    W1,
    W2,
    attempts_of,
    claimed,
    counts_of,
    ended,
    events_of,
    holder_of,
    kinds_of,
    lease,
    look,
    make,
    place_of,
    put,
    put_many,
    queue_of,
    rescore_all,
    settle,
    started,
    states,
)

pytestmark = pytest.mark.shows("R-STORE-01")


def similar(job_id: JobId) -> JobId:
    """An id that differs from another one only where it is random."""
    return JobId(job_id[:-1] + ("0" if job_id[-1] != "0" else "1"))


def cap_at_once(store: Store, *queues: QueueName) -> None:
    """From now on every pending job of these queues is in the capped class."""
    for queue in queues:
        store.save_queue(queue, {"max_aging_bonus": 0.0})


def assert_placed(reader: Reader, job: Job, now: int) -> None:
    """The job stands where `domain.rank` puts it now."""
    where = place_of(queue_of(reader, job.queue), job, now)
    assert (job.age_capped, job.rank) == (where.age_capped, where.rank)


# Leases


@pytest.mark.parametrize("outcome", [Completed(b"1"), Failed(BOOM), Interrupted()])
def test_an_id_that_is_nearly_a_running_jobs_is_gone(store: Store, reader: Reader, outcome: Outcome) -> None:
    job = started(store)
    other = similar(job.id)

    answer = settle(store, job, outcome, job_id=other)
    renewal = store.renew(W1, [Lease(other, job.attempt)], HOUR)

    assert [refusal.reason for refusal in (*answer.refused, *renewal.refused)] == ["gone", "gone"]
    assert look(reader, job.id).state is JobState.RUNNING
    assert look(reader, job.id).lease_expires_at == job.lease_expires_at
    assert reader.jobs([other]) == [None]
    assert events_of(reader, job.id) == []


def test_an_id_that_is_nearly_another_ones_is_unknown_to_operators(store: Store, reader: Reader) -> None:
    job_id = put(store)
    other = similar(job_id)

    results = [
        *store.cancel([other]),
        *store.delete([other]),
        store.update_job(other, JobUpdate(priority=1)),
    ]

    assert [result.state for result in results] == [None] * 3
    assert look(reader, job_id).priority == 0


def test_an_attempt_that_ended_badly_is_not_taken_for_one_of_another_job(
    store: Store, clock: ManualClock, reader: Reader
) -> None:
    failed, swept = started(store, queue=MAIL), started(store)
    settle(store, failed, Failed(BOOM, HOUR))
    clock.advance(ms=HOUR)
    store.sweep(SWEEPER)

    answer = settle(store, swept, Failed(BOOM), W1)

    assert answer.repeated == ()
    assert [refusal.reason for refusal in answer.refused] == ["other worker"]
    assert attempts_of(reader, swept.id) == []


def test_a_renewal_takes_the_lease_time_of_its_own_queue(
    store: Store, clock: ManualClock, reader: Reader
) -> None:
    for queue, lease_ms in (("a", HOUR), ("m", 5 * SECOND), ("z", 2 * HOUR)):
        store.save_queue(QueueName(queue), {"lease_ms": lease_ms})
    jobs = [started(store, queue=QueueName(queue)) for queue in ("a", "m", "z")]
    clock.advance(ms=SECOND)

    store.renew(W1, [lease(job) for job in jobs])

    ends = [look(reader, job.id).lease_expires_at for job in jobs]
    assert ends == [clock.now_ms() + wait for wait in (HOUR, 5 * SECOND, 2 * HOUR)]


def test_jobs_that_a_dead_worker_gave_back_do_not_crowd_out_those_it_held(
    engine: Engine, store: Store, other_store: Store
) -> None:
    other_store.heartbeat(WorkerInfo(id=W1))
    given_back, held = started(other_store), started(other_store)
    settle(other_store, given_back, Failed(BOOM, HOUR))
    other_store.close()  # without a word: its process has ended

    swept = store.sweep(SWEEPER, 1, only_dead=True)

    assert [job.id for job in swept] == ([held.id] if engine.features.notices_death else [])


@pytest.mark.shows("R-JOB-46")
def test_a_takeover_is_a_change_of_the_job(store: Store, clock: ManualClock, reader: Reader) -> None:
    job = started(store)
    clock.advance(ms=HOUR)

    [swept] = store.sweep(SWEEPER)

    assert swept.updated_at == look(reader, job.id).updated_at == clock.now_ms()


# Claims of capped jobs


def test_capped_jobs_that_run_leave_the_room_to_those_that_wait(store: Store) -> None:
    cap_at_once(store, DEFAULT)
    first, second, third = put_many(store, 3)

    assert claimed(store, 1) == [first]
    assert claimed(store, 1) == [second]
    assert claimed(store, 2) == [third]


def test_capped_jobs_are_claimed_only_from_the_wanted_queue(store: Store) -> None:
    cap_at_once(store, DEFAULT, MAIL)
    elsewhere = put(store, queue=MAIL)
    here = put(store)

    assert claimed(store, 2) == [here]
    assert claimed(store, 2, queue=MAIL) == [elsewhere]


def test_an_ordinary_job_is_not_counted_among_the_capped_ones(store: Store, clock: ManualClock) -> None:
    # A point is worth so much time here that the capped job comes after an ordinary one taken for capped.
    store.save_queue(DEFAULT, {"aging_ms": 2**40, "max_aging_bonus": 0.001})
    low = put(store, priority=-100)
    clock.advance(ms=13 * DAY)
    rescore_all(store)
    high = put(store)

    assert claimed(store, 2) == [high, low]


def test_capped_jobs_past_their_time_are_not_claimed_when_there_are_too_many_to_cancel(
    store: Store, clock: ManualClock
) -> None:
    cap_at_once(store, DEFAULT)
    put_many(store, 1_001, expires_at=clock.now_ms() + SECOND)
    clock.advance(ms=SECOND)

    assert claimed(store, 10) == []


# Places


def test_a_job_that_has_waited_for_the_cap_is_capped_when_it_is_put_back(
    store: Store, clock: ManualClock, reader: Reader
) -> None:
    store.save_queue(DEFAULT, {"aging_ms": SECOND, "max_aging_bonus": 10.0})
    job = started(store)
    clock.advance(ms=10 * SECOND)

    settle(store, job, Interrupted())

    assert look(reader, job.id).age_capped
    assert_placed(reader, look(reader, job.id), clock.now_ms())


@pytest.mark.parametrize("how", ["promote", "update"])
def test_a_retry_after_the_cap_enters_the_capped_class(
    store: Store, clock: ManualClock, reader: Reader, how: str
) -> None:
    store.save_queue(DEFAULT, {"aging_ms": SECOND, "max_aging_bonus": 10.0})
    job = started(store)
    settle(store, job, Failed(BOOM, 20 * SECOND if how == "promote" else HOUR))
    clock.advance(ms=20 * SECOND)

    if how == "promote":
        store.promote()
    else:
        store.update_job(job.id, JobUpdate(delay_ms=0))

    assert look(reader, job.id).age_capped
    assert_placed(reader, look(reader, job.id), clock.now_ms())


@pytest.mark.parametrize("how", ["promote", "update", "put back", "revive"])
def test_whatever_enters_the_order_climbs_towards_its_deadline(
    store: Store, clock: ManualClock, reader: Reader, how: str
) -> None:
    deadline = clock.now_ms() + 3 * HOUR
    job_id = put(store, deadline_at=deadline, delay_ms=HOUR if how == "promote" else 2 * HOUR)
    if how == "promote":
        clock.advance(ms=HOUR)
        store.promote()
    else:
        store.update_job(job_id, JobUpdate(delay_ms=0))
    if how == "put back":
        [job] = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 1)], room=1).jobs
        # While it runs its time to be looked at comes and goes.
        clock.advance(ms=2 * HOUR + HOUR // 2)
        rescore_all(store)
        settle(store, job, Interrupted())
    if how == "revive":
        store.cancel([job_id])
        store.revive([job_id])
    entered = look(reader, job_id)
    clock.set(deadline)

    rescore_all(store)

    after = look(reader, job_id)
    assert after.rank < entered.rank
    assert_placed(reader, after, deadline)


def test_a_new_priority_keeps_the_climb_towards_the_deadline(
    store: Store, clock: ManualClock, reader: Reader
) -> None:
    deadline = clock.now_ms() + 2 * HOUR
    job_id = put(store, deadline_at=deadline)
    store.update_job(job_id, JobUpdate(priority=1))
    store.update_job(job_id, JobUpdate(metadata={"k": 1}))
    clock.set(deadline)

    rescore_all(store)

    assert_placed(reader, look(reader, job_id), deadline)


def test_an_own_maintenance_task_does_not_disturb_the_walk_through_old_jobs(
    store: Store, clock: ManualClock, reader: Reader
) -> None:
    store.acquire_maintenance("a", SECOND)
    store.acquire_maintenance("z", SECOND)
    job_id = put(store)
    clock.advance(ms=51 * HOUR)

    rescore_all(store)
    rescore_all(store)

    assert look(reader, job_id).age_capped


# Keys


def test_the_end_of_a_job_frees_no_idempotency_key_of_the_same_name(store: Store) -> None:
    job = started(store, unique_key="k", idempotency_key="k")

    settle(store, job, Completed())

    assert holder_of(store, idempotency_key="k") == job.id


# History


def test_a_job_that_goes_takes_only_its_own_history_along(
    store: Store, clock: ManualClock, reader: Reader
) -> None:
    stays, goes = started(store), started(store)
    for job in (stays, goes):
        settle(store, job, Failed(BOOM, HOUR))
        store.update_job(job.id, JobUpdate(priority=1))

    store.delete([goes.id])

    assert len(attempts_of(reader, stays.id)) == 1
    assert kinds_of(reader, stays.id) == [EventKind.UPDATED]


def test_every_deletion_of_an_id_stays_in_the_audit_log_and_counts_for_nothing(
    store: Store, reader: Reader
) -> None:
    mine = JobId("mine")
    for _ in range(101):
        put(store, id=mine)
        store.delete([mine])
    put(store, id=mine)

    store.record_events([Event(kind=EventKind.COMMENT, job_id=mine, detail="kept")])

    assert [event.kind for _, event in reader.audit(limit=1_000)].count(EventKind.DELETED) == 101
    assert kinds_of(reader, mine) == [EventKind.COMMENT]


def test_events_that_are_only_counted_are_counted_for_their_own_job(store: Store, reader: Reader) -> None:
    one, other = put_many(store, 2)
    for job_id in (one, other):
        store.record_events([Event(kind=EventKind.COMMENT, job_id=job_id, detail="x")] * 101)

    store.record_events([Event(kind=EventKind.COMMENT, job_id=one)])

    assert [events_of(reader, each)[-1].detail for each in (one, other)] == ["2", "1"]
    assert [event.detail for event in events_of(reader, one)[:-1]] == ["x"] * 100


def test_the_archive_is_kept_as_long_as_its_own_queue_says(
    store: Store, clock: ManualClock, reader: Reader
) -> None:
    for queue, keep_ms in ((DEFAULT, HOUR), (MAIL, DAY)):
        store.save_queue(queue, {"archive": True, "keep_finished_ms": 1, "keep_archive_ms": keep_ms})
        settle(store, started(store, queue=queue), Completed())
    clock.advance(ms=SECOND)
    assert store.prune() == 2
    clock.advance(ms=HOUR)

    store.prune()

    assert [line.queue for line in reader.archive()] == [MAIL]


def test_each_queue_keeps_its_final_jobs_for_its_own_time(
    store: Store, clock: ManualClock, reader: Reader
) -> None:
    for queue, keep_ms in ((DEFAULT, SECOND), (MAIL, DAY)):
        store.save_queue(queue, {"keep_finished_ms": keep_ms, "keep_dead_ms": keep_ms})
    kept = started(store, queue=MAIL), started(store, queue=MAIL)
    settle(store, kept[0], Completed())
    store.cancel([kept[1].id], force=True)
    clock.advance(ms=HOUR)

    assert store.prune() == 0

    assert states(reader, [job.id for job in kept]) == [JobState.COMPLETED, JobState.DEAD]
    assert counts_of(reader, MAIL).total == 2


# Workers and queues


def test_a_later_heartbeat_tells_all_that_has_changed(
    store: Store, clock: ManualClock, reader: Reader
) -> None:
    store.heartbeat(WorkerInfo(id=W1, host="old", pid=1, queues=(DEFAULT,), state=WorkerState.WORKING))
    store.heartbeat(WorkerInfo(id=W2))
    clock.advance(ms=SECOND)
    store.heartbeat(WorkerInfo(id=W1, host="new", pid=2, queues=(MAIL,), state=WorkerState.STOPPING))

    [first, _] = reader.workers()

    assert (first.host, first.pid, first.queues, first.state) == ("new", 2, (MAIL,), "stopping")
    assert (first.started_at, first.heartbeat_at) == (clock.now_ms() - SECOND, clock.now_ms())


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.SCHEDULED, JobState.RETRYING])
def test_a_queue_that_is_dropped_takes_no_jobs_of_others_along(
    store: Store, reader: Reader, state: JobState
) -> None:
    dropped, kept = make(store, state), make(store, state, queue=MAIL)

    assert store.drop_queue(DEFAULT, force=True) == 0

    assert states(reader, [dropped, kept]) == [JobState.DEAD, state]
    store.sweep(SWEEPER)
    assert look(reader, kept).state is state


def test_a_change_of_the_order_is_counted_on_the_stored_queue(store: Store, reader: Reader) -> None:
    put(store)
    for aging_ms in (SECOND, SECOND, HOUR // 2):
        store.save_queue(DEFAULT, {"aging_ms": aging_ms})

    assert queue_of(reader).scoring_version == 3


def test_what_another_handle_changes_about_the_order_is_seen_at_once(
    store: Store, other_store: Store, clock: ManualClock, reader: Reader
) -> None:
    put(store)
    other_store.save_queue(DEFAULT, {"aging_ms": SECOND})

    job = look(reader, put(store, priority=5))

    assert job.rank == clock.now_ms() - 5 * SECOND
    store.save_queue(DEFAULT, {"aging_ms": 2 * SECOND})
    assert look(reader, put(store, priority=5)).rank == clock.now_ms() - 10 * SECOND


def test_the_loss_of_a_swept_job_is_settled_once(store: Store, clock: ManualClock, reader: Reader) -> None:
    job, other = started(store), started(store, lease_ms=DAY)
    clock.advance(ms=HOUR)

    [swept] = store.sweep(SWEEPER)
    answer = store.settle_and_claim(SWEEPER, [ended(swept, Lost("its worker died"))] * 2)

    assert (answer.settled, answer.repeated) == ((job.id,), (job.id,))
    assert look(reader, other.id).worker == W1
