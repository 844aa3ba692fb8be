"""Fields of log lines about a job or a lease."""

from __future__ import annotations

from typing import Any

from forebay.domain.job import Job
from forebay.domain.lease import Lease


def job_fields(job: Job) -> dict[str, Any]:
    """Return the fields of a log line about a job."""
    return {
        "job_id": job.id,
        "task": job.task,
        "queue": job.queue,
        "attempt": job.attempt,
        "worker_id": job.worker,
        "correlation_id": job.correlation_id,
    }


def lease_fields(lease: Lease) -> dict[str, Any]:
    """Return the fields of a log line about a job of which only the lease is known."""
    return {"job_id": lease.job_id, "attempt": lease.attempt}
