"""Values of a store move: exported jobs, fingerprints, and the results of the move."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.domain.dependencies import Edge
from forebay.domain.job import Job, JobId, UniqueUntil
from forebay.domain.job_history import Attempt, Event, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.progress import JobProgress
from forebay.errors import IllegalTransition

# Fields that a store computes itself, or that another job may hold by now.
_OWN: Final = ("seq", "rank", "age_capped", "lane", "lease_expires_at", "unique_key")
# Fields that never change, whatever updates, runs and revives a job has.
_STAYS: Final = ("id", "task", "payload")
_FINGERPRINT_BYTES: Final = 8  # bytes of a fingerprint


class JobExport(msgspec.Struct, frozen=True, kw_only=True):
    """Job with its failed attempts, events, progress and the edges to its parents. `idempotency_until` is
    the time until which it holds its idempotency key; None if it holds none."""

    job: Job
    attempts: tuple[Attempt, ...] = ()
    events: tuple[Event, ...] = ()
    progress: JobProgress = JobProgress()
    edges: tuple[Edge, ...] = ()
    idempotency_until: int | None = None

    def check(self) -> None:
        """Raise IllegalTransition for a running job: it cannot be moved."""
        if self.job.state is JobState.RUNNING:
            raise IllegalTransition(f"job {self.job.id} is running; it can be moved once it has ended")

    @property
    def holds_unique_key(self) -> bool:
        """Return whether it holds its unique key: a live job does, until its end or until its start."""
        job = self.job
        is_held = job.unique_until is UniqueUntil.FINAL or job.attempt == 0
        return job.unique_key is not None and not job.is_final and is_held

    def without_unique_key(self, holder: JobId) -> JobExport:
        """Return the same job without its unique key, which another job holds: better two such jobs than
        none."""
        detail = f"it came without its unique key {self.job.unique_key}, which {holder} holds"
        event = Event(kind=EventKind.COMMENT, job_id=self.job.id, queue=self.job.queue, detail=detail)
        return replace(self, job=replace(self.job, unique_key=None), events=(*self.events, event))


def waiting_state(job: Job, now: int, *, is_blocked: bool) -> JobState:
    """Return the state of an imported live job."""
    if is_blocked:
        return JobState.BLOCKED
    if job.run_at <= now:
        return JobState.PENDING
    return JobState.RETRYING if job.state is JobState.RETRYING else JobState.SCHEDULED


def fingerprint(job: Job, *, with_end: bool = False) -> int:
    """Return a number that is the same for the same job in two stores, whatever has happened to it since.
    With `with_end` all of its fields count."""
    from hashlib import blake2b  # noqa: PLC0415 - it loads OpenSSL, which a supervisor has no use for

    names = [name for name in job.__struct_fields__ if name not in _OWN] if with_end else _STAYS
    packed = msgspec.msgpack.encode({name: getattr(job, name) for name in names}, order="deterministic")
    return int.from_bytes(blake2b(packed, digest_size=_FINGERPRINT_BYTES).digest())


class MoveResult(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of new things in the new store, by kind."""

    jobs: int = 0
    queues: int = 0
    limits: int = 0
    schedules: int = 0
    documents: int = 0
    passes: int = 0
    deleted: int = 0


class MoveComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison of both stores: examined jobs of the old store, jobs that are missing or different in the
    new one, and the sums of the fingerprints of both.

    `forgotten` jobs were moved and are gone again, because they were pruned or deleted. Jobs of the new store
    whose payload or result is in a missing blob are `without_blob`. `blobs_unchecked` counts jobs whose blobs
    were not checked, because no blob store was given.
    """

    jobs: int = 0
    forgotten: int = 0
    missing: tuple[JobId, ...] = ()
    different: tuple[JobId, ...] = ()
    without_blob: tuple[JobId, ...] = ()
    blobs_unchecked: int = 0
    old_checksum: str = ""
    new_checksum: str = ""

    @property
    def agrees(self) -> bool:
        """Return whether nothing is missing. A missing job may have come since the last pass; a different
        one has been changed in one of the stores."""
        is_complete = not (self.missing or self.different or self.without_blob)
        return is_complete and self.old_checksum == self.new_checksum
