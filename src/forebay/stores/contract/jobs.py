"""The part of the seam that looks at jobs, wherever they are, and at what is left of those that are gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from forebay.domain.dependencies import Edge
from forebay.domain.history import Timeline
from forebay.domain.job import Job, JobId
from forebay.domain.progress import JobProgress
from forebay.domain.query import ArchiveEntry, JobQuery, JobStateInfo, Page, Position


class JobReader(Protocol):
    """The read side of jobs."""

    def jobs(self, ids: Sequence[JobId], *, with_payload: bool = True) -> list[Job | None]:
        """The records of these jobs, in the order asked, wherever they are; None for unknown ids.

        Without `with_payload` they have neither payload nor result nor errors. These may be large, and are
        not read, decrypted or fetched."""
        ...

    def job_states(self, ids: Sequence[JobId]) -> list[JobStateInfo | None]:
        """What has become of these jobs, in the order asked, None for unknown ids. What they carry is neither
        read by the caller nor decrypted or fetched for it."""
        ...

    def search(self, query: JobQuery, *, limit: int = 100, after: str | None = None) -> Page:
        """Jobs that fit, newest first (by seq), from `after` on."""
        ...

    def position(self, job_id: JobId) -> Position | None:
        """Where a pending job stands in its queue; None for every other job, and behind a gate."""
        ...

    def parents(self, ids: Sequence[JobId]) -> list[Edge]:
        """The edges that lead to these jobs, by child in the order asked, then by number."""
        ...

    def dependants(
        self, ids: Sequence[JobId], *, limit: int = 1_000, after: Edge | None = None
    ) -> list[Edge]:
        """The edges that lead from these jobs, by parent, child and number, from `after` on."""
        ...

    def first_in_sequence(self, name: str) -> JobId | None:
        """Whose turn it is in a sequence: all other jobs of it are blocked until this one is final. None if
        it has no live job."""
        ...

    def progress(self, job_id: JobId) -> JobProgress:
        """What attempts at this job have said: the latest progress, the last log lines, the steps done."""
        ...

    def history(self, job_id: JobId) -> Timeline | None:
        """The whole known life of one job, with its notes."""
        ...

    def archive(
        self, *, day: str | None = None, task: str | None = None, limit: int = 100
    ) -> list[ArchiveEntry]:
        """Lines about pruned jobs, last ended first."""
        ...
