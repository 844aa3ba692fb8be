"""The job that is running, for the code that it runs."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Final, NamedTuple

from forebay.domain.job import Job, JobId, WorkerId

logger: Final = logging.getLogger("forebay.task")


class Token(NamedTuple):
    """What fences effects elsewhere: of one job, the greater attempt is the newer one."""

    attempt: int
    worker: WorkerId


class JobContext:
    """What a task may know about its own attempt, and be told while it runs."""

    __slots__ = ("_cancel_reason", "_is_lost", "job")

    def __init__(self, job: Job) -> None:
        self.job = job
        self._cancel_reason: str | None = None
        self._is_lost = False

    @property
    def id(self) -> JobId:
        return self.job.id

    @property
    def attempt(self) -> int:
        return self.job.attempt

    @property
    def token(self) -> Token:
        return Token(self.job.attempt, self.job.worker or WorkerId(""))

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody wants this job to stop."""
        return self._cancel_reason is not None

    @property
    def is_lost(self) -> bool:
        """Whether the lease is gone: another attempt may be running, and this one's result will not count."""
        return self._is_lost

    @property
    def cancel_reason(self) -> str | None:
        return self._cancel_reason

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry the job's id, task, queue, attempt and correlation id."""
        job = self.job
        fields = {
            "job_id": job.id,
            "task": job.task,
            "queue": job.queue,
            "attempt": job.attempt,
            "correlation_id": job.correlation_id,
        }
        return logging.LoggerAdapter(logger, fields)

    def tell_cancelled(self, reason: str) -> None:
        self._cancel_reason = reason

    def tell_lost(self) -> None:
        self._is_lost = True


_current: ContextVar[JobContext] = ContextVar("forebay_job")


def current_job() -> JobContext:
    """The context of the job that this code runs for; raises LookupError outside of one."""
    try:
        return _current.get()
    except LookupError:
        raise LookupError("no job is running here; current_job() works inside a task") from None


def enter(context: JobContext) -> None:
    """Make this the current job of this thread or coroutine, until the next one."""
    _current.set(context)
