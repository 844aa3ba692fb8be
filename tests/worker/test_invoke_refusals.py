"""Jobs whose call never happens, and calls that are made to stop."""

from __future__ import annotations

from typing import Any

import pytest

from forebay import Forebay
from forebay.app.codec import encode_call
from forebay.domain.outcome import Cancelled, Discarded, Failed, Interrupted, Outcome, Snoozed
from forebay.errors import CorruptPayload, NewerPayload, UnknownTask
from forebay.worker.invoke import HOLD_MS, Invoke, JobInterrupted, JobTimeout
from tests.worker.invoking import Run, run_here
from tests.worker.support import an_assignment, called

# ------------------------------------------------------------------ what never reaches the task


def never(*_: Any, **__: Any) -> None:
    raise AssertionError("the task was called")


@pytest.mark.shows("R-LEASE-17", "R-EDGE-71", "R-EDGE-18")
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
    assert called(Invoke(Forebay("memory://").registry), an_assignment("nobody knows")) == Snoozed(HOLD_MS)


def test_a_payload_of_a_later_version_is_held_and_never_dead() -> None:
    assert run_here(never, payload=b"fb2 00000000\n{}") == Snoozed(HOLD_MS)


@pytest.mark.shows("R-RETRY-33")
@pytest.mark.parametrize("args", [(), (1, 2)])
def test_a_call_that_does_not_fit_the_signature_is_not_tried_again(args: tuple[int, ...]) -> None:
    def one(a: int) -> None:
        never()

    outcome = run_here(one, *args)

    assert isinstance(outcome, Discarded)
    assert "cannot be called like this" in outcome.error.message


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

    outcome = called(Invoke(app.registry), one)

    assert isinstance(outcome, Failed)
    assert (outcome.error.type, outcome.error.message) == ("Timeout", "ran longer than 1 s")


@pytest.mark.parametrize(("reason", "outcome"), [(None, Interrupted()), ("no need", Cancelled("no need"))])
def test_an_interrupt_is_no_failure(reason: str | None, outcome: Outcome) -> None:
    app = Forebay("memory://")
    one = an_assignment("fail")
    one.stopped_by = JobInterrupted()
    if reason is not None:
        one.context.tell_cancelled(reason)

    @app.task(name="fail")
    def fail() -> None:
        raise JobInterrupted

    assert called(Invoke(app.registry), one) == outcome


def test_interrupts_pass_through_except_exception() -> None:
    assert not issubclass(JobTimeout, Exception)
    assert not issubclass(JobInterrupted, Exception)
