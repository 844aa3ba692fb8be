"""Progress and log lines of a running attempt, and the step result that an attempt waits for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import isfinite
from threading import Lock
from typing import Final

from forebay.clock import SystemClock
from forebay.domain.job import Job
from forebay.domain.progress import MAX_LEVEL, MAX_LINE, LogLine, Progress
from forebay.domain.storable_text import clean_text
from forebay.errors import InvalidJob, LeaseLost

_CLOCK: Final = SystemClock()


class PendingStep:
    """A step result on its way to the store. The waiting thread may be interrupted between any two bytecodes.

    So this is a bare lock and no Event. An Event has a lock of its own, and an interrupt at the wrong moment
    would leave it locked for the answering thread. The answering thread releases a bare lock, at most one
    thread waits for it, and a waiter that never returns blocks no other thread.
    """

    __slots__ = ("_answer_token", "_lock", "_on_answer", "refusal")

    def __init__(self, on_answer: Callable[[], object] | None = None) -> None:
        self.refusal: str | None = None
        self._on_answer = on_answer
        self._answer_token = [None]
        self._lock = Lock()
        self._lock.acquire()

    def answer(self, refusal: str | None = None) -> None:
        """Record that the step is stored, or refused for this reason. Of two answers the first counts."""
        try:
            self._answer_token.pop()
        except IndexError:
            return
        self.refusal = refusal
        self._lock.release()
        if self._on_answer is not None:
            with suppress(RuntimeError):  # the event loop that waits is gone
                self._on_answer()

    def wait(self, seconds: float) -> bool:
        """Return whether the answer has come within so many seconds; true once."""
        return self._lock.acquire(timeout=seconds)

    def check(self) -> None:
        """Raise LeaseLost if the step was refused."""
        if self.refusal is not None:
            raise LeaseLost(
                f"the step was not stored: {self.refusal}; "
                "the result of this attempt will be refused, so stop"
            )


def make_progress(job: Job, done: float, total: float | None, message: str) -> Progress:
    """Return the progress of an attempt, checked and cut to the stored length."""
    return Progress(
        done=_check_number("done", done),
        total=None if total is None else _check_number("total", total),
        message=_clean_text(message),
        attempt=job.attempt,
    )


def make_log_line(job: Job, text: str, level: str) -> LogLine:
    """Return a log line of an attempt with the current time, cut to the stored length."""
    return LogLine(
        at=_CLOCK.now_ms(), level=_clean_text(level)[:MAX_LEVEL], text=_clean_text(text), attempt=job.attempt
    )


def _check_number(field: str, value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        with suppress(OverflowError):  # an int may be too large for a float
            if isfinite(value):
                return float(value)
    raise InvalidJob(f"{field} must be a finite number, not {value!r:.60}", field=field)


def _clean_text(text: object) -> str:
    """Return a text as a store can hold it, cut to its limit."""
    return clean_text(str(text)[:MAX_LINE])
