"""A job with all that is known of it, as it goes from one store to another; and what became of a move."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.domain.dependencies import Edge
from forebay.domain.history import Attempt, Event, EventKind
from forebay.domain.job import Job, JobId, UniqueUntil
from forebay.domain.lifecycle import JobState
from forebay.domain.progress import JobProgress
from forebay.errors import IllegalTransition

# What a store works out for itself, or may have given to another one.
_OWN: Final = ("seq", "rank", "age_capped", "lane", "lease_expires_at", "unique_key")
# What nobody can change, however a job is amended, run and revived.
_STAYS: Final = ("id", "task", "payload")
_WORDS: Final = 8  # bytes of a fingerprint


class JobExport(msgspec.Struct, frozen=True, kw_only=True):
    """A job with its bad attempts, events, notes and the edges to its parents. `idempotency_until` is until
    when it
    holds its once key; None if it holds none."""

    job: Job
    attempts: tuple[Attempt, ...] = ()
    events: tuple[Event, ...] = ()
    progress: JobProgress = JobProgress()
    edges: tuple[Edge, ...] = ()
    idempotency_until: int | None = None

    def check(self) -> None:
        """Raise IllegalTransition for a job that somebody works at: it cannot be taken along."""
        if self.job.state is JobState.RUNNING:
            raise IllegalTransition(f"job {self.job.id} is running; it can be moved once it has ended")

    @property
    def holds_unique_key(self) -> bool:
        """Whether it holds its unique key: a live job does, until its end or until its start."""
        job = self.job
        is_held = job.unique_until is UniqueUntil.FINAL or job.attempt == 0
        return job.unique_key is not None and not job.is_final and is_held

    def without_unique_key(self, holder: JobId) -> JobExport:
        """The same job without its unique key, which another one has: better two than none."""
        detail = f"it came without its unique key {self.job.unique_key}, which {holder} holds"
        said = Event(kind=EventKind.COMMENT, job_id=self.job.id, queue=self.job.queue, detail=detail)
        return replace(self, job=replace(self.job, unique_key=None), events=(*self.events, said))


def waiting_state(job: Job, now: int, *, is_blocked: bool) -> JobState:
    """How a live job waits in a store that has taken it in."""
    if is_blocked:
        return JobState.BLOCKED
    if job.run_at <= now:
        return JobState.PENDING
    return JobState.RETRYING if job.state is JobState.RETRYING else JobState.SCHEDULED


def fingerprint(job: Job, *, with_end: bool = False) -> int:
    """A number that is the same for the same job in two stores, whatever has been done to it since; with its
    end all of it counts, as it was then."""
    from hashlib import blake2b  # noqa: PLC0415 - it loads OpenSSL, which a supervisor has no use for

    names = [name for name in job.__struct_fields__ if name not in _OWN] if with_end else _STAYS
    packed = msgspec.msgpack.encode({name: getattr(job, name) for name in names}, order="deterministic")
    return int.from_bytes(blake2b(packed, digest_size=_WORDS).digest())


class MoveResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was new in the new store, by what it is."""

    jobs: int = 0
    queues: int = 0
    limits: int = 0
    schedules: int = 0
    documents: int = 0
    passes: int = 0
    deleted: int = 0


class MoveComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Both stores side by side: how many jobs of the old one were looked at, which are missing in the new one
    or are another there, and the sums of the fingerprints of both. Those that have come there and are not
    there any more, because they were done and pruned or somebody has deleted them, are `forgotten`. Jobs of
    the new store whose payload or result is in a blob that does not exist are `without_blob`;
    `blobs_unchecked` counts the jobs whose blobs were not looked for, because no place for them was given."""

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
        """Whether all is there. What is missing may have come since the last pass; what is another one has
        been changed in one of the stores."""
        is_whole = not (self.missing or self.different or self.without_blob)
        return is_whole and self.old_checksum == self.new_checksum
