"""Records that `TaskQueue.get_status` and `get_archive` return, with the names of a task table."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from forebay.domain.job import Job
from forebay.domain.job_states import JobState, Status, status_of
from forebay.domain.job_views import ArchiveEntry
from forebay.payload.codec import decode_result

TASK_NAME: Final = "task_name"
EXCERPT: Final = 200
_BEFORE_RESULT: Final = re.compile(r'\Afb\d+ [0-9a-f]{8}[^\n]*\n\{"v":\d+,"result":')


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """A job at the time of the call. Times are seconds since 1970; None is "not yet" or "not now"."""

    job_id: str
    task_name: str
    priority: int
    status: Status
    payload: bytes
    result: Any
    error_message: str | None
    created_at: float
    started_at: float | None
    completed_at: float | None
    retry_count: int
    max_retries: int
    next_retry_at: float | None
    timeout_seconds: float | None
    claimed_by: str | None
    claimed_at: float | None
    lease_expires_at: float | None
    lease_token: str | None
    lease_version: int
    last_heartbeat_at: float | None
    is_terminal: bool

    @property
    def is_done(self) -> bool:
        """True for completed and cancelled jobs."""
        return self.status in (Status.COMPLETED, Status.CANCELLED)

    @property
    def will_retry(self) -> bool:
        """True if it has failed and is due again; read from the stored time, never from a text."""
        return self.next_retry_at is not None


class ArchivedJob(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a job after its retention. `archived_day` is the UTC day on which it ended.

    `func` is the stored name of its function; the label that it may have had is not kept.
    """

    job_id: str
    func: str
    task_name: str
    status: Status
    created_at: float
    completed_at: float
    archived_day: str
    duration_seconds: float | None
    retry_count: int
    result_excerpt: str
    error_message: str | None


def build_archived_job(entry: ArchiveEntry) -> ArchivedJob:
    """Return an archive entry under these names."""
    return ArchivedJob(
        job_id=entry.id,
        func=entry.task,
        task_name=_short_name(entry.task),
        status=status_of(entry.state),
        created_at=entry.created_at / 1_000,
        completed_at=entry.finished_at / 1_000,
        archived_day=entry.day,
        duration_seconds=_seconds(entry.duration_ms),
        # The entry does not say why an attempt was not the last one, so each after the first is a retry.
        retry_count=max(0, entry.attempt - 1),
        result_excerpt=_plain_excerpt(entry.excerpt),
        error_message=None if entry.state is JobState.COMPLETED else entry.reason,
    )


def build_job_result(job: Job, result: Any) -> JobResult:
    """Return a job under these names; `result` is decoded."""
    is_running = job.state is JobState.RUNNING
    lease_end = job.lease_expires_at if is_running else None
    return JobResult(
        job_id=job.id,
        task_name=str(job.metadata.get(TASK_NAME) or _short_name(job.task)),
        priority=job.priority,
        status=job.status,
        payload=job.payload,
        result=result,
        error_message=_error(job),
        created_at=job.created_at / 1_000,
        started_at=_seconds(job.started_at),
        completed_at=_seconds(job.finished_at),
        retry_count=_retries(job),
        max_retries=job.policy.max_retries,
        next_retry_at=_seconds(job.run_at) if job.state is JobState.RETRYING else None,
        timeout_seconds=_seconds(job.timeout_ms),
        claimed_by=job.worker if is_running else None,
        claimed_at=_seconds(job.started_at) if is_running else None,
        lease_expires_at=_seconds(lease_end),
        lease_token=f"{job.worker}/{job.attempt}" if is_running else None,
        lease_version=job.attempt,
        # A renewal sets the end to a lease's length from now, so the end gives the time of the renewal.
        last_heartbeat_at=None if lease_end is None else (lease_end - (job.lease_ms or 0)) / 1_000,
        is_terminal=job.is_final,
    )


def decode_stored_result(job: Job) -> Any:
    """Return the stored result of the function; None if it has not returned."""
    return None if job.result is None else decode_result(job.result)


def _error(job: Job) -> str | None:
    if job.state is JobState.COMPLETED:
        return None
    if job.is_final:
        return job.reason
    last = job.errors[-1] if job.errors else None
    return None if last is None else f"{last.type}: {last.message}" if last.message else last.type


def _retries(job: Job) -> int:
    """Return the number of failures with another attempt after them. The last failure of a dead job has
    none."""
    died_of_failure = job.state is JobState.DEAD and job.crashes <= job.policy.max_crashes
    return max(0, job.failures - died_of_failure)


def _plain_excerpt(text: str) -> str:
    """Return the beginning of the result alone. A store cuts results with the header and the opening
    bracket. What was cut cannot be decoded, but these two can be left out."""
    body = _BEFORE_RESULT.sub("", text, count=1)
    is_complete = body != text and len(text) < EXCERPT
    return body.removesuffix("}") if is_complete else body


def _short_name(path: str) -> str:
    return path.rpartition(":")[2].rpartition(".")[2]


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1_000
