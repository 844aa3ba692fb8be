"""The part of the seam by which jobs go from one store to another, with all that is known of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from forebay.domain.history import Timeline
from forebay.domain.job import Job, JobId
from forebay.domain.moving import JobExport
from forebay.domain.workflow import Edge


class JobImportStore(Protocol):
    """The write side."""

    def import_jobs(self, exports: Sequence[JobExport]) -> list[bool]:
        """Take in jobs of another store, in the order given; whether each was new. One whose id is here
        already stays as it is: so what was offered once can be offered again. Parents come before children.

        A job keeps its id and all that `Whole` holds, and gets a seq, a rank and a gate of this store. A
        running one raises IllegalTransition. Neither the length nor the rates nor the state of its queue
        matter, and one that nobody has made is made with default settings. A live job comes last in its
        sequence, and is blocked by what blocks it here: edges are as given, but for open ones, which follow
        their parents; a parent that is not here counts as completed. Keys are taken where nobody has them;
        a live job whose unique key another one has comes without it, with a NOTE event. What a final job
        means for those here that wait for it is put on the list, as with every end."""
        ...


class JobExportReader(Protocol):
    """The read side."""

    def export_jobs(self, ids: Sequence[JobId]) -> list[JobExport | None]:
        """These jobs with all that is known of them, in the order asked; None for unknown ids."""
        ...


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
