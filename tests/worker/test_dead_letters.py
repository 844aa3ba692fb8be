"""What ends in the dead letters keeps the reason why."""

from __future__ import annotations

import pytest

from forebay import Forebay, RetryPolicy
from forebay.domain.job import DEFAULT_QUEUE, NewJob
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Outcome
from forebay.domain.settlement import OutcomeKind
from forebay.payload.codec import encode_call
from forebay.worker.assigned_job import Assignment
from forebay.worker.task_invoker import Invoker
from tests.worker.rig import Rig
from tests.worker.support import DEADLINE, called


@pytest.mark.shows("R-BUG-12", "R-DLQ-18", "R-LEASE-17", "R-EDGE-60")
@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (encode_call((1,), {}).replace(b"[1]", b"[2]"), "CorruptPayload: "),
        (b"\xff\x00 never a payload", "CorruptPayload: "),
        (encode_call((1, 2, 3), {}), "PayloadError: task send cannot be called like this"),
    ],
    ids=["checksum", "no payload", "does not fit"],
)
def test_a_job_that_cannot_be_decoded_is_claimed_once_and_dead_with_the_reason(
    app: Forebay, payload: bytes, words: str
) -> None:
    ran: list[int] = []

    @app.task(name="send")
    def send(number: int) -> None:
        ran.append(number)

    with app.run_worker(threads=1):
        [bad] = app.enqueue_many([NewJob(task="send", payload=payload)])
        record = bad.wait(DEADLINE)
        send.enqueue(7).wait(DEADLINE)

    assert (record.state, record.attempt) == (JobState.DEAD, 1)
    assert (record.reason or "").startswith(words)
    [attempt] = bad.history().attempts
    assert (attempt.outcome, attempt.error.type) == (OutcomeKind.DISCARDED, words.partition(":")[0])
    assert record.payload == payload
    assert ran == [7]


@pytest.mark.shows("R-TEST-25", "R-RETRY-44")
def test_the_exceptions_behind_an_exception_are_told_in_the_dead_letters(rig: Rig) -> None:
    app = Forebay("memory://")

    @app.task(name="t")
    def ask() -> None:
        try:
            try:
                raise ConnectionError("the line is dead")
            except ConnectionError as exc:
                raise LookupError("no answer") from exc
        except LookupError:
            raise ValueError("no price")  # noqa: B904 - it is behind the error although no `from` says so

    def outcome(one: Assignment) -> Outcome:
        return called(Invoker(app.registry), one)

    [job] = rig.insert(payload=encode_call((), {}), policy=RetryPolicy(max_retries=2))
    coordinator = rig.coordinator()
    for _ in range(3):
        coordinator.tick()
        [one] = rig.threads.begin()
        rig.threads.finish(one, outcome(one))
        coordinator.tick()
        rig.clock.advance(seconds=3_600)

    assert (rig.job(job).state, rig.job(job).reason) == (JobState.DEAD, "ValueError: no price")
    for attempt in rig.history(job).attempts:
        assert attempt.error is not None
        for words in ("the line is dead", "no answer", "no price"):
            assert words in attempt.error.traceback


@pytest.mark.shows("R-BUG-20")
def test_a_retry_waits_and_of_two_jobs_alike_the_one_that_was_meant_is_cancelled(rig: Rig) -> None:
    first, second = rig.insert(2, priority=5, payload=encode_call((), {}))
    rig.store.cancel([second], "not this one")
    app = Forebay("memory://")

    @app.task(name="t")
    def fail() -> None:
        raise ValueError

    coordinator = rig.coordinator()
    coordinator.tick()
    [one] = rig.threads.begin()
    rig.threads.finish(one, called(Invoker(app.registry), one))
    coordinator.tick()

    assert one.job.id == first
    retry = rig.job(first)
    assert (retry.state, rig.job(second).state) == (JobState.RETRYING, JobState.CANCELLED)
    assert (retry.run_at or 0) > rig.clock.now_ms()
    assert retry.queue == DEFAULT_QUEUE
