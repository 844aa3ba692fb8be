"""RQ facade: RQ's names on a Forebay store."""

from __future__ import annotations

from forebay.compat.rq.queue import Dependency, Job, JobStatus, Queue, Retry, get_current_job, job

__all__ = ["Dependency", "Job", "JobStatus", "Queue", "Retry", "get_current_job", "job"]
