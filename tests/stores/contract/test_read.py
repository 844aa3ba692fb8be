"""Read: records, counts, peek, position, history and audit."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import asdict

from forebay.domain.job import QueueName
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.job_views import JobSummary
from forebay.domain.outcome import Completed, Discarded, Failed
from forebay.domain.queue import QueueState
from forebay.domain.queue_counts import Counts, Position
from forebay.errors import ConfigError
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DEFAULT,
    HOUR,
    MAIL,
    MINUTE,
    STATES,
    T0,
    UNKNOWN,
    W1,
    W2,
    claimed,
    counts_of,
    make,
    put,
    put_many,
    record,
    rescore_all,
    settle,
    start,
    started,
)

# Records.


@pytest.mark.shows("R-ENQ-40", "R-DLQ-05")
def test_records_are_found_wherever_they_are_in_the_order_asked(store: Store, reader: Reader) -> None:
    ids = [make(store, state, queue=QueueName(f"q-{state}")) for state in STATES]

    found = reader.jobs([*reversed(ids), UNKNOWN])

    assert [job.state if job else None for job in found] == [*reversed(STATES), None]


def test_reading_the_same_job_twice_gives_it_twice(store: Store, reader: Reader) -> None:
    job_id = put(store)

    found = reader.jobs([job_id, job_id])

    assert [job.id if job else None for job in found] == [job_id, job_id]


def test_reading_no_jobs_gives_none(reader: Reader) -> None:
    assert reader.jobs([]) == []


def test_records_can_be_read_without_what_may_be_large(store: Store, reader: Reader) -> None:
    more: dict[str, Any] = {"metadata": {"user": 7}, "tags": ("red",), "payload": b"p" * 100_000}
    failed = started(store, **more)
    settle(store, failed, Failed(BOOM, after_ms=HOUR))
    done = started(store, **more)
    settle(store, done, Completed(b"r" * 100_000))
    ids = [failed.id, done.id, started(store, **more).id, put(store, **more), UNKNOWN, failed.id]

    found = [job and asdict(job) for job in reader.jobs(ids, with_payload=False)]

    empty = {"payload": b"", "result": None, "errors": ()}
    assert found == [job and asdict(job) | empty for job in reader.jobs(ids)]


def test_a_record_without_its_payload_keeps_large_options(store: Store, reader: Reader) -> None:
    job_id = put(store, metadata={f"name {number}": "x" * 1_000 for number in range(60)})

    [narrow], [whole] = reader.jobs([job_id], with_payload=False), reader.jobs([job_id])

    assert narrow is not None
    assert whole is not None
    assert narrow.metadata == whole.metadata


def test_many_jobs_can_be_read_at_once(store: Store, reader: Reader) -> None:
    ids = put_many(store, 2_500)

    found = reader.jobs(ids)

    assert [job.id if job else None for job in found] == ids


def test_the_fate_of_a_job_is_how_it_ended_and_its_last_error(store: Store, reader: Reader) -> None:
    job = started(store, queue=MAIL, payload=b"secret")
    settle(store, job, Discarded(BOOM))
    waits = put(store)

    [dead, unknown, waiting] = reader.job_states([job.id, UNKNOWN, waits])

    assert dead is not None
    assert dead.error is not None
    assert waiting is not None
    assert (dead.id, dead.queue, dead.task, dead.state) == (job.id, MAIL, job.task, JobState.DEAD)
    assert (dead.seq, dead.finished_at, dead.reason) == (job.seq, T0, "Boom: it broke")
    assert (dead.error.type, dead.error.message, dead.error.traceback) == ("Boom", "it broke", "line 1")
    assert unknown is None
    assert (waiting.state, waiting.finished_at, waiting.error) == (JobState.PENDING, None, None)
    assert reader.job_states([]) == []


# Counts.


@pytest.mark.shows("R-QUEUE-11", "R-ENQ-41", "R-STORE-68", "R-CLI-21")
def test_counts_tell_every_state_of_every_queue(store: Store, reader: Reader) -> None:
    [make(store, state, queue=MAIL) for state in STATES if state is not JobState.PENDING]
    put_many(store, 3, queue=MAIL)
    put(store)

    counts = reader.counts()

    assert counts == {
        DEFAULT: Counts(pending=1),
        MAIL: Counts(scheduled=1, pending=3, running=1, retrying=1, completed=1, dead=1, cancelled=1),
    }
    assert (counts[MAIL].live, counts[MAIL].total) == (6, 9)


@pytest.mark.shows("R-QUEUE-11")
def test_counts_can_be_asked_of_chosen_queues_known_or_not(store: Store, reader: Reader) -> None:
    put(store)
    put(store, queue=MAIL)

    counts = reader.counts([MAIL, QueueName("unknown")])

    assert counts == {MAIL: Counts(pending=1), QueueName("unknown"): Counts()}


def test_counts_tell_of_dropped_queues_too(store: Store, reader: Reader) -> None:
    put(store)
    store.drop_queue(DEFAULT, force=True)

    assert reader.counts() == {DEFAULT: Counts(dead=1)}


def test_a_queue_without_jobs_has_counts_of_zero(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL)

    assert reader.counts() == {MAIL: Counts()}


@pytest.mark.shows("R-TEST-52")
def test_the_sum_over_all_states_is_what_was_enqueued(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    put_many(store, 10)
    put_many(store, 5, delay_ms=HOUR)
    settle(store, start(store), Completed(b"1"))
    settle(store, start(store), Failed(BOOM, HOUR))
    settle(store, start(store), Discarded(BOOM))
    store.cancel(claimed(store, 2)[:1], force=True)
    clock.advance(ms=HOUR)
    store.promote()

    assert counts_of(reader).total == 15


# Peek.


@pytest.mark.shows("R-ENQ-42", "R-TEST-05", "R-STORE-68")
def test_a_peek_shows_what_a_claim_would_take_and_takes_nothing(store: Store, reader: Reader) -> None:
    low, high, middle = put(store, priority=1), put(store, priority=3), put(store, priority=2)

    seen = [job.id for job in reader.peek(DEFAULT)]

    assert seen == [high, middle, low]
    assert counts_of(reader) == Counts(pending=3)
    assert claimed(store, 3) == seen


@pytest.mark.shows("R-ENQ-42")
def test_a_peek_shows_ten_jobs_unless_asked_for_more(store: Store, reader: Reader) -> None:
    ids = put_many(store, 15)

    assert [job.id for job in reader.peek(DEFAULT)] == ids[:10]
    assert [job.id for job in reader.peek(DEFAULT, 12)] == ids[:12]
    assert [job.id for job in reader.peek(DEFAULT, 100)] == ids


@pytest.mark.shows("R-ENQ-42")
def test_a_peek_into_an_empty_or_unknown_queue_shows_nothing(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL)

    assert (reader.peek(MAIL), reader.peek(QueueName("unknown"))) == ([], [])


def test_a_peek_shows_only_pending_jobs_of_its_queue(store: Store, reader: Reader) -> None:
    [make(store, state) for state in STATES if state is not JobState.PENDING]
    put(store, queue=MAIL)
    job_id = put(store)

    assert [job.id for job in reader.peek(DEFAULT)] == [job_id]


def test_a_peek_does_not_mind_a_pause(store: Store, reader: Reader) -> None:
    job_id = put(store)
    store.save_queue(DEFAULT, state=QueueState.PAUSED)

    assert [job.id for job in reader.peek(DEFAULT)] == [job_id]


def test_a_peek_merges_capped_and_ordinary_jobs_as_a_claim_does(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, {"aging_ms": 1_000, "max_aging_bonus": 10.0})
    put_many(store, 2, priority=0)
    clock.advance(ms=50_000)
    rescore_all(store)
    put(store, priority=11)
    put(store, priority=9)

    seen = [job.id for job in reader.peek(DEFAULT)]

    assert claimed(store, 4) == seen


@pytest.mark.shows("R-DONE-07")
def test_a_line_in_a_list_has_neither_payload_nor_result(store: Store, reader: Reader) -> None:
    job_id = put(store, task="t.x", priority=4, tags=("a",), payload=b"x" * 1_000)

    [line] = reader.peek(DEFAULT)

    assert line == JobSummary(
        id=job_id,
        queue=DEFAULT,
        task="t.x",
        state=JobState.PENDING,
        priority=4,
        attempt=0,
        failures=0,
        created_at=T0,
        run_at=T0,
        started_at=None,
        finished_at=None,
        worker=None,
        reason=None,
        tags=("a",),
    )


@pytest.mark.parametrize("limit", [0, -1, 1_001])
def test_a_list_has_a_limit(reader: Reader, limit: int) -> None:
    with pytest.raises(ConfigError):
        reader.peek(DEFAULT, limit)
    with pytest.raises(ConfigError):
        reader.audit(limit=limit)
    with pytest.raises(ConfigError):
        reader.archive(limit=limit)


# Position.


def test_a_position_tells_how_many_jobs_go_first(store: Store, reader: Reader, clock: ManualClock) -> None:
    ids = put_many(store, 3)
    put(store, queue=MAIL, priority=99)
    put(store, delay_ms=1)
    urgent = put(store, priority=1)

    ahead = [position.ahead for job_id in [urgent, *ids] if (position := reader.position(job_id))]

    assert ahead == [0, 1, 2, 3]


@pytest.mark.parametrize("state", [state for state in STATES if state is not JobState.PENDING])
def test_a_job_that_is_not_pending_has_no_position(store: Store, reader: Reader, state: JobState) -> None:
    assert reader.position(make(store, state)) is None


def test_an_unknown_job_has_no_position(reader: Reader) -> None:
    assert reader.position(UNKNOWN) is None


def test_a_position_counts_across_both_classes(store: Store, reader: Reader, clock: ManualClock) -> None:
    store.save_queue(DEFAULT, {"aging_ms": 1_000, "max_aging_bonus": 10.0})
    capped = put(store, priority=0)
    clock.advance(ms=50_000)
    rescore_all(store)
    above, equal, below = put(store, priority=11), put(store, priority=10), put(store, priority=9)

    order = [reader.position(job_id) for job_id in (above, capped, equal, below)]

    assert [position.ahead for position in order if position] == [0, 1, 2, 3]


def test_a_position_promises_no_start_without_a_throughput(store: Store, reader: Reader) -> None:
    put(store)

    assert reader.position(put(store)) == Position(ahead=1, is_exact=True, starts_in_ms=None)


@pytest.mark.shows("R-ENQ-05")
def test_a_position_promises_a_start_by_the_throughput_of_the_last_minute(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    make(store, JobState.COMPLETED)
    clock.advance(ms=1)
    [make(store, JobState.COMPLETED) for _ in range(4)]
    make(store, JobState.DEAD)
    make(store, JobState.CANCELLED)
    make(store, JobState.COMPLETED, queue=MAIL)
    clock.advance(ms=MINUTE - 1)
    put_many(store, 6)

    position = reader.position(put(store))

    assert position == Position(ahead=6, is_exact=True, starts_in_ms=6 * 60_000 // 4)


def test_a_position_is_exact_up_to_10000_and_then_an_estimate(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    put_many(store, 5_000)
    clock.advance(ms=HOUR)
    ids = put_many(store, 5_002)

    exact, estimate = reader.position(ids[-2]), reader.position(ids[-1])

    assert exact == Position(ahead=10_000, is_exact=True, starts_in_ms=None)
    assert estimate is not None
    assert estimate.is_exact is False
    assert 0 <= estimate.ahead <= 10_002


def test_an_estimate_of_jobs_that_are_all_alike_stays_within_the_queue(store: Store, reader: Reader) -> None:
    ids = put_many(store, 10_010)

    estimate = reader.position(ids[-1])

    assert estimate is not None
    assert estimate.is_exact is False
    assert 0 <= estimate.ahead <= 10_010


# History and audit.


@pytest.mark.shows("R-HIST-01", "R-HIST-03", "R-HIST-07", "R-ENQ-16", "R-HIST-28", "R-JOB-24")
def test_a_timeline_tells_the_whole_life_of_a_job_oldest_first(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    first = started(store, W1)
    clock.advance(ms=10)
    settle(store, first, Failed(BOOM, 10))
    clock.advance(ms=10)
    second = start(store, W2)
    store.cancel([first.id], "please stop", actor="ann")
    settle(store, second, Completed(b"1"), W1)
    clock.advance(ms=10)
    settle(store, second, Completed(b"42"), W2)

    timeline = reader.history(first.id)

    assert timeline is not None
    assert (timeline.job.created_at, timeline.job.started_at, timeline.job.finished_at) == (
        T0,
        T0 + 20,
        T0 + 30,
    )
    assert [(row.attempt, row.worker, row.started_at, row.ended_at) for row in timeline.attempts] == [
        (1, W1, T0, T0 + 10)
    ]
    assert [(event.kind, event.occurred_at) for event in timeline.events] == [
        (EventKind.CANCEL, T0 + 20),
        (EventKind.REFUSED, T0 + 20),
    ]


@pytest.mark.parametrize("state", STATES)
def test_a_timeline_has_the_record_wherever_the_job_is(store: Store, reader: Reader, state: JobState) -> None:
    job_id = make(store, state)

    timeline = reader.history(job_id)

    assert timeline is not None
    assert timeline.job.state is state
    assert record(reader, job_id) is not None


def test_an_unknown_job_has_no_history(reader: Reader) -> None:
    assert reader.history(UNKNOWN) is None


@pytest.mark.shows("R-QUEUE-14", "R-HIST-27")
def test_the_audit_log_is_read_newest_first_page_by_page(store: Store, reader: Reader) -> None:
    store.record_events([Event(kind=EventKind.COMMENT, detail=str(n)) for n in range(5)])

    first = reader.audit(limit=2)
    second = reader.audit(limit=2, after=first[-1][0])
    third = reader.audit(limit=2, after=second[-1][0])

    pages = [[event.detail for _, event in page] for page in (first, second, third)]
    assert pages == [["4", "3"], ["2", "1"], ["0"]]
    assert reader.audit(after=third[-1][0]) == []
    numbers = [number for page in (first, second, third) for number, _ in page]
    assert numbers == sorted(set(numbers), reverse=True)


def test_the_audit_log_holds_events_of_jobs_and_of_queues(store: Store, reader: Reader) -> None:
    job_id = put(store)
    store.cancel([job_id], actor="ann")
    store.save_queue(MAIL, actor="bob")

    log = [(event.kind, event.job_id, event.queue, event.actor) for _, event in reader.audit()]

    assert log == [
        (EventKind.QUEUE_CHANGED, None, MAIL, "bob"),
        (EventKind.CANCEL, job_id, DEFAULT, "ann"),
    ]


@pytest.mark.shows("R-CLI-21")
def test_a_sound_store_has_no_problems(store: Store, reader: Reader) -> None:
    [make(store, state, unique_key=f"k-{state}") for state in STATES if state is not JobState.PENDING]

    health = reader.health()

    assert health.problems == ()
    assert health.engine
