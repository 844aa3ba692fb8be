"""Jobs whose call never happens, and calls that are made to stop."""

from __future__ import annotations

from typing import Any

import pytest

from forebay import Forebay
from forebay.domain.outcome import Cancelled, Discarded, Failed, Interrupted, Outcome, Parked
from forebay.errors import CorruptPayload, NewerPayload, UnknownTask
from forebay.payload.codec import encode_call
from forebay.worker.task_invoker import Invoker, JobInterrupted, JobTimeout
from tests.worker.invocations import Run, run_here
from tests.worker.support import an_assignment, called

# ------------------------------------------------------------------ what never reaches the task


def never(*_: Any, **__: Any) -> None:
    raise AssertionError("the task was called")


@pytest.mark.shows("R-LEASE-17", "R-EDGE-71", "R-EDGE-18", "R-EDGE-60")
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"not a payload",
        encode_call((1,), {}).replace(b"[1]", b"[2]"),
        encode_call((1,), {})[:-3],
        b"\xff" * 40,
    ],
)
def test_a_corrupt_payload_goes_to_the_dead_letters_and_never_to_the_task(payload: bytes) -> None:
    outcome = run_here(never, payload=payload)

    assert isinstance(outcome, Discarded)
    assert outcome.error.type == "CorruptPayload"


@pytest.mark.shows("R-RETRY-38", "R-EDGE-18", "R-EDGE-82")
def test_a_job_of_an_unknown_task_is_held_and_never_dead() -> None:
    outcome = called(Invoker(Forebay("memory://").registry), an_assignment("not registered"))

    assert outcome == Parked("task:not registered", "no task is called 'not registered' in this program")


def test_a_payload_of_a_later_version_is_held_and_never_dead() -> None:
    outcome = run_here(never, payload=b"fb2 00000000\n{}")

    assert outcome == Parked("payload:2", "the payload has format 2, this program reads 1; upgrade it")


@pytest.mark.shows("R-RETRY-33")
@pytest.mark.parametrize("args", [(), (1, 2)])
def test_a_call_that_does_not_fit_the_signature_is_not_tried_again(args: tuple[int, ...]) -> None:
    def one(a: int) -> None:
        never()

    outcome = run_here(one, *args)

    assert isinstance(outcome, Discarded)
    assert "cannot be called like this" in outcome.error.message
    assert "the function may have changed since the job was enqueued" in outcome.error.message


@pytest.mark.parametrize("error", [UnknownTask("x"), NewerPayload("x"), CorruptPayload("x")])
def test_a_task_that_meets_such_an_error_elsewhere_has_simply_failed(raising: Run, error: Exception) -> None:
    outcome = raising(error)

    assert isinstance(outcome, Failed)


# ------------------------------------------------------------------ interrupts


@pytest.mark.shows("R-EDGE-59")
def test_a_timeout_is_a_failure() -> None:
    app = Forebay("memory://")
    one = an_assignment("fail")
    one.stopped_by = JobTimeout("ran longer than 1 s")

    @app.task(name="fail")
    def fail() -> None:
        raise JobTimeout

    outcome = called(Invoker(app.registry), one)

    assert isinstance(outcome, Failed)
    assert (outcome.error.type, outcome.error.message) == ("Timeout", "ran longer than 1 s")


@pytest.mark.shows("R-RETRY-37")
@pytest.mark.parametrize(("is_tried_again", "kind"), [(True, Failed), (False, Discarded)])
@pytest.mark.parametrize("is_heeded", [True, False])
def test_a_task_says_whether_a_timeout_is_tried_again(
    is_tried_again: bool, kind: type, is_heeded: bool
) -> None:
    app = Forebay("memory://")
    one = an_assignment("slow")
    one.stopped_by = JobTimeout("ran longer than 1 s")

    @app.task(name="slow", retry_on_timeout=is_tried_again)
    def slow() -> None:
        if is_heeded:
            raise JobTimeout

    outcome = called(Invoker(app.registry), one)

    assert isinstance(outcome, (Failed, Discarded))
    assert (type(outcome), outcome.error.type) == (kind, "Timeout")
    assert type(Invoker(app.registry).stopped_outcome(one)) is kind


def test_a_task_that_does_not_retry_timeouts_retries_other_errors_and_is_handed_back_as_usual(
    raising: Run,
) -> None:
    assert isinstance(raising(TimeoutError("of its own"), retry_on_timeout=False), Failed)
    stopped = an_assignment("gone")
    stopped.stopped_by = JobInterrupted()
    assert Invoker(Forebay("memory://").registry).stopped_outcome(stopped) == Interrupted()


def test_an_attempt_that_ended_without_a_reason_has_failed() -> None:
    outcome = Invoker(Forebay("memory://").registry).stopped_outcome(an_assignment("gone"))

    assert isinstance(outcome, Failed)
    assert outcome.error.message == "the attempt ended for an unknown reason"


@pytest.mark.parametrize(("reason", "outcome"), [(None, Interrupted()), ("no need", Cancelled("no need"))])
def test_an_interrupt_is_no_failure(reason: str | None, outcome: Outcome) -> None:
    app = Forebay("memory://")
    one = an_assignment("fail")
    one.stopped_by = JobInterrupted()
    if reason is not None:
        one.context.mark_cancelled(reason)

    @app.task(name="fail")
    def fail() -> None:
        raise JobInterrupted

    assert called(Invoker(app.registry), one) == outcome


def test_interrupts_pass_through_except_exception() -> None:
    assert not issubclass(JobTimeout, Exception)
    assert not issubclass(JobInterrupted, Exception)
