"""Conversion of jobs to the results of Django's tasks."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from forebay.domain.job import Job, JobId
from forebay.domain.job_history import Timeline
from forebay.domain.job_states import JobState
from forebay.domain.outcome import AttemptError
from forebay.domain.ulid import ulid_created_at
from forebay.errors import InvalidJob
from forebay.integrations.django.tasks_api import base
from forebay.payload.codec import decode_call, decode_result

STATUS: Final[dict[JobState, Any]] = {
    JobState.RUNNING: base.TaskResultStatus.RUNNING,
    JobState.COMPLETED: base.TaskResultStatus.SUCCESSFUL,
    JobState.DEAD: base.TaskResultStatus.FAILED,
    JobState.CANCELLED: base.TaskResultStatus.FAILED,
}


def as_result(task: Any, timeline: Timeline) -> Any:
    """Return a job as `get_result` returns it."""
    job = timeline.job
    args, kwargs = decode_call(job.payload)
    first = timeline.attempts[0].started_at if timeline.attempts else job.started_at
    result = base.TaskResult(
        task=task,
        id=job.id,
        status=STATUS.get(job.state, base.TaskResultStatus.READY),
        enqueued_at=enqueue_time(job.id),
        started_at=moment(first),
        last_attempted_at=moment(job.started_at),
        finished_at=moment(job.finished_at),
        args=list(args),
        kwargs=kwargs,
        backend=task.backend,
        errors=[_error(attempt.error) for attempt in timeline.attempts],
        worker_ids=list(_workers(timeline)),
    )
    if job.state is JobState.COMPLETED and job.result is not None:
        object.__setattr__(result, "_return_value", decode_result(job.result))
    return result


def task_of(job: Job, backend: str) -> Any:
    """Return the task of a job, as its module defines it, with the job's own options."""
    task = import_string(job.task)
    run_after = moment(job.run_at) if job.run_at > job.created_at else None
    return task.using(priority=job.priority, queue_name=job.queue, run_after=run_after, backend=backend)


def _workers(timeline: Timeline) -> Iterator[str]:
    """Yield the worker of each attempt: the failed ones, and the one that runs or has completed."""
    yield from (str(attempt.worker) for attempt in timeline.attempts)
    job = timeline.job
    last = timeline.attempts[-1].attempt if timeline.attempts else 0
    if job.attempt > last and job.worker is not None:
        yield str(job.worker)


def _error(error: AttemptError) -> Any:
    return base.TaskError(exception_class_path=_path_of(error), traceback=error.traceback or error.message)


def _path_of(error: AttemptError) -> str:
    """Return the import path of an exception's class. The last line of the traceback has it, unless the class
    is one of Python's own; an attempt that was ended from outside has none."""
    if hasattr(builtins, error.type):
        return f"builtins.{error.type}"
    for line in reversed(error.traceback.splitlines()):
        path = line.partition(":")[0].strip()
        if path.endswith(f".{error.type}"):
            return path
    return "forebay.errors.ForebayError"


def enqueue_time(job_id: JobId) -> datetime | None:
    """Return the time from the id of the job, which is known before anything is read of it."""
    try:
        return moment(ulid_created_at(job_id))
    except InvalidJob:  # an id of the caller's own
        return None


def moment(at: int | None) -> datetime | None:
    """Return a time in the form of the settings: naive, or aware of its zone."""
    if at is None:
        return None
    aware = datetime.fromtimestamp(at / 1_000, UTC)
    return aware if settings.USE_TZ else timezone.make_naive(aware)
