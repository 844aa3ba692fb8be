"""The job that is running, for the code that it runs."""

from __future__ import annotations

from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Final, NamedTuple

from forebay.domain.job import Job, JobId, WorkerId

if TYPE_CHECKING:
    from logging import Logger, LoggerAdapter


class Token(NamedTuple):
    """What fences effects elsewhere: of one job, the greater attempt is the newer one."""

    attempt: int
    worker: WorkerId


class LeaseNews(NamedTuple):
    """What renewals have brought so far: when the last one succeeded (milliseconds since 1970, by this
    machine's clock), how many in a row have failed since, and why the lease is gone if it is."""

    renewed_at: int | None = None
    failures: int = 0
    lost_because: str | None = None


NO_NEWS: Final = LeaseNews()


class JobContext:
    """What a task may know about its own attempt, and be told while it runs."""

    __slots__ = ("_cancel_reason", "_is_overdue", "_news", "job")

    def __init__(self, job: Job) -> None:
        self.job = job
        self._cancel_reason: str | None = None
        self._is_overdue = False
        self._news = NO_NEWS

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
        return self._news.lost_because is not None

    @property
    def is_in_doubt(self) -> bool:
        """Whether the store has not answered the last renewal. Nothing is lost yet: go on, and be careful
        with effects that must not happen twice."""
        return self._news.failures > 0

    @property
    def is_overdue(self) -> bool:
        """Whether this attempt has run longer than its task's `soft_timeout`: time to come to an end."""
        return self._is_overdue

    @property
    def claimed_at(self) -> int | None:
        """When this attempt was claimed, in milliseconds since 1970, by the store's clock."""
        return self.job.started_at

    @property
    def renewals(self) -> LeaseNews:
        """How the renewals of this attempt's lease go."""
        return self._news

    @property
    def cancel_reason(self) -> str | None:
        return self._cancel_reason

    @property
    def logger(self) -> LoggerAdapter[Logger]:
        """A logger whose lines carry the job's id, task, queue, attempt and correlation id."""
        from logging import LoggerAdapter, getLogger  # noqa: PLC0415 - programs that only enqueue need none

        job = self.job
        fields = {
            "job_id": job.id,
            "task": job.task,
            "queue": job.queue,
            "attempt": job.attempt,
            "correlation_id": job.correlation_id,
        }
        return LoggerAdapter(getLogger("forebay.task"), fields)

    def tell_cancelled(self, reason: str) -> None:
        self._cancel_reason = reason

    def tell_overdue(self) -> None:
        self._is_overdue = True

    def tell_renewed(self, at: int) -> None:
        self._news = LeaseNews(renewed_at=at)

    def tell_in_doubt(self) -> None:
        self._news = self._news._replace(failures=self._news.failures + 1)

    def tell_lost(self, reason: str = "its renewal was refused") -> None:
        self._news = self._news._replace(failures=0, lost_because=reason)


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


def is_touched() -> bool:
    """Whether code of a job has set a context variable here, besides the current job. A variable that was set
    cannot be unset, so whoever runs the next job does that in a new, empty context."""
    return len(copy_context()) > 1
