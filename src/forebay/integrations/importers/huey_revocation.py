"""Revocations of Huey's: their keys, and jobs that they skip."""

from __future__ import annotations

from typing import Final

from forebay.integrations.importers.source import ForeignJob, SkippedJob

REVOKED: Final = "it was revoked, or its task was: nothing would run it"


def revocation_keys(job: ForeignJob) -> tuple[str, str]:
    """Return the keys under which Huey records that a task, or all of its kind, must not run."""
    return f"r:{job.id}", f"rt:{job.task}"


def make_revoked(job: ForeignJob) -> SkippedJob:
    return SkippedJob(id=job.id, task=job.task, queue=job.queue, reason=REVOKED)
