"""Task queue facade: functions as jobs on a SQLite file."""

from __future__ import annotations

from forebay.compat.task_queue.errors import (
    JobCancelledError,
    JobError,
    JobFailedError,
    JobNotFoundError,
    JobRefusedError,
    PermanentError,
    RetryableError,
)
from forebay.compat.task_queue.job_records import ArchivedJob, JobResult
from forebay.compat.task_queue.queue import PriorityLevel, TaskQueue

__all__ = [
    "ArchivedJob",
    "JobCancelledError",
    "JobError",
    "JobFailedError",
    "JobNotFoundError",
    "JobRefusedError",
    "JobResult",
    "PermanentError",
    "PriorityLevel",
    "RetryableError",
    "TaskQueue",
]
