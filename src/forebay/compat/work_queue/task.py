"""A row of `WorkQueue`, with the names of a task table."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import msgspec

from forebay.domain.job import Job, JobId, NewJob, QueueName
from forebay.domain.job_states import JobState
from forebay.domain.retry_policy import RetryPolicy
from forebay.errors import InvalidJob
from forebay.payload.codec import decode_call, encode_call
from forebay.stores.id_generator import new_id

TASK: Final = "work"


class TaskState(StrEnum):
    """The states of the task table, stored by name."""

    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"
    RETRYABLE = "RETRYABLE"
    CANCELLED = "CANCELLED"
    DISCARDED = "DISCARDED"


class RowStatus(StrEnum):
    """The four states of a work queue's row."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


STATES: Final = {
    JobState.SCHEDULED: TaskState.PENDING,
    JobState.BLOCKED: TaskState.PENDING,
    JobState.PENDING: TaskState.PENDING,
    JobState.RUNNING: TaskState.PROCESSING,
    JobState.RETRYING: TaskState.RETRYABLE,
    JobState.COMPLETED: TaskState.COMPLETED,
    JobState.DEAD: TaskState.DISCARDED,
    JobState.CANCELLED: TaskState.CANCELLED,
}
STATUSES: Final = {
    TaskState.PENDING: RowStatus.QUEUED,
    TaskState.RETRYABLE: RowStatus.QUEUED,
    TaskState.PROCESSING: RowStatus.RUNNING,
    TaskState.COMPLETED: RowStatus.COMPLETED,
    TaskState.DISCARDED: RowStatus.FAILED,
    TaskState.CANCELLED: RowStatus.FAILED,
}


class WorkTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task. New ones need only `items`, a list of any JSON values. Times are milliseconds since 1970.

    A dequeued task has the right to settle it in `lease`. It is a value, and does not change: read the queue
    again for the present state.
    """

    items: list[Any]
    id: str = msgspec.field(default_factory=new_id)
    state: TaskState = TaskState.PENDING
    schedule_at: int | None = None
    attempt_count: int = 0
    attempted_at: int | None = None
    attempted_error: tuple[str, ...] = ()
    finalized_at: int | None = None
    created_at: int | None = None
    updated_at: int | None = None
    priority: int = 0
    claimed_by: str | None = None
    lease_expires_at: int | None = None
    lease: Job | None = None

    @property
    def status(self) -> RowStatus:
        """The state in the words of a work queue."""
        return STATUSES[self.state]

    @property
    def payload(self) -> list[Any]:
        """The same as `items`."""
        return self.items

    @property
    def run_at(self) -> int | None:
        """The same as `schedule_at`."""
        return self.schedule_at

    @property
    def started_at(self) -> int | None:
        """The same as `attempted_at`."""
        return self.attempted_at


def new_job(task: WorkTask, queue: QueueName, policy: RetryPolicy) -> NewJob:
    """Return the job of a new task; raise InvalidJob or PayloadError with the name of the wrong field."""
    if type(task) is not WorkTask or type(task.items) is not list:
        raise InvalidJob(f"a task is a WorkTask with a list of items, not {task!r:.60}", field="items")
    return NewJob(
        task=TASK,
        payload=encode_call([task.items], {}),
        queue=queue,
        id=JobId(task.id),
        priority=task.priority,
        run_at=task.schedule_at,
        # The visibility time-out of the dequeue limits the run time.
        timeout_ms=None,
        policy=policy,
    )


def work_task(job: Job) -> WorkTask:
    """Return the job under these names."""
    is_running = job.state is JobState.RUNNING
    return WorkTask(
        items=_items(job),
        id=job.id,
        state=STATES[job.state],
        schedule_at=job.run_at,
        attempt_count=tries(job) + is_running,
        attempted_at=job.started_at,
        attempted_error=tuple(error.message or error.type for error in job.errors),
        finalized_at=job.finished_at,
        created_at=job.created_at,
        updated_at=job.updated_at,
        priority=job.priority,
        claimed_by=job.worker if is_running else None,
        lease_expires_at=job.lease_expires_at if is_running else None,
        lease=job if is_running else None,
    )


def tries(job: Job) -> int:
    """Return the number of failed attempts. Claims that were handed back unstarted are not counted."""
    return job.failures + job.crashes


def _items(job: Job) -> list[Any]:
    args, kwargs = decode_call(job.payload)
    # A job that another program has enqueued here without this facade is shown with the payload it has.
    is_ours = len(args) == 1 and not kwargs and isinstance(args[0], list)
    return args[0] if is_ours else [*args, *([kwargs] if kwargs else [])]
