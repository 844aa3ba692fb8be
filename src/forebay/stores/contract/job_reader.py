"""Protocols of the store contract for reading jobs: live, final and archived ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from forebay.domain.dependencies import Edge
from forebay.domain.job import Job, JobId
from forebay.domain.job_history import Timeline
from forebay.domain.job_query import JobQuery, Page
from forebay.domain.job_views import ArchiveEntry, JobStateInfo
from forebay.domain.progress import JobProgress
from forebay.domain.queue_counts import Position


class JobReader(Protocol):
    """Read side of jobs."""

    def jobs(self, ids: Sequence[JobId], *, with_payload: bool = True) -> list[Job | None]:
        """Return the records of these jobs, in the order given, whatever table they are in; None for unknown
        ids.

        Without `with_payload` they have neither payload nor result nor errors. These may be large, and are
        not read, decrypted or fetched.
        """
        ...

    def job_states(self, ids: Sequence[JobId]) -> list[JobStateInfo | None]:
        """Return states and errors of these jobs, in the order given; None for unknown ids. Payloads and
        results are neither read nor decrypted nor fetched.
        """
        ...

    def search(self, query: JobQuery, *, limit: int = 100, after: str | None = None) -> Page:
        """Return jobs that match, newest first (by seq), after `after`."""
        ...

    def position(self, job_id: JobId) -> Position | None:
        """Return the position of a pending job in its queue; None for other jobs and for one in a lane."""
        ...

    def parents(self, ids: Sequence[JobId]) -> list[Edge]:
        """Return the edges that lead to these jobs, by child in the order given, then by position."""
        ...

    def dependants(
        self, ids: Sequence[JobId], *, limit: int = 1_000, after: Edge | None = None
    ) -> list[Edge]:
        """Return the edges that lead from these jobs, by parent, child and position, after `after`."""
        ...

    def first_in_sequence(self, name: str) -> JobId | None:
        """Return the job of a sequence that may run: all other jobs of it are blocked until this one is
        final. None if the sequence has no live job.
        """
        ...

    def progress(self, job_id: JobId) -> JobProgress:
        """Return the progress of a job: the latest progress, the last log lines, the step results."""
        ...

    def history(self, job_id: JobId) -> Timeline | None:
        """Return the whole known life of one job, with its progress."""
        ...

    def archive(
        self, *, day: str | None = None, task: str | None = None, limit: int = 100
    ) -> list[ArchiveEntry]:
        """Return archive lines of pruned jobs, last ended first."""
        ...
