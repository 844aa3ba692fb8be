"""Export of jobs with their history, shared by all engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from forebay.domain.dependencies import Edge
from forebay.domain.job import Job, JobId
from forebay.domain.job_history import Timeline
from forebay.domain.store_move import JobExport


class JobExportMixin(ABC):
    """Mixin of readers that exports jobs from several reads. A job that changes between them may be
    exported half before and half after; a store move makes sure that no worker runs them."""

    @abstractmethod
    def history(self, job_id: JobId) -> Timeline | None: ...

    @abstractmethod
    def parents(self, ids: Sequence[JobId]) -> list[Edge]: ...

    @abstractmethod
    def _idempotency_until(self, job: Job) -> int | None:
        """Return the time until which a job holds its idempotency key, if it does."""

    def export_jobs(self, ids: Sequence[JobId]) -> list[JobExport | None]:
        edges: dict[JobId, list[Edge]] = {}
        for edge in self.parents(ids):
            edges.setdefault(edge.child, []).append(edge)
        return [self._export_job(job_id, edges.get(job_id, ())) for job_id in ids]

    def _export_job(self, job_id: JobId, edges: Sequence[Edge]) -> JobExport | None:
        timeline = self.history(job_id)
        if timeline is None:
            return None
        return JobExport(
            job=timeline.job,
            attempts=timeline.attempts,
            events=timeline.events,
            progress=timeline.progress,
            edges=tuple(edges),
            idempotency_until=None
            if timeline.job.idempotency_key is None
            else self._idempotency_until(timeline.job),
        )
