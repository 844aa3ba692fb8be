"""Rows to jobs, as the columns stand here; the rest is shared by the engines on SQL."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from forebay.domain.job import Job, WorkerId
from forebay.domain.lifecycle import JobState
from forebay.stores.rows import PLAIN, STATES, Row, errors_from_text, job_of, options_from_text

_RUNNING: Final = JobState.RUNNING


def job_from_row(row: Row) -> Job:
    """A job from the columns of `job`; live rows lack the last three."""
    lease = (bool(row[16]), *row[17:21])
    head = (*row[:4], STATES[row[4]], *row[5:7])
    return job_of(head, options_from_text(row[7]), (*row[8:16], *lease), row[21:25], row[25], row[26:])


def claimed_job(head: Row, worker: WorkerId, now: int, lease_ms: int | None, queue_lease_ms: int) -> Job:
    """A job from the columns of `heads`, as it is once it is claimed: `lease_ms` comes before its own, and
    its own before the queue's. In words of its own, since this is what most rows are read for."""
    (
        _, seq, job_id, queue, task, payload, priority, options, attempt, failures, crashes, created_at,
        ready_at, run_at, rank, capped, deadline_at, expires_at, unique_key, cancel_reason, errors,
    ) = head  # fmt: skip
    has = PLAIN if options is None else options_from_text(options)
    lease_ms = has.lease_ms if lease_ms is None else lease_ms
    ends_at = now + (queue_lease_ms if lease_ms is None else lease_ms)
    job = Job(
        job_id, seq, queue, task, _RUNNING, payload, priority, has.policy, attempt + 1, failures, crashes,
        created_at, now, ready_at, run_at, rank, capped == 1, None, worker, now, ends_at, has.lease_ms,
        has.extension_ms, has.timeout_ms, deadline_at, expires_at, unique_key, has.unique_until, has.once_key,
        has.metadata or {}, has.tags, has.correlation_id, has.parent_id, cancel_reason,
        errors_from_text(errors),
    )  # fmt: skip
    return replace(job, limit_keys=has.limit_keys) if has.limit_keys else job
