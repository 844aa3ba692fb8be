"""Match jobs against queries, for engines that examine jobs one by one."""

from __future__ import annotations

import msgspec

from forebay.domain.job import Job
from forebay.domain.job_query import JobQuery
from forebay.domain.job_views import JobSummary
from forebay.domain.json_values import Json


def matches(query: JobQuery, job: Job) -> bool:
    """Return whether all conditions of a query hold for a job."""
    return _matches_keys(query, job) and _matches_ranges(query, job) and _matches_content(query, job)


def _matches_keys(query: JobQuery, job: Job) -> bool:
    wanted = ((query.queues, job.queue), (query.states, job.state), (query.tasks, job.task))
    keys = (
        (query.unique_key, job.unique_key),
        (query.idempotency_key, job.idempotency_key),
        (query.correlation_id, job.correlation_id),
        (query.parent_id, job.parent_id),
    )
    return all(not allowed or value in allowed for allowed, value in wanted) and all(
        key is None or key == value for key, value in keys
    )


def _matches_ranges(query: JobQuery, job: Job) -> bool:
    at_least = ((query.priority_from, job.priority), (query.created_from, job.created_at))
    below = ((query.created_before, job.created_at), (query.finished_before, job.finished_at))
    return (
        all(minimum is None or value >= minimum for minimum, value in at_least)
        and all(maximum is None or (value is not None and value < maximum) for maximum, value in below)
        and (query.priority_to is None or job.priority <= query.priority_to)
    )


def _matches_content(query: JobQuery, job: Job) -> bool:
    return (
        set(query.tags) <= set(job.tags)
        and all(_has_entry(job, name, value) for name, value in query.metadata.items())
        and (query.text is None or query.text.encode() in job.payload or query.text in (job.reason or ""))
    )


def _has_entry(job: Job, name: str, value: Json) -> bool:
    # As JSON, because to Python True is 1 and 1 is 1.0.
    return name in job.metadata and msgspec.json.encode(job.metadata[name]) == msgspec.json.encode(value)


def summary_of(job: Job) -> JobSummary:
    """Return the summary of a job that lists show."""
    return JobSummary(
        id=job.id,
        queue=job.queue,
        task=job.task,
        state=job.state,
        priority=job.priority,
        attempt=job.attempt,
        failures=job.failures,
        created_at=job.created_at,
        run_at=job.run_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        worker=job.worker,
        reason=job.reason,
        tags=job.tags,
    )
