"""Views of a job besides its record: summary, state, and archive line."""

from __future__ import annotations

import msgspec

from forebay.domain.job import Job, JobId, PastError, QueueName, WorkerId
from forebay.domain.job_states import JobState


class JobStateInfo(msgspec.Struct, frozen=True, kw_only=True):
    """State of a job, without payload and result. `error` is the error of its last failed attempt."""

    id: JobId
    seq: int
    queue: QueueName
    task: str
    state: JobState
    finished_at: int | None
    reason: str | None
    error: PastError | None


def state_info_of(job: Job) -> JobStateInfo:
    """Return the state of a job."""
    return JobStateInfo(
        id=job.id,
        seq=job.seq,
        queue=job.queue,
        task=job.task,
        state=job.state,
        finished_at=job.finished_at,
        reason=job.reason,
        error=job.errors[-1] if job.errors else None,
    )


class ArchiveEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Archive line of a pruned job. `day` is the UTC day of its end."""

    id: JobId
    queue: QueueName
    task: str
    state: JobState
    created_at: int
    finished_at: int
    day: str
    duration_ms: int | None
    attempt: int
    failures: int
    excerpt: str
    reason: str | None


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Job as a line in a list: no payload, no result."""

    id: JobId
    queue: QueueName
    task: str
    state: JobState
    priority: int
    attempt: int
    failures: int
    created_at: int
    run_at: int
    started_at: int | None
    finished_at: int | None
    worker: WorkerId | None
    reason: str | None
    tags: tuple[str, ...] = ()

    @property
    def duration_ms(self) -> int | None:
        """Return the duration of the attempt that ended the job, if it has ended."""
        if self.started_at is None or self.finished_at is None:
            return None
        return self.finished_at - self.started_at
