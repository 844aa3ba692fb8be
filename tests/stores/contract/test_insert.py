"""Insert: what is accepted, how it is kept, and what is refused as a whole."""

from __future__ import annotations

import pytest
from msgspec.structs import asdict

from forebay.domain.job import MAX_PAYLOAD, JobId, NewJob, QueueName, UniqueUntil
from forebay.domain.lifecycle import JobState
from forebay.domain.query import Counts, JobQuery
from forebay.domain.queue import QueueSettings, QueueState
from forebay.domain.retry import Curve, RetryPolicy
from forebay.errors import DuplicateJob, InvalidJob, PayloadError, QueueClosed, QueueFull, QueueNotFound
from forebay.stores.protocol import Reader, Store
from tests.stores.contract.steps import (
    DEFAULT,
    HOUR,
    MAIL,
    T0,
    claimed,
    counts_of,
    look,
    put,
    put_many,
    queue_of,
    record,
    states,
)
from tests.stores.support import ManualClock, everything, new_job

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
    once_key="once-1",
    once_ms=77,
    metadata={"tenant": "ä", "deep": [1, 2.5, None, True, {"x": "y"}]},
    tags=("red", "gr ün"),
    correlation_id="trace-1",
    parent_id=JobId("parent-1"),
)


@pytest.mark.shows(
    "R-JOB-05", "R-JOB-11", "R-JOB-12", "R-JOB-13", "R-JOB-15", "R-JOB-19", "R-JOB-20", "R-JOB-21", "R-JOB-22"
)
def test_a_job_is_kept_with_all_that_was_asked_for(store: Store, reader: Reader) -> None:
    store.insert([FULL_REQUEST])

    kept = asdict(look(reader, JobId("mine-1")))
    asked = asdict(FULL_REQUEST)
    same = kept.keys() & asked.keys() - {"run_at"}
    assert {name: kept[name] for name in same} == {name: asked[name] for name in same}
    assert len(same) == 18


@pytest.mark.shows("R-ENQ-13", "R-ENQ-14", "R-JOB-16", "R-JOB-17", "R-JOB-18")
def test_a_new_job_starts_pending_with_nothing_behind_it(store: Store, reader: Reader) -> None:
    job = look(reader, put(store))

    assert job.state is JobState.PENDING
    assert (job.created_at, job.updated_at, job.ready_at, job.run_at) == (T0, T0, T0, T0)
    assert (job.attempt, job.failures, job.crashes, job.errors) == (0, 0, 0, ())
    assert (job.worker, job.started_at, job.lease_expires_at) == (None, None, None)
    assert (job.finished_at, job.reason, job.result, job.cancel_reason) == (None, None, None, None)
    assert job.gate is None


@pytest.mark.shows("R-JOB-11", "R-PRI-04")
def test_a_plain_job_goes_to_the_default_queue_with_priority_0(store: Store, reader: Reader) -> None:
    store.insert([NewJob(task="t", id=JobId("plain"))])

    job = look(reader, JobId("plain"))
    assert (job.queue, job.priority) == (QueueName("default"), 0)


def test_a_job_without_a_priority_takes_the_queues(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL, {"default_priority": 42})

    job = look(reader, put(store, queue=MAIL, priority=None))

    assert job.priority == 42


@pytest.mark.shows("R-JOB-01", "R-JOB-02")
def test_a_job_without_an_id_gets_one_of_26_characters(store: Store) -> None:
    first, second = put_many(store, 2)

    assert len(first) == len(second) == 26
    assert first < second


def test_the_receipt_of_a_new_job_tells_its_id_and_state(store: Store) -> None:
    receipts = store.insert([new_job(id=JobId("a")), new_job(id=JobId("b"), delay_ms=1)])

    told = [(receipt.id, receipt.is_new, receipt.state, receipt.error) for receipt in receipts]
    assert told == [("a", True, JobState.PENDING, None), ("b", True, JobState.SCHEDULED, None)]


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


@pytest.mark.shows("R-ENQ-22", "R-EDGE-19", "R-SER-17", "R-CFG-50", "R-TEST-04", "R-ENQ-23")
def test_a_payload_at_the_limit_is_kept_and_one_byte_more_is_refused(store: Store, reader: Reader) -> None:
    job_id = put(store, payload=b"\x00" * MAX_PAYLOAD)

    with pytest.raises(PayloadError, match="limit"):
        put(store, payload=b"\x00" * (MAX_PAYLOAD + 1))

    assert look(reader, job_id).payload == b"\x00" * 1_048_576
    assert counts_of(reader) == Counts(pending=1)


class TestDueTime:
    @pytest.mark.shows("R-ENQ-38")
    @pytest.mark.parametrize("when", [{"run_at": T0}, {"run_at": T0 - HOUR}, {"run_at": 0}, {"delay_ms": 0}])
    def test_a_job_due_now_or_earlier_is_pending_from_now(
        self, store: Store, reader: Reader, when: dict[str, int]
    ) -> None:
        job = look(reader, put(store, **when))

        assert (job.state, job.run_at, job.ready_at) == (JobState.PENDING, T0, T0)

    @pytest.mark.shows("R-SCHED-01", "R-ENQ-13")
    @pytest.mark.parametrize("when", [{"run_at": T0 + 1}, {"delay_ms": 1}])
    def test_a_job_due_later_is_scheduled_for_then(
        self, store: Store, reader: Reader, when: dict[str, int]
    ) -> None:
        job = look(reader, put(store, **when))

        assert (job.state, job.run_at, job.ready_at) == (JobState.SCHEDULED, T0 + 1, T0 + 1)
        assert (job.created_at, job.updated_at) == (T0, T0)
        assert counts_of(reader) == Counts(scheduled=1)

    def test_a_delay_counts_from_the_stores_clock(
        self, store: Store, reader: Reader, clock: ManualClock
    ) -> None:
        clock.advance(ms=500)

        job = look(reader, put(store, delay_ms=1_000))

        assert job.run_at == T0 + 1_500


class TestIds:
    @pytest.mark.shows("R-JOB-05", "R-IDEM-09", "R-EDGE-28", "R-ENQ-12")
    @pytest.mark.parametrize(
        "state", [s for s in JobState if s is not JobState.BLOCKED], ids=lambda s: str(s.value)
    )
    def test_a_taken_id_is_refused_wherever_its_job_is(
        self, store: Store, reader: Reader, state: JobState
    ) -> None:
        from tests.stores.contract.steps import make

        make(store, state, id=JobId("mine"))
        before = record(reader, JobId("mine"))

        with pytest.raises(DuplicateJob) as caught:
            store.insert([new_job(id=JobId("mine"), payload=b"other")])

        assert caught.value.holder == "mine"
        assert record(reader, JobId("mine")) == before
