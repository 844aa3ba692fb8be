"""Progress and log lines of a running attempt: checked, and cut to the stored length."""

from __future__ import annotations

from contextlib import suppress
from math import isfinite
from typing import Final

from forebay.clock import SystemClock
from forebay.domain.job import Job
from forebay.domain.progress import MAX_LEVEL, MAX_LINE, LogLine, Progress
from forebay.domain.storable_text import clean_text
from forebay.errors import InvalidJob

_CLOCK: Final = SystemClock()


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
