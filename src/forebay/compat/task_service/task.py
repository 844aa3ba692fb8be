"""A task of `TaskService`, with the names of a task service."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from forebay.domain.durations_and_instants import Duration, Instant, as_datetime, duration_within, instant_ms
from forebay.domain.job import DAY_MS, MIN_LEASE_MS, Dependency, Job, JobId, NewJob, QueueName
from forebay.domain.job_states import JobState
from forebay.domain.job_validation import check_integer
from forebay.domain.json_values import Json
from forebay.domain.retry_policy import MAX_RETRIES, PRESETS
from forebay.payload.codec import decode_call, decode_result, encode_call

TASK_TYPE: Final = "task_type"
UNNAMED: Final = "task"
PRIORITY: Final = 50
LOWEST, HIGHEST = 0, 100
MAX_ATTEMPTS: Final = 3


class TaskStatus(StrEnum):
    """The states of the task service."""

    PENDING = "PENDING"
    SCHEDULED = "SCHEDULED"
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    DEAD_LETTER = "DEAD_LETTER"
    CANCELLED = "CANCELLED"


STATUSES: Final = {
    JobState.SCHEDULED: TaskStatus.SCHEDULED,
    JobState.BLOCKED: TaskStatus.PENDING,
    JobState.PENDING: TaskStatus.PENDING,
    JobState.RUNNING: TaskStatus.IN_PROGRESS,
    JobState.RETRYING: TaskStatus.FAILED,
    JobState.COMPLETED: TaskStatus.COMPLETED,
    JobState.DEAD: TaskStatus.DEAD_LETTER,
    JobState.CANCELLED: TaskStatus.CANCELLED,
}


class ServiceTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task at the time of the call. `token` is the right to settle a dequeued task; `version` grows with
    each dequeue."""

    id: str
    queue_id: str
    payload: Any
    priority: int
    status: TaskStatus
    created_at: datetime | None
    scheduled_at: datetime | None
    deadline: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    attempts: int
    max_attempts: int
    visibility_timeout: float
    last_heartbeat: datetime | None
    error_message: str | None
    result: Any
    metadata: dict[str, Json]
    idempotency_key: str | None
    parent_task_id: str | None
    version: int
    token: str | None = None


def new_job(  # noqa: PLR0913 - the options of a task
    queue_name: str,
    payload: Any,
    *,
    priority: int,
    scheduled_at: Instant | None,
    deadline: Instant | None,
    max_attempts: int,
    visibility_timeout: Duration | None,
    idempotency_key: str | None,
    metadata: dict[str, Json],
    depends_on: Sequence[str],
    parent_task_id: str | None,
) -> NewJob:
    """Return the job of a new task; raise InvalidJob or PayloadError with the name of the wrong field."""
    check_priority(priority)
    check_integer("max_attempts", max_attempts, 1, MAX_RETRIES + 1)
    return NewJob(
        # A dequeue asks for types of tasks, and a store claims jobs by their task names.
        task=str(metadata.get(TASK_TYPE) or UNNAMED),
        payload=encode_call([payload], {}),
        queue=QueueName(queue_name),
        priority=priority,
        run_at=None if scheduled_at is None else instant_ms("scheduled_at", scheduled_at),
        deadline_at=None if deadline is None else instant_ms("deadline", deadline),
        # The visibility time-out of the dequeue limits the run time.
        timeout_ms=None,
        lease_ms=visibility_ms(visibility_timeout),
        policy=replace(PRESETS["base_5s"], max_retries=max_attempts - 1, max_crashes=max_attempts - 1),
        idempotency_key=idempotency_key,
        metadata=metadata,
        depends_on=tuple(Dependency(JobId(parent)) for parent in depends_on),
        parent_id=None if parent_task_id is None else JobId(parent_task_id),
    )


def check_priority(priority: int) -> None:
    check_integer("priority", priority, LOWEST, HIGHEST)


def visibility_ms(seconds: Duration | None, name: str = "visibility_timeout") -> int | None:
    return None if seconds is None else duration_within(name, seconds, MIN_LEASE_MS, DAY_MS)


def service_task(job: Job, lease_ms: int, now_ms: int) -> ServiceTask:
    """Return the job under these names; `lease_ms` is its visibility time-out without another one."""
    is_running = job.state is JobState.RUNNING
    return ServiceTask(
        id=job.id,
        queue_id=job.queue,
        payload=_payload(job),
        priority=job.priority,
        status=STATUSES[job.state],
        created_at=as_datetime(job.created_at),
        scheduled_at=as_datetime(job.run_at),
        deadline=as_datetime(job.deadline_at),
        started_at=as_datetime(job.started_at),
        completed_at=as_datetime(job.finished_at),
        # Claims that were handed back unstarted are not counted.
        attempts=job.failures + job.crashes + (job.state in (JobState.RUNNING, JobState.COMPLETED)),
        max_attempts=job.policy.max_retries + 1,
        visibility_timeout=lease_ms / 1_000,
        last_heartbeat=as_datetime(_last_heartbeat_at(job, lease_ms, now_ms)) if is_running else None,
        error_message=_error(job),
        result=None if job.result is None else decode_result(job.result),
        metadata=job.metadata,
        idempotency_key=job.idempotency_key,
        parent_task_id=job.parent_id,
        version=job.attempt,
        token=token_of(job) if is_running else None,
    )


def token_of(job: Job) -> str:
    """Return the proof of a dequeue: the attempt and its worker."""
    return f"{job.attempt}-{job.worker}"


def _last_heartbeat_at(job: Job, lease_ms: int, now_ms: int) -> int:
    """Return the time of the last renewal, computed from the end of the lease, since renewals are not
    recorded. If the last renewal had another length, the result is off by the difference."""
    started_at = job.started_at or now_ms
    return max(started_at, min(now_ms, (job.lease_expires_at or now_ms) - lease_ms))


def _payload(job: Job) -> Any:
    args, kwargs = decode_call(job.payload)
    # A job that another program has enqueued here without this facade is shown with the payload it has.
    is_ours = len(args) == 1 and not kwargs
    return args[0] if is_ours else {"args": list(args), "kwargs": kwargs}


def _error(job: Job) -> str | None:
    if job.reason:
        return job.reason
    return (job.errors[-1].message or job.errors[-1].type) if job.errors else None
