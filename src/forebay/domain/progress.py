"""Progress of a running attempt: a fraction, log lines, and step results."""

from __future__ import annotations

from sys import float_info
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.domain.job import QueueName
from forebay.domain.job_validation import MAX_ENCRYPTION_OVERHEAD
from forebay.domain.lease import Lease
from forebay.domain.storable_text import clean_text
from forebay.errors import InvalidJob, PayloadError

MAX_LINES: Final = 200
MAX_LINE: Final = 2_000
MAX_STEPS: Final = 1_000
MAX_STEP_NAME: Final = 200
# Results of all steps of a job together: each later attempt, and each request for them, reads all of them.
MAX_STEP_BYTES: Final = 4 * 1_048_576
# The bound of stores, which count what encryption adds to each result. It refuses the whole call, with the
# settlements of other jobs in it, so a task that keeps to the bound above must never meet it.
MAX_STORED_STEP_BYTES: Final = MAX_STEP_BYTES + MAX_STEPS * MAX_ENCRYPTION_OVERHEAD
MAX_LEVEL: Final = 20
_LINES_PER_ATTEMPT: Final = 2**32  # more than an attempt can log


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of an attempt; `total` None where it is unknown. `at` is the store's clock."""

    done: float = 0
    total: float | None = None
    message: str = ""
    attempt: int = 0
    at: int = 0


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """Log line of a task; `at` is by the clock of the machine that ran it.

    `number` counts the lines of an attempt from 1. By it, a line that is offered again, because the answer to
    the first offer was lost, is recognised and stored once. A line without a number is always a new one.
    """

    at: int
    level: str
    text: str
    attempt: int = 0
    number: int = 0

    @property
    def position(self) -> int | None:
        """Return its position among all lines of its job, if it has a number: by attempt, then by number."""
        return self.attempt * _LINES_PER_ATTEMPT + self.number if self.number else None


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a completed step of a job: a later attempt takes it and does not repeat the step."""

    name: str
    result: bytes
    attempt: int = 0
    at: int = 0


class ProgressUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Update from the holder of a lease, for the store to keep with the job. Encrypted step results are
    bound to `queue`; stores do not read it."""

    lease: Lease
    progress: Progress | None = None
    lines: tuple[LogLine, ...] = ()
    steps: tuple[StepResult, ...] = ()
    queue: QueueName | None = None


class JobProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Stored progress of a job: the latest progress, the last lines, the step results in order."""

    progress: Progress | None = None
    lines: tuple[LogLine, ...] = ()
    steps: tuple[StepResult, ...] = ()

    def merge(self, later: JobProgress) -> JobProgress:
        """Return this progress with the later one, within the limits; the first result of a step stays.

        Raises PayloadError if the results of all steps have too many bytes.
        """
        steps = {step.name: step for step in self.steps}
        total = sum(len(step.result) for step in self.steps)
        for step in later.steps:
            if len(steps) < MAX_STEPS and step.name not in steps:
                total += len(step.result)
                check_step_bytes(step.name, total, MAX_STORED_STEP_BYTES)
                steps[step.name] = step
        known = {line.position for line in self.lines} - {None}
        lines = [line for line in later.lines if line.position not in known]
        return JobProgress(
            progress=later.progress or self.progress,
            lines=(*self.lines, *lines)[-MAX_LINES:],
            steps=tuple(steps.values()),
        )


def number_at(position: int, attempt: int) -> int:
    """Return the number of the line of this attempt at this position; 0 if it was stored without one."""
    return max(0, position - attempt * _LINES_PER_ATTEMPT)


def check_step_name(name: object) -> None:
    """Raise InvalidJob unless this can name a step."""
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_STEP_NAME or clean_text(name) != name:
        raise InvalidJob(
            f"the name of a step must be a text of 1 to {MAX_STEP_NAME} characters, not {name!r:.60}",
            field="name",
        )


def check_step_bytes(name: str, total: int, limit: int = MAX_STEP_BYTES) -> None:
    """Raise PayloadError if a job's step results have too many bytes, with this step as the latest."""
    if total > limit:
        raise step_bytes_error(name, total, limit)


def step_bytes_error(name: str, total: int, limit: int) -> PayloadError:
    return PayloadError(
        f"step {name!r:.60} brings the results of all steps of its job to {total:,} bytes, the limit is "
        f"{limit:,}; return less from steps, or keep the data elsewhere and return a reference",
        field="result",
    )


def normalize_update(update: ProgressUpdate, now: int) -> JobProgress:
    """Return an update as a store keeps it: with the attempt and the store's time, every text cut and clean.

    The names of steps stay as they are: two that were cut to the same name would be one step.
    """
    attempt = update.lease.attempt
    progress = update.progress
    if progress is not None:
        progress = Progress(
            done=_finite(progress.done) or 0.0,
            total=None if progress.total is None else _finite(progress.total),
            message=clean_text(progress.message)[:MAX_LINE],
            attempt=attempt,
            at=now,
        )
    return JobProgress(
        progress=progress,
        lines=tuple(
            replace(
                line,
                level=clean_text(line.level)[:MAX_LEVEL],
                text=clean_text(line.text)[:MAX_LINE],
                attempt=attempt,
            )
            for line in update.lines[-MAX_LINES:]
        ),
        steps=tuple(replace(step, attempt=attempt, at=now) for step in update.steps),
    )


def _finite(number: float) -> float | None:
    """Return the number if every store can hold it; a task may report infinity or NaN."""
    return float(number) if abs(number) <= float_info.max else None
