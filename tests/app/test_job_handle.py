"""A job in the hand of the program that enqueued it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from threading import Thread
from typing import Any
from uuid import UUID

import pytest

from forebay import (
    DuplicateJob,
    Forebay,
    InvalidJob,
    JobCancelled,
    JobFailed,
    JobHandle,
    JobNotFound,
    WaitTimeout,
)
from forebay.app import job_handle as handle_module
from forebay.app import poll_backoff as backoff_module
from forebay.domain.job import Job
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.outcome import AttemptError, Discarded
from forebay.domain.settlement import decide
from forebay.payload.codec import encode_result
from forebay.stores.contract.claims_and_results import InsertResult
from forebay.testing.manual_clock import ManualClock
from tests.stores.support import WORKER, claim, complete, fail


def send(to: str = "ada") -> Any: ...


@pytest.fixture
def handle(app: Forebay) -> JobHandle[Any]:
    return app.task(name="send")(send).enqueue()


def claimed(app: Forebay) -> Job:
    store = app.engine.store()
    try:
        [job] = claim(store)
    finally:
        store.close()
    return job


def completed(app: Forebay, value: Any) -> None:
    """The next job is run and returns this."""
    job = claimed(app)
    app.client.write(lambda store: store.settle_and_claim(WORKER, [complete(job, encode_result(value))]))


def discarded(app: Forebay, message: str) -> None:
    job = claimed(app)
    outcome = Discarded(AttemptError(type="Boom", message=message))
    app.client.write(lambda store: store.settle_and_claim(WORKER, [decide(job, outcome, 0.0)]))


class Pauses:
    """Stands in for the time module: pauses end at once, and something happens in each."""

    def __init__(self, *happenings: Any) -> None:
        self._happenings = iter(happenings)
        self._now = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._now += seconds
        next(self._happenings, lambda: None)()


# ------------------------------------------------------------------ waiting


def test_waiting_for_a_job_that_is_final_gives_its_record(app: Forebay, handle: JobHandle[Any]) -> None:
    completed(app, 5)

    job = handle.wait()

    assert (job.id, job.state) == (handle.id, JobState.COMPLETED)


def test_waiting_ends_when_the_job_becomes_final(
    app: Forebay, handle: JobHandle[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Pauses(lambda: None, lambda: None, lambda: completed(app, 5))
    monkeypatch.setattr(handle_module, "time", time)

    assert handle.wait().state is JobState.COMPLETED
    assert len(time.pauses) == 3


def test_looks_become_rarer_but_never_too_rare(
    app: Forebay, handle: JobHandle[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Pauses()
    monkeypatch.setattr(handle_module, "time", time)
    monkeypatch.setattr(backoff_module, "time", time)

    with pytest.raises(TimeoutError):
        handle.wait(timeout=2)

    assert time.pauses[:9] == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.25]
    assert max(time.pauses) == 0.25
    assert sum(time.pauses) == pytest.approx(2)


def test_time_that_is_up_is_an_error_that_names_job_and_state(handle: JobHandle[Any]) -> None:
    with pytest.raises(WaitTimeout, match=rf"job {handle.id} is pending after 0\.001 s") as caught:
        handle.wait(timeout=0.001)

    assert (caught.value.job_id, caught.value.state) == (handle.id, "pending")
    assert isinstance(caught.value, TimeoutError)


@pytest.mark.parametrize("timeout", [timedelta(milliseconds=1), 0.001, 0, -1])
def test_a_timeout_is_a_length_of_time(handle: JobHandle[Any], timeout: Any) -> None:
    with pytest.raises(WaitTimeout):
        handle.result(timeout)


@pytest.mark.parametrize("timeout", ["soon", True, float("nan")])
def test_a_timeout_that_is_none_is_refused(handle: JobHandle[Any], timeout: Any) -> None:
    with pytest.raises(InvalidJob, match="timeout must be a"):
        handle.wait(timeout)


def test_a_timeout_of_nothing_means_one_look(
    app: Forebay, handle: JobHandle[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Pauses()
    monkeypatch.setattr(handle_module, "time", time)

    with pytest.raises(TimeoutError):
        handle.result(timeout=0)
    completed(app, 5)

    assert handle.result(timeout=0) == 5
    assert time.pauses == []


def test_without_a_timeout_a_thread_waits_as_long_as_it_takes(
    app: Forebay, handle: JobHandle[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Pauses(*[lambda: None] * 200, lambda: completed(app, 5))
    monkeypatch.setattr(handle_module, "time", time)

    assert handle.result() == 5
    assert sum(time.pauses) > 40


def test_several_threads_may_wait_for_one_job(live_app: Forebay) -> None:
    handle = live_app.task(name="send")(send).enqueue()
    found: list[JobState] = []
    threads = [Thread(target=lambda: found.append(handle.wait(120).state)) for _ in range(4)]

    for thread in threads:
        thread.start()
    completed(live_app, 5)
    for thread in threads:
        thread.join(120)

    assert found == [JobState.COMPLETED] * 4


# ------------------------------------------------------------------ results


VALUES: list[Any] = [
    None,
    True,
    0,
    -7,
    3.5,
    "",
    "ñ \x00 ~",
    [],
    [1, [2, [3]]],
    {"a": {"b": None}, "~": 1},
    (1, 2),
    {1, 2},
    frozenset({"x"}),
    b"\x00\xff",
    Decimal("1.10"),
    date(2030, 1, 2),
    datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    UUID(int=5),
]


@pytest.mark.shows("R-DONE-05", "R-JOB-25")
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_result_comes_back_as_it_was_returned(app: Forebay, handle: JobHandle[Any], value: Any) -> None:
    completed(app, value)

    result = handle.result()

    assert (result, type(result)) == (value, type(value))


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Letter:
    to: str
    colour: Colour


def write_one() -> Letter:
    return Letter("ada", Colour.RED)


async def write_many(count: int) -> dict[str, list[Letter]]:
    return {"letters": [Letter("ada", Colour.RED)] * count}


@pytest.mark.shows("R-DONE-05")
def test_a_result_has_the_class_that_its_task_promises(live_app: Forebay) -> None:
    one = live_app.task(name="one")(write_one)
    many = live_app.task(name="many")(write_many)

    with live_app.run_worker(threads=1):
        letter = one.enqueue().result(timeout=120)
        [handle] = live_app.enqueue_many([many.job(2)])
        letters = handle.result(timeout=120)

    assert letter == Letter("ada", Colour.RED)
    assert letters == {"letters": [letter, letter]}
    assert live_app.job(handle.id).result(timeout=0) == letters


def test_a_program_that_does_not_know_the_task_gets_what_was_stored(live_app: Forebay) -> None:
    task = live_app.task(name="one")(write_one)
    with live_app.run_worker(threads=1):
        handle = task.enqueue()
        handle.wait(timeout=120)
    live_app.registry._tasks.clear()

    assert handle.result(timeout=0) == {"to": "ada", "colour": "red"}  # type: ignore[comparison-overlap]


def test_a_job_that_failed_for_good_has_no_result(app: Forebay, handle: JobHandle[Any]) -> None:
    discarded(app, "it broke")

    with pytest.raises(JobFailed, match=rf"job {handle.id} failed for good: .*it broke"):
        handle.result()


def test_a_job_that_will_be_tried_again_is_waited_for(app: Forebay, handle: JobHandle[Any]) -> None:
    job = claimed(app)
    app.client.write(lambda store: store.settle_and_claim(WORKER, [fail(job)]))

    with pytest.raises(TimeoutError, match="is retrying"):
        handle.result(timeout=0)


def test_a_job_that_was_cancelled_has_no_result(handle: JobHandle[Any]) -> None:
    handle.cancel("not needed")

    with pytest.raises(JobCancelled, match=f"job {handle.id} was cancelled: not needed"):
        handle.result()


# ------------------------------------------------------------------ cancelling


@pytest.mark.shows("R-CANCEL-01", "R-CANCEL-07")
def test_a_job_that_waits_is_cancelled_at_once(handle: JobHandle[Any]) -> None:
    assert handle.cancel("not needed") is True

    job = handle.refresh()
    assert (job.state, job.reason) == (JobState.CANCELLED, "not needed")


@pytest.mark.shows("R-CANCEL-01")
def test_a_job_that_is_final_or_gone_is_not_cancelled(app: Forebay, handle: JobHandle[Any]) -> None:
    completed(app, 5)

    assert handle.cancel() is False
    assert app.job("gone").cancel() is False
    assert handle.result() == 5


def test_a_job_that_runs_is_asked_to_stop(app: Forebay, handle: JobHandle[Any]) -> None:
    claimed(app)

    assert handle.cancel("stop it") is True

    job = handle.refresh()
    assert (job.state, job.cancel_reason) == (JobState.RUNNING, "stop it")


# ------------------------------------------------------------------ looking


def test_refresh_gives_the_record_as_it_is_now(app: Forebay, handle: JobHandle[Any]) -> None:
    before = handle.refresh()
    completed(app, 5)

    assert (before.state, handle.refresh().state) == (JobState.PENDING, JobState.COMPLETED)


def test_history_tells_what_happened_to_the_job(
    app: Forebay, handle: JobHandle[Any], clock: ManualClock
) -> None:
    job = claimed(app)
    app.client.write(lambda store: store.settle_and_claim(WORKER, [fail(job, "it broke")]))
    handle.cancel("enough")

    history = handle.history()

    assert [(attempt.attempt, attempt.worker) for attempt in history.attempts] == [(1, WORKER)]
    assert EventKind.CANCEL in [event.kind for event in history.events]


@pytest.mark.shows("R-ENQ-40")
def test_a_job_that_is_not_there_is_an_error(app: Forebay) -> None:
    handle = app.job("gone")

    for call in (handle.refresh, handle.history, handle.wait, handle.result):
        with pytest.raises(JobNotFound, match="there is no job gone"):
            call()


def test_a_job_that_is_deleted_while_a_caller_waits_is_an_error(
    app: Forebay, handle: JobHandle[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = lambda: app.client.write(lambda store: store.delete([handle.id]))  # noqa: E731 - one of the happenings
    monkeypatch.setattr(handle_module, "time", Pauses(delete))

    with pytest.raises(JobNotFound):
        handle.wait()


# ------------------------------------------------------------------ identity


@pytest.mark.shows("R-JOB-30")
def test_handles_of_one_job_are_equal_and_others_are_not(app: Forebay, handle: JobHandle[Any]) -> None:
    same, other = app.job(handle.id), app.task(name="other")(send).enqueue()

    assert same == handle
    assert other != handle
    assert len({handle, same, other}) == 2
    assert handle != handle.id
    assert handle.id in repr(handle)


def test_jobs_that_were_refused_are_not_one_job(app: Forebay) -> None:
    error = DuplicateJob("taken", holder="x")
    first, second = (
        JobHandle[Any](app.client, InsertResult(id=None, is_new=False, error=error)) for _ in "12"
    )

    assert first == first  # noqa: PLR0124 - that is the point
    assert first != second
    with pytest.raises(DuplicateJob):
        first.refresh()


def test_a_handle_without_a_job_and_without_an_error_says_so(app: Forebay) -> None:
    handle = JobHandle[Any](app.client, InsertResult(id=None, is_new=False))

    with pytest.raises(JobNotFound, match="this job was not stored"):
        _ = handle.id


def test_a_handle_can_be_had_by_the_jobs_id(app: Forebay, handle: JobHandle[Any]) -> None:
    found = app.job(str(handle.id))

    assert (found.refresh().id, found.is_new, found.error) == (handle.id, False, None)


# ------------------------------------------------------------------ cancelling, and waiting for it


def test_a_job_that_waits_is_cancelled_when_the_call_returns(handle: JobHandle[Any]) -> None:
    assert handle.cancel("not needed", wait=True, timeout=0) is JobState.CANCELLED


def test_cancelling_a_job_that_is_final_answers_its_state(app: Forebay, handle: JobHandle[Any]) -> None:
    completed(app, 7)

    assert handle.cancel(wait=True) is JobState.COMPLETED


def test_waiting_for_the_end_of_a_job_that_is_gone_says_so(app: Forebay) -> None:
    with pytest.raises(JobNotFound, match="there is no job gone"):
        app.job("gone").cancel(wait=True)


def test_a_job_that_does_not_stop_in_time_is_named_with_what_goes_on(
    app: Forebay, handle: JobHandle[Any]
) -> None:
    claimed(app)

    with pytest.raises(
        WaitTimeout, match=r"is running after 0\.05 s; it was asked to stop and has not"
    ) as error:
        handle.cancel("not needed", wait=True, timeout=0.05)
    assert (error.value.job_id, error.value.state) == (handle.id, "running")
    assert handle.refresh().cancel_reason == "not needed"
