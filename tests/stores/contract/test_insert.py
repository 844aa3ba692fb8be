"""Insert: what is accepted, how it is kept, and what is refused as a whole."""

from __future__ import annotations

import pytest
from msgspec.structs import asdict

from forebay.domain.job import JobId, NewJob, QueueName, UniqueUntil
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.job_validation import MAX_PAYLOAD
from forebay.domain.queue import QueueSettings, QueueState
from forebay.domain.queue_counts import Counts
from forebay.domain.retry_policy import Curve, RetryPolicy
from forebay.errors import DuplicateJob, InvalidJob, PayloadError, QueueClosed, QueueFull, QueueNotFound
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    DEFAULT,
    HOUR,
    MAIL,
    STATES,
    T0,
    claimed,
    counts_of,
    look,
    make,
    put,
    put_many,
    queue_of,
    record,
    states,
)
from tests.stores.support import everything, new_job

FULL_REQUEST = NewJob(
    task="mail.send",
    payload=bytes(range(256)),
    queue=MAIL,
    id=JobId("mine-1"),
    priority=-7,
    deadline_at=T0 + 5 * HOUR,
    expires_at=T0 + 9 * HOUR,
    timeout_ms=None,
    lease_ms=5_000,
    extension_ms=60_000,
    policy=RetryPolicy(max_retries=7, curve=Curve.LINEAR, factor=1.5),
    unique_key="größe 🚀",
    unique_until=UniqueUntil.STARTED,
    idempotency_key="once-1",
    idempotency_ttl_ms=77,
    metadata={"tenant": "ä", "deep": [1, 2.5, None, True, {"x": "y"}]},
    tags=("red", "gr ün"),
    correlation_id="trace-1",
    parent_id=JobId("parent-1"),
    limit_keys={"tenant": "acme"},
    sequence="s",
    cost=3,
)


@pytest.mark.shows(
    "R-JOB-05", "R-JOB-11", "R-JOB-12", "R-JOB-13", "R-JOB-15", "R-JOB-19", "R-JOB-20", "R-JOB-21", "R-JOB-22"
)
def test_a_job_is_kept_with_all_that_was_asked_for(store: Store, reader: Reader) -> None:
    store.insert([FULL_REQUEST])

    kept = asdict(look(reader, JobId("mine-1")))
    requested = asdict(FULL_REQUEST)
    same = kept.keys() & requested.keys() - {"run_at"}
    assert {name: kept[name] for name in same} == {name: requested[name] for name in same}
    assert len(same) == 21


@pytest.mark.shows("R-ENQ-13", "R-ENQ-14", "R-JOB-16", "R-JOB-18")
def test_a_new_job_starts_pending_with_nothing_behind_it(store: Store, reader: Reader) -> None:
    job = look(reader, put(store))

    assert job.state is JobState.PENDING
    assert (job.created_at, job.updated_at, job.ready_at, job.run_at) == (T0, T0, T0, T0)
    assert (job.attempt, job.failures, job.crashes, job.errors) == (0, 0, 0, ())
    assert (job.worker, job.started_at, job.lease_expires_at) == (None, None, None)
    assert (job.finished_at, job.reason, job.result, job.cancel_reason) == (None, None, None, None)
    assert job.lane is None


@pytest.mark.shows("R-JOB-11", "R-PRI-04")
def test_a_plain_job_goes_to_the_default_queue_with_priority_0(store: Store, reader: Reader) -> None:
    store.insert([NewJob(task="t", id=JobId("plain"))])

    job = look(reader, JobId("plain"))
    assert (job.queue, job.priority) == (QueueName("default"), 0)


def test_a_job_without_a_priority_takes_the_queues(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"default_priority": 42})

    job = look(reader, put(store, queue=MAIL, priority=None))

    assert job.priority == 42


def test_a_priority_of_0_is_not_the_queues_own(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"default_priority": 42})

    receipts = store.insert([new_job(queue=MAIL, priority=priority) for priority in (None, 0, None)])

    assert [look(reader, receipt.id).priority for receipt in receipts if receipt.id] == [42, 0, 42]


@pytest.mark.shows("R-JOB-01", "R-JOB-02")
def test_a_job_without_an_id_gets_one_of_26_characters(store: Store) -> None:
    first, second = put_many(store, 2)

    assert len(first) == len(second) == 26
    assert first < second


def test_the_receipt_of_a_new_job_tells_its_id_and_state(store: Store) -> None:
    receipts = store.insert([new_job(id=JobId("a")), new_job(id=JobId("b"), delay_ms=1)])

    answers = [(receipt.id, receipt.is_new, receipt.state, receipt.error) for receipt in receipts]
    assert answers == [("a", True, JobState.PENDING, None), ("b", True, JobState.SCHEDULED, None)]


@pytest.mark.shows("R-ENQ-06", "R-ENQ-08", "R-ENQ-09")
def test_receipts_come_in_the_order_asked_across_queues(store: Store, reader: Reader) -> None:
    queues = [DEFAULT, MAIL, DEFAULT, MAIL]

    receipts = store.insert([new_job(queue=queue) for queue in queues])

    ids = [receipt.id for receipt in receipts if receipt.id]
    assert [look(reader, job_id).queue for job_id in ids] == queues


def test_seq_grows_with_each_job_of_a_batch_and_between_batches(store: Store, reader: Reader) -> None:
    ids = [*put_many(store, 3), *put_many(store, 2, queue=MAIL)]

    numbers = [look(reader, job_id).seq for job_id in ids]
    assert numbers == sorted(set(numbers))


def test_jobs_of_all_kinds_in_one_batch_keep_what_is_theirs(store: Store, reader: Reader) -> None:
    specs = [
        new_job(
            task=f"t{n % 3}",
            queue=(DEFAULT, MAIL)[n % 2],
            payload=b"%d" % n,
            priority=(None, 5)[n % 2],
            delay_ms=(0, 0, HOUR)[n % 3],
            deadline_at=(None, T0 + HOUR)[n % 5 == 0],
            expires_at=(None, T0 + 2 * HOUR)[n % 7 == 0],
            tags=("red",) * (n % 4 == 0),
            metadata={"n": n % 2 == 0 or 1},
            id=JobId(f"mine-{n}") if n % 10 == 0 else None,
            unique_key=f"k{n}" if n % 9 == 0 else None,
        )
        for n in range(100)
    ]

    found = [look(reader, receipt.id) for receipt in store.insert(specs) if receipt.id is not None]

    kept = [
        (job.task, job.queue, job.payload, job.priority or None, job.deadline_at, job.expires_at, job.tags)
        for job in found
    ]
    assert kept == [
        (job.task, job.queue, job.payload, job.priority, job.deadline_at, job.expires_at, job.tags)
        for job in specs
    ]
    # Not only equal: True is not 1.
    assert [repr(job.metadata) for job in found] == [repr(job.metadata) for job in specs]
    assert [job.unique_key for job in found] == [job.unique_key for job in specs]
    assert [job.run_at - T0 for job in found] == [job.delay_ms for job in specs]
    assert [job.seq for job in found] == sorted(job.seq for job in found)
    assert [job.id for job in found[::10]] == [f"mine-{n}" for n in range(0, 100, 10)]


@pytest.mark.shows("R-EDGE-24")
def test_an_empty_batch_does_nothing(store: Store, reader: Reader) -> None:
    assert store.insert([]) == []

    assert reader.queues() == []
    assert everything(reader, JobQuery()) == []


@pytest.mark.shows("R-ENQ-11")
def test_a_batch_larger_than_any_chunk_is_stored_whole(store: Store, reader: Reader) -> None:
    receipts = store.insert([new_job(payload=b"%d" % n) for n in range(2_345)])

    ids = [receipt.id for receipt in receipts if receipt.id]
    kept = [job.payload for job in reader.jobs(ids) if job]
    assert kept == [b"%d" % n for n in range(2_345)]
    assert counts_of(reader).pending == 2_345


@pytest.mark.shows("R-ENQ-22", "R-EDGE-19", "R-TEST-04", "R-ENQ-23", "R-TEST-09")
def test_a_payload_at_the_limit_is_kept_and_one_byte_more_is_refused(store: Store, reader: Reader) -> None:
    job_id = put(store, payload=b"\x00" * MAX_PAYLOAD)

    with pytest.raises(PayloadError, match="limit"):
        put(store, payload=b"\x00" * (MAX_PAYLOAD + 1))

    assert look(reader, job_id).payload == b"\x00" * 1_048_576
    assert counts_of(reader) == Counts(pending=1)


@pytest.mark.shows("R-ENQ-38")
@pytest.mark.parametrize("when", [{"run_at": T0}, {"run_at": T0 - HOUR}, {"run_at": 0}, {"delay_ms": 0}])
def test_a_job_due_now_or_earlier_is_pending_from_now(
    store: Store, reader: Reader, when: dict[str, int]
) -> None:
    job = look(reader, put(store, **when))

    assert (job.state, job.run_at, job.ready_at) == (JobState.PENDING, T0, T0)


@pytest.mark.shows("R-SCHED-01", "R-ENQ-13")
@pytest.mark.parametrize("when", [{"run_at": T0 + 1}, {"delay_ms": 1}])
def test_a_job_due_later_is_scheduled_for_then(store: Store, reader: Reader, when: dict[str, int]) -> None:
    job = look(reader, put(store, **when))

    assert (job.state, job.run_at, job.ready_at) == (JobState.SCHEDULED, T0 + 1, T0 + 1)
    assert (job.created_at, job.updated_at) == (T0, T0)
    assert counts_of(reader) == Counts(scheduled=1)


@pytest.mark.shows("R-BUG-34")
def test_a_delay_counts_in_milliseconds_from_the_stores_clock(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    clock.advance(ms=500)

    job = look(reader, put(store, delay_ms=1_000))

    assert job.run_at == T0 + 1_500


@pytest.mark.shows("R-JOB-05", "R-IDEM-09", "R-EDGE-28", "R-ENQ-12")
@pytest.mark.parametrize("state", STATES)
def test_a_taken_id_is_refused_wherever_its_job_is(store: Store, reader: Reader, state: JobState) -> None:
    make(store, state, id=JobId("mine"))
    before = record(reader, JobId("mine"))

    with pytest.raises(DuplicateJob) as caught:
        store.insert([new_job(id=JobId("mine"), payload=b"other")])

    assert caught.value.holder == "mine"
    assert record(reader, JobId("mine")) == before


@pytest.mark.shows("R-EDGE-28", "R-ENQ-12")
@pytest.mark.parametrize("state", STATES)
def test_a_taken_id_can_be_ignored(store: Store, reader: Reader, state: JobState) -> None:
    make(store, state, id=JobId("mine"))
    before = record(reader, JobId("mine"))

    receipts = store.insert(
        [new_job(id=JobId("mine"), payload=b"other"), new_job(id=JobId("fresh"))], on_conflict="ignore"
    )

    assert [(r.id, r.is_new, r.state) for r in receipts] == [
        ("mine", False, state),
        ("fresh", True, JobState.PENDING),
    ]
    assert record(reader, JobId("mine")) == before


def test_an_id_used_twice_in_a_batch_refuses_the_batch(store: Store, reader: Reader) -> None:
    with pytest.raises(DuplicateJob):
        store.insert([new_job(id=JobId("mine")), new_job(id=JobId("mine"))])

    assert reader.jobs([JobId("mine")]) == [None]


def test_an_id_used_twice_in_a_batch_can_be_ignored(store: Store, reader: Reader) -> None:
    first, second = store.insert(
        [new_job(id=JobId("mine"), payload=b"1"), new_job(id=JobId("mine"), payload=b"2")],
        on_conflict="ignore",
    )

    assert (first.is_new, second.is_new, second.id) == (True, False, "mine")
    assert look(reader, JobId("mine")).payload == b"1"
    assert counts_of(reader) == Counts(pending=1)


@pytest.mark.shows("R-ENQ-32", "R-QUEUE-01")
def test_an_unknown_queue_is_created_with_default_settings(store: Store, reader: Reader) -> None:
    put(store, queue=MAIL)

    queue = queue_of(reader, MAIL)
    assert (queue.state, queue.settings, queue.scoring_version) == (QueueState.ACTIVE, QueueSettings(), 1)
    assert (queue.created_at, queue.updated_at, queue.is_rescoring) == (T0, T0, False)


@pytest.mark.shows("R-ENQ-32")
def test_an_unknown_queue_can_be_refused(store: Store, reader: Reader) -> None:
    with pytest.raises(QueueNotFound):
        store.insert([new_job(queue=MAIL)], create_queues=False)

    assert reader.queues([MAIL]) == []


def test_a_known_queue_needs_no_leave_to_be_created(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL)

    [receipt] = store.insert([new_job(queue=MAIL)], create_queues=False)

    assert receipt.is_new


@pytest.mark.shows("R-ENQ-34", "R-QUEUE-05")
def test_a_draining_queue_takes_no_jobs(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, state=QueueState.DRAINING)

    with pytest.raises(QueueClosed):
        store.insert([new_job(queue=MAIL)])

    assert counts_of(reader, MAIL) == Counts()


@pytest.mark.shows("R-EDGE-52")
def test_a_dropped_queue_takes_no_jobs(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL)
    store.drop_queue(MAIL)

    with pytest.raises(QueueClosed):
        store.insert([new_job(queue=MAIL)])

    assert counts_of(reader, MAIL) == Counts()


@pytest.mark.shows("R-QUEUE-05")
def test_a_paused_queue_takes_jobs(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, state=QueueState.PAUSED)

    put(store, queue=MAIL)

    assert counts_of(reader, MAIL) == Counts(pending=1)


@pytest.mark.shows("R-ENQ-28")
@pytest.mark.parametrize("priority", [-1, 11])
def test_a_priority_outside_the_queues_range_is_refused(store: Store, reader: Reader, priority: int) -> None:
    store.save_queue(MAIL, {"min_priority": 0, "max_priority": 10})

    with pytest.raises(InvalidJob) as caught:
        store.insert([new_job(queue=MAIL, priority=priority)])

    assert caught.value.field == "priority"
    assert isinstance(caught.value, ValueError)
    assert counts_of(reader, MAIL) == Counts()


@pytest.mark.parametrize("priority", [0, 10])
def test_a_priority_at_the_end_of_the_queues_range_is_taken(
    store: Store, reader: Reader, priority: int
) -> None:
    store.save_queue(MAIL, {"min_priority": 0, "max_priority": 10})

    job = look(reader, put(store, queue=MAIL, priority=priority))

    assert job.priority == priority


@pytest.mark.shows("R-ENQ-33", "R-RATE-05", "R-RATE-13", "R-EDGE-27", "R-STORE-67")
def test_a_full_queue_refuses_the_next_job_and_names_its_limit(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"max_length": 2})
    put_many(store, 2, queue=MAIL)

    with pytest.raises(QueueFull) as caught:
        store.insert([new_job(queue=MAIL)])

    assert (caught.value.queue, caught.value.limit) == (MAIL, 2)
    assert counts_of(reader, MAIL) == Counts(pending=2)


@pytest.mark.shows("R-RATE-17")
def test_a_batch_that_would_overfill_a_queue_is_refused_whole(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"max_length": 3})
    kept = put_many(store, 2, queue=MAIL)

    with pytest.raises(QueueFull):
        store.insert([new_job(queue=MAIL), new_job(queue=MAIL)])

    assert counts_of(reader, MAIL) == Counts(pending=2)
    assert claimed(store, 9, queue=MAIL) == kept


@pytest.mark.shows("R-SCHED-05", "R-EDGE-27")
def test_scheduled_jobs_do_not_count_towards_the_length(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"max_length": 1})
    put_many(store, 3, queue=MAIL, delay_ms=HOUR)

    put(store, queue=MAIL)

    assert counts_of(reader, MAIL) == Counts(scheduled=3, pending=1)


def test_a_full_queue_still_takes_scheduled_jobs(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"max_length": 1})
    put(store, queue=MAIL)

    put(store, queue=MAIL, delay_ms=HOUR)

    assert counts_of(reader, MAIL) == Counts(scheduled=1, pending=1)


@pytest.mark.shows("R-ENQ-41")
def test_running_jobs_do_not_count_towards_the_length(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"max_length": 1})
    put(store, queue=MAIL)
    claimed(store, 1, queue=MAIL)

    put(store, queue=MAIL)

    assert counts_of(reader, MAIL) == Counts(running=1, pending=1)


def test_a_large_insert_is_counted_like_many_small_ones(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"max_length": 3})
    put(store)
    mixed = [
        *(new_job(queue=MAIL) for _ in range(4)),
        *(new_job(unique_key=f"k{number % 2}") for number in range(6)),
        *(new_job(delay_ms=HOUR) for _ in range(250)),
        *(new_job(queue=MAIL, delay_ms=HOUR) for _ in range(2)),
    ]

    receipts = store.insert(mixed, atomic=False)
    put(store)
    claimed(store, 2)

    assert sum(receipt.is_new for receipt in receipts) == 3 + 2 + 250 + 2
    assert counts_of(reader, MAIL) == Counts(scheduled=2, pending=3)
    assert counts_of(reader, DEFAULT) == Counts(scheduled=250, pending=2, running=2)


def test_a_job_answered_with_its_holder_does_not_count_towards_the_length(
    store: Store, reader: Reader
) -> None:
    store.save_queue(MAIL, {"max_length": 1})
    holder = put(store, queue=MAIL, unique_key="k")

    [receipt] = store.insert([new_job(queue=MAIL, unique_key="k")])

    assert (receipt.id, receipt.is_new) == (holder, False)
    assert counts_of(reader, MAIL) == Counts(pending=1)


BAD_JOBS = [
    (new_job(queue=QueueName("closed")), QueueClosed),
    (new_job(queue=QueueName("full")), QueueFull),
    (new_job(queue=QueueName("narrow"), priority=99), InvalidJob),
    (new_job(id=JobId("taken")), DuplicateJob),
]


def prepare_refusals(store: Store) -> None:
    put(store, id=JobId("taken"))
    store.save_queue(QueueName("closed"), state=QueueState.DRAINING)
    store.save_queue(QueueName("narrow"), {"max_priority": 10})
    store.save_queue(QueueName("full"), {"max_length": 1})
    put(store, queue=QueueName("full"))


@pytest.mark.shows("R-ENQ-07", "R-ENQ-15")
@pytest.mark.parametrize(("bad", "error"), BAD_JOBS, ids=lambda value: getattr(value, "queue", None))
def test_one_refused_job_leaves_nothing_of_its_batch(
    store: Store, reader: Reader, bad: NewJob, error: type[Exception]
) -> None:
    prepare_refusals(store)
    before = reader.counts()

    with pytest.raises(error):
        store.insert([new_job(queue=MAIL, unique_key="k", idempotency_key="k"), bad, new_job()])

    assert reader.counts() == before
    assert reader.queues([MAIL]) == []


@pytest.mark.parametrize(("bad", "error"), BAD_JOBS, ids=lambda value: getattr(value, "queue", None))
def test_the_keys_of_a_refused_batch_are_free(store: Store, bad: NewJob, error: type[Exception]) -> None:
    prepare_refusals(store)
    with pytest.raises(error):
        store.insert([new_job(queue=MAIL, id=JobId("mine"), unique_key="k", idempotency_key="k"), bad])

    [receipt] = store.insert([new_job(queue=MAIL, id=JobId("mine"), unique_key="k", idempotency_key="k")])

    assert receipt.is_new


@pytest.mark.shows("R-ENQ-10")
@pytest.mark.parametrize(("bad", "error"), BAD_JOBS, ids=lambda value: getattr(value, "queue", None))
def test_a_batch_that_is_not_atomic_stores_what_is_not_refused(
    store: Store, reader: Reader, bad: NewJob, error: type[Exception]
) -> None:
    prepare_refusals(store)

    first, refused, last = store.insert([new_job(queue=MAIL), bad, new_job(queue=MAIL)], atomic=False)

    assert (first.is_new, refused.is_new, last.is_new) == (True, False, True)
    assert (first.error, type(refused.error), last.error) == (None, error, None)
    assert counts_of(reader, MAIL) == Counts(pending=2)


def test_a_refused_job_does_not_create_its_queue(store: Store, reader: Reader) -> None:
    put(store, id=JobId("taken"))

    [receipt] = store.insert([new_job(id=JobId("taken"), queue=MAIL)], atomic=False)

    assert isinstance(receipt.error, DuplicateJob)
    assert reader.queues([MAIL]) == []


def test_an_ignored_job_does_not_create_its_queue(store: Store, reader: Reader) -> None:
    put(store, id=JobId("taken"))

    [receipt] = store.insert([new_job(id=JobId("taken"), queue=MAIL)], on_conflict="ignore")

    assert receipt.is_new is False
    assert reader.queues([MAIL]) == []


def test_a_batch_that_is_not_atomic_fills_a_queue_to_its_limit(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"max_length": 2})

    receipts = store.insert([new_job(queue=MAIL)] * 4, atomic=False)

    assert [receipt.is_new for receipt in receipts] == [True, True, False, False]
    assert counts_of(reader, MAIL) == Counts(pending=2)


def test_what_one_handle_inserts_another_one_sees_at_once(
    store: Store, other_store: Store, reader: Reader
) -> None:
    job_id = put(store)

    taken = claimed(other_store, 1)

    assert taken == [job_id]
    assert states(reader, taken) == [JobState.RUNNING]
