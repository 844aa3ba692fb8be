"""The seam between Forebay and a storage engine: the whole contract, written once.

An `Engine` is an address. It opens handles: a `Store` to write, a `Reader` to look, `Wakeups` to listen.
A handle is blocking, cheap to open and used by one thread at a time. Engines know nothing of tasks,
retries or policies; the suite in `tests/stores/contract` speaks for this page.

Rules that hold for every method of `Store`:

- One call is one transaction: it happens whole or not at all. A call that raises `StoreUnavailable` may
  have happened if the answer was lost; all others that raise have changed nothing. Nor has one that
  raises `StoreBusy`: another transaction, mostly a caller's own, holds a key, an id or a job that it needs.
- Every time is the store's own clock; callers speak in delays.
- Every transition is guarded in the statement that makes it, by the state the job must be in and, for
  lease holders, by job id, attempt and worker id. What the guard refuses is reported, never half done.
- Whatever ends, moves or deletes a job keeps the counts by queue and state right, and frees only keys
  that name this very job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec

from forebay.domain.fairness import is_fairness_lane
from forebay.domain.job import Job, JobId, QueueName
from forebay.domain.lane import is_limit_lane
from forebay.domain.lease import Lease
from forebay.domain.lifecycle import JobState
from forebay.errors import ForebayError, IllegalTransition, JobNotFound, StoreBusy

OnConflict = Literal["return", "raise", "ignore"]
BATCH = 1_000
MAX_BYTES = 2**31 - 1  # no engine stores a larger value
MAX_PROMOTED_PER_CALL = 1_000


class InsertResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The answer to one new job. `is_new` is false when a key was taken: `id` is then its holder's.

    `error` is set only by an insert that is not atomic, for a job that was not stored.
    """

    id: JobId | None
    is_new: bool
    state: JobState | None = None
    error: ForebayError | None = None


class QueueClaim(NamedTuple):
    """A wish for up to `most` jobs of one queue; `lease_ms` overrides the job's and the queue's.

    `gates` are those that the caller may pass (see `domain.gate`); None is for a caller that takes any job.
    With `max_payload` a claimed job with more bytes comes with an empty payload, which is not read:
    `Reader.jobs` has it. So a caller with bounded memory can claim many jobs. All claims of one call carry
    the same bound. An engine may end such a claim
    before there are no more, and then `next_due_ms` is 0.
    """

    queue: QueueName
    limit: int
    lease_ms: int | None = None
    lanes: frozenset[str] | None = None
    max_payload: int | None = None

    def accepts_lane(self, lane: str) -> bool:
        if self.lanes is not None:
            return lane in self.lanes
        return not (is_limit_lane(lane) or is_fairness_lane(lane))

    @property
    def largest_payload(self) -> int:
        """The number that statements compare with."""
        return MAX_BYTES if self.max_payload is None else min(self.max_payload, MAX_BYTES)

    @property
    def max_parked(self) -> int:
        """How many jobs that are not for the caller one claim puts aside before it gives up."""
        return 4 * self.limit + 100


def remaining_claims(claims: Sequence[QueueClaim], jobs: Sequence[Job]) -> list[QueueClaim]:
    """What is still wanted after these jobs were claimed."""
    taken = Counter(job.queue for job in jobs)
    return [want._replace(limit=max(0, want.limit - taken[want.queue])) for want in claims]


class LeaseRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """A settlement or renewal whose lease was not held: other attempt, other worker, other state, gone."""

    lease: Lease
    reason: str


class PendingCancel(NamedTuple):
    """A stored wish that a running job shall stop."""

    job_id: JobId
    reason: str


class SettleAndClaimResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an exchange did. `jobs` come in the order they should run; `adopted` are leases held under
    this worker id that the caller did not know of; `next_due_ms` is the wait until the next scheduled or
    retrying job of the wanted queues is due or a rate lets another one start, None when there is none;
    `refused_updates` are leases whose notes were not kept because they are not held. `busy` are leases whose
    settlement or note was left undone, because another transaction holds what it needs: offer both again
    later. Only `settle_and_claim_isolating` answers that; a store raises StoreBusy for the whole call."""

    settled: tuple[JobId, ...] = ()
    repeated: tuple[JobId, ...] = ()
    refused: tuple[LeaseRefusal, ...] = ()
    jobs: tuple[Job, ...] = ()
    recovered: tuple[Job, ...] = ()
    cancels: tuple[PendingCancel, ...] = ()
    next_due_ms: int | None = None
    refused_updates: tuple[LeaseRefusal, ...] = ()
    busy: tuple[Lease, ...] = ()


class RenewResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a renewal did, by lease, and which of this worker's jobs shall stop."""

    renewed: tuple[Lease, ...] = ()
    refused: tuple[LeaseRefusal, ...] = ()
    cancels: tuple[PendingCancel, ...] = ()


class LeaseStatus(StrEnum):
    """How a lease stands that was ended in a caller's own transaction."""

    OPEN = "open"  # that transaction has not ended
    HELD = "held"  # it was rolled back: the lease is as it was
    OVER = "over"  # the lease is not held any more, most likely because it was committed


class ActionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer about one job to an operator's wish. `state` is the job's state after it. `is_busy` means
    that nothing was done because another transaction holds the job: try again once that has ended."""

    job_id: JobId
    applied: bool
    state: JobState | None
    reason: str = ""
    is_busy: bool = False

    def check(self) -> None:
        """Raise JobNotFound, StoreBusy or IllegalTransition if the wish was refused."""
        if self.applied:
            return
        if self.is_busy:
            raise StoreBusy(f"job {self.job_id}: {self.reason}")
        if self.state is None:
            raise JobNotFound(f"there is no job {self.job_id}")
        raise IllegalTransition(f"job {self.job_id}: {self.reason}")
