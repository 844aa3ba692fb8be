"""The part of the seam by which jobs go from one store to another, with all that is known of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from forebay.domain.dependencies import Edge
from forebay.domain.history import Timeline
from forebay.domain.job import Job, JobId
from forebay.domain.store_move import JobExport


class JobExportMixin(ABC):
    """What readers have in common: each part as it is shown by itself. A job that changes meanwhile may be
    seen half before and half after; whoever moves jobs sees to it that nobody works at them."""

    @abstractmethod
    def history(self, job_id: JobId) -> Timeline | None: ...

    @abstractmethod
    def parents(self, ids: Sequence[JobId]) -> list[Edge]: ...

    @abstractmethod
    def _idempotency_until(self, job: Job) -> int | None:
        """Until when a job holds its once key, if it does."""

    def export_jobs(self, ids: Sequence[JobId]) -> list[JobExport | None]:
        edges: dict[JobId, list[Edge]] = {}
        for edge in self.parents(ids):
            edges.setdefault(edge.child, []).append(edge)
        return [self._export_job(job_id, edges.get(job_id, ())) for job_id in ids]

    def _export_job(self, job_id: JobId, edges: Sequence[Edge]) -> JobExport | None:
        known = self.history(job_id)
        if known is None:
            return None
        return JobExport(
            job=known.job,
            attempts=known.attempts,
            events=known.events,
            progress=known.progress,
            edges=tuple(edges),
            idempotency_until=None
            if known.job.idempotency_key is None
            else self._idempotency_until(known.job),
        )
