"""Everything that can happen to a call becomes one outcome."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import Any

import pytest

from forebay import Cancel, Discard, Forebay, PermanentError, Retry, RetryableError, Snooze, current_job
from forebay.domain.job_history import MAX_TRACEBACK
from forebay.domain.outcome import Cancelled, Completed, Discarded, Failed, Snoozed
from forebay.payload.codec import decode_result
from forebay.worker.task_invoker import LONGEST_DELAY_MS, Invoker
from tests.worker.invocations import Run, on_a_loop, run_here
from tests.worker.support import an_assignment

# ------------------------------------------------------------------ good ends


@pytest.mark.shows("R-WORK-17")
def test_a_blocking_task_is_called_with_its_arguments_and_its_value_is_the_result() -> None:
    outcome = run_here(lambda a, b: [a, b], 1, "two")

    assert isinstance(outcome, Completed)
    assert decode_result(outcome.result or b"") == [1, "two"]


def test_a_coroutine_is_awaited_and_its_value_is_the_result() -> None:
    app = Forebay("memory://")

    @app.task(name="task")
    async def add(a: int, b: int) -> int:
        await asyncio.sleep(0)
        return a + b

    outcome = on_a_loop(Invoker(app.registry), an_assignment("task", 1, 2))

    assert isinstance(outcome, Completed)
    assert decode_result(outcome.result or b"") == 3
    assert Invoker(app.registry).is_async("task")


@pytest.mark.shows("R-LEASE-34", "R-WORK-26")
def test_a_task_can_ask_for_its_job() -> None:
    seen: list[Any] = []

    def look() -> None:
        seen.append(current_job())

    run_here(look)

    assert (seen[0].attempt, seen[0].fencing_token.worker, seen[0].is_cancelled) == (1, "w1", False)


# ------------------------------------------------------------------ what a task raises


@pytest.mark.shows("R-RETRY-33", "R-WORK-15")
def test_an_exception_is_a_failure_with_its_type_message_and_traceback(raising: Run) -> None:
    outcome = raising(KeyError("no such thing"))

    assert isinstance(outcome, Failed)
    assert outcome.error.type == "KeyError"
    assert "no such thing" in outcome.error.message
    assert "raise error" in outcome.error.traceback
    assert outcome.after_ms is None


@pytest.mark.shows("R-RETRY-21")
@pytest.mark.parametrize(
    ("after", "ms"), [(None, None), (0, 0), (2.5, 2_500), (timedelta(seconds=3), 3_000), (-1, 0)]
)
def test_retry_is_a_failure_with_a_delay_of_the_tasks_own(raising: Run, after: Any, ms: int | None) -> None:
    outcome = raising(Retry("busy", after=after))

    assert isinstance(outcome, Failed)
    assert (outcome.error.message, outcome.after_ms) == ("busy", ms)


def test_a_snooze_is_no_failure(raising: Run) -> None:
    assert raising(Snooze(1.5)) == Snoozed(1_500)


def test_a_snooze_of_ages_is_cut_to_what_a_store_can_hold(raising: Run) -> None:
    assert raising(Snooze(1e30)) == Snoozed(LONGEST_DELAY_MS)


@pytest.mark.parametrize("delay", [float("nan"), float("inf"), "soon", None])
@pytest.mark.parametrize("kind", ["snooze", "retry"])
def test_a_delay_that_makes_no_sense_is_a_failure_that_says_so(raising: Run, kind: str, delay: Any) -> None:
    if kind == "retry" and delay is None:
        delay = object()

    outcome = raising(Snooze(delay) if kind == "snooze" else Retry(after=delay))

    assert isinstance(outcome, Failed)
    assert outcome.error.type == "InvalidJob"


@pytest.mark.shows("R-RETRY-34", "R-RETRY-39", "R-EDGE-88")
@pytest.mark.parametrize("error", [Discard("the order is gone"), PermanentError("the order is gone")])
def test_discard_and_permanent_errors_end_the_job_for_good(raising: Run, error: Exception) -> None:
    outcome = raising(error)

    assert isinstance(outcome, Discarded)
    assert outcome.error.message == "the order is gone"


@pytest.mark.shows("R-RETRY-33", "R-RETRY-35")
def test_errors_that_a_task_lists_end_the_job_for_good_and_others_do_not(raising: Run) -> None:
    assert isinstance(raising(FileNotFoundError("x"), no_retry_for=(OSError,)), Discarded)
    assert isinstance(raising(ValueError("x"), no_retry_for=(OSError,)), Failed)


class Unsteady(RetryableError, OSError):
    """An error of a program's own."""


class Undecided(PermanentError, RetryableError):
    """Says both."""


@pytest.mark.shows("R-RETRY-30")
@pytest.mark.parametrize("error", [RetryableError("x"), Unsteady("x")])
def test_a_retryable_error_is_tried_again_whatever_the_task_lists(raising: Run, error: Exception) -> None:
    listed = (OSError, Exception, RetryableError)

    assert isinstance(raising(error, no_retry_for=listed), Failed)
    assert isinstance(raising(OSError("x"), no_retry_for=listed), Discarded)


@pytest.mark.shows("R-RETRY-30")
@pytest.mark.parametrize("error", [PermanentError("x"), Undecided("x")])
def test_a_permanent_error_is_never_tried_again(raising: Run, error: Exception) -> None:
    assert isinstance(raising(error), Discarded)


def test_one_error_or_a_list_of_them_may_be_named_too(raising: Run) -> None:
    assert isinstance(raising(OSError("x"), no_retry_for=OSError), Discarded)
    assert isinstance(raising(OSError("x"), no_retry_for=[ValueError, OSError]), Discarded)


def test_a_task_may_cancel_its_own_job(raising: Run) -> None:
    assert raising(Cancel("changed my mind")) == Cancelled("changed my mind")
    assert raising(Cancel()) == Cancelled("cancelled by its own task")
    assert raising(Cancel("no file \ud8ff")) == Cancelled("no file \\ud8ff")  # as a name of a file may be


@pytest.mark.shows("R-WORK-15")
@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()]
)
def test_what_would_end_a_program_is_only_a_failure_of_the_job(raising: Run, error: BaseException) -> None:
    outcome = raising(error)

    assert isinstance(outcome, Failed)
    assert outcome.error.type == type(error).__name__


class Mute(Exception):
    """Cannot even be shown."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def __str__(self) -> str:
        raise self._error


@pytest.mark.shows("R-EDGE-17")
@pytest.mark.parametrize("inner", [RuntimeError("no words"), SystemExit(1), KeyboardInterrupt()])
def test_an_exception_that_cannot_be_shown_is_still_recorded(raising: Run, inner: BaseException) -> None:
    outcome = raising(Mute(inner))

    assert isinstance(outcome, Failed)
    assert outcome.error.type == "Mute"


@pytest.mark.shows("R-EDGE-17")
def test_an_exception_without_a_message_is_recorded_by_its_type(raising: Run) -> None:
    outcome = raising(ValueError())

    assert isinstance(outcome, Failed)
    assert (outcome.error.type, outcome.error.message) == ("ValueError", "")


def test_text_that_no_store_can_hold_is_written_out(raising: Run) -> None:
    outcome = raising(ValueError("half of a pair: \ud800"))

    assert isinstance(outcome, Failed)
    assert outcome.error.message == "half of a pair: \\ud800"
    outcome.error.traceback.encode()


@pytest.mark.shows("R-RETRY-44")
def test_the_traceback_tells_what_was_behind_the_exception() -> None:
    def fail() -> None:
        try:
            raise ConnectionError("the line is dead")
        except ConnectionError as exc:
            raise ValueError("no price") from exc

    outcome = run_here(fail)

    assert isinstance(outcome, Failed)
    assert "the line is dead" in outcome.error.traceback
    assert "direct cause" in outcome.error.traceback


def test_the_end_of_a_long_traceback_is_kept() -> None:
    def dig(depth: int) -> None:
        raise ValueError("x" * 40_000 + "bottom")

    outcome = run_here(dig, 1)

    assert isinstance(outcome, Failed)
    assert len(outcome.error.traceback) <= MAX_TRACEBACK
    assert outcome.error.traceback.rstrip().endswith("bottom")


def test_endless_recursion_is_a_failure() -> None:
    def dig() -> None:
        dig()

    outcome = run_here(dig)

    assert isinstance(outcome, Failed)
    assert outcome.error.type == "RecursionError"


@pytest.mark.shows("R-EDGE-16")
@pytest.mark.parametrize("value", [object(), sys.stdout, {"a": {1: lambda: None}}, "x" * 2_000_000])
def test_a_result_that_cannot_be_stored_is_a_clear_failure(value: object) -> None:
    outcome = run_here(lambda: value)

    assert isinstance(outcome, Failed)
    assert outcome.error.type == "PayloadError"
    assert "result" in outcome.error.message
