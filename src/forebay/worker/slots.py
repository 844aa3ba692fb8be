"""Which leases this worker holds, which of them run, and how much room there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from forebay.app.context import JobContext
from forebay.domain.job import Job, JobId
from forebay.domain.lease import Lease


class Assignment:
    """One claimed job on its way through an executor.

    Whoever takes the ticket decides: the executor, which then runs the job, or the coordinator, which then
    hands it back. Taking it is one bytecode, so no lock is needed.
    """

    __slots__ = (
        "_tickets",
        "claimed_at",
        "context",
        "ended_at",
        "job",
        "renew_at",
        "seat",
        "started_at",
        "stopped_by",
    )

    def __init__(self, job: Job, claimed_at: float) -> None:
        self.job = job
        self.context = JobContext(job)
        self.claimed_at = claimed_at
        self.renew_at = 0.0
        self.renewed(claimed_at)
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.seat: object = None  # where its executor runs it
        self.stopped_by: BaseException | None = None
        self._tickets = [None]

    def take(self) -> bool:
        """Whether the job is the caller's now, to run it or to hand it back."""
        try:
            self._tickets.pop()
        except IndexError:
            return False
        return True

    def renewed(self, now: float) -> None:
        """The lease is fresh at this time; a third of its length later it should be renewed."""
        job = self.job
        length_ms = (job.lease_expires_at or 0) - (job.started_at or 0)
        self.renew_at = now + max(length_ms, 0) / 3_000

    @property
    def lease(self) -> Lease:
        return Lease(self.job.id, self.job.attempt)


class Slots:
    """All leases of one worker, by job id. Changed by the coordinator alone, read by the renewal too."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._held: dict[JobId, Assignment] = {}

    def add(self, assignments: Iterable[Assignment]) -> None:
        self._held.update((one.job.id, one) for one in assignments)

    def end(self, assignment: Assignment) -> None:
        self._held.pop(assignment.job.id, None)

    def find(self, job_id: JobId) -> Assignment | None:
        return self._held.get(job_id)

    def __iter__(self) -> Iterator[Assignment]:
        return iter(list(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    def leases(self) -> list[Lease]:
        return [one.lease for one in self]
