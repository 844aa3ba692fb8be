"""Claims, and the results of store calls: values of the store contract."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec

from forebay.domain.fairness import is_fairness_lane
from forebay.domain.job import Job, JobId, QueueName
from forebay.domain.job_states import JobState
from forebay.domain.lane import is_limit_lane
from forebay.domain.lease import Lease
from forebay.errors import ForebayError, IllegalTransition, JobNotFound, StoreBusy

OnConflict = Literal["return", "raise", "ignore"]
BATCH = 1_000
MAX_BYTES = 2**31 - 1  # no engine stores a larger value
MAX_PROMOTED_PER_CALL = 1_000


class InsertResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Result for one new job. `is_new` is false if a key was taken: `id` is then the id of its holder.

    `error` is set only by an insert that is not atomic, for a job that was not stored.
    """

    id: JobId | None
    is_new: bool
    state: JobState | None = None
    error: ForebayError | None = None


class QueueClaim(NamedTuple):
    """Claim of up to `limit` jobs of one queue. `lease_ms` overrides the lease time of the job and of the
    queue.

    `lanes` are the lanes that the caller may claim from (see `domain.lane`); None means any job. With
    `max_payload` a claimed job with a larger payload comes with an empty one, which is not read:
    `Reader.jobs` returns it. So a caller with bounded memory can claim many jobs. All claims of one call
    carry the same bound. An engine may end such a claim early, and then `next_due_ms` is 0.
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
        """Bound on the payload size that statements compare with."""
        return MAX_BYTES if self.max_payload is None else min(self.max_payload, MAX_BYTES)

    @property
    def max_parked(self) -> int:
        """Number of jobs that one claim parks before it ends."""
        return 4 * self.limit + 100


def remaining_claims(claims: Sequence[QueueClaim], jobs: Sequence[Job]) -> list[QueueClaim]:
    """Return the rest of the claims after these jobs were claimed."""
    taken = Counter(job.queue for job in jobs)
    return [claim._replace(limit=max(0, claim.limit - taken[claim.queue])) for claim in claims]


class LeaseRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Settlement or renewal whose lease was not held: other attempt, other worker, other state, or no job."""

    lease: Lease
    reason: str


class PendingCancel(NamedTuple):
    """Stored request to stop a running job."""

    job_id: JobId
    reason: str


class SettleAndClaimResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `Store.settle_and_claim`.

    - `jobs` come in the order in which they should run.
    - `recovered` are leases under this worker id that the caller did not know of.
    - `next_due_ms` is the wait until the next delayed job of the claimed queues is due, or until a rate lets
      another one start; None if there is neither.
    - `refused_updates` are leases whose progress was not stored because they are not held.
    - `busy` are leases whose settlement or progress was not written because another transaction holds a lock
      that it needs: offer both again later. Only `settle_and_claim_isolating` returns these; a store raises
      StoreBusy for the whole call.
    """

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
    """Result of a renewal by lease, and the jobs of this worker that shall stop."""

    renewed: tuple[Lease, ...] = ()
    refused: tuple[LeaseRefusal, ...] = ()
    cancels: tuple[PendingCancel, ...] = ()


class LeaseStatus(StrEnum):
    """Status of a lease that was settled in a caller's own transaction."""

    OPEN = "open"  # that transaction has not ended
    HELD = "held"  # it was rolled back: the lease is as it was
    OVER = "over"  # the lease is not held any more, most likely because it was committed


class ActionResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an operator's action for one job. `state` is the job's state after it.

    `is_busy` means that nothing was done because another transaction holds the job's lock: retry once that
    has ended.
    """

    job_id: JobId
    applied: bool
    state: JobState | None
    reason: str = ""
    is_busy: bool = False

    def check(self) -> None:
        """Raise JobNotFound, StoreBusy or IllegalTransition if the action was refused."""
        if self.applied:
            return
        if self.is_busy:
            raise StoreBusy(f"job {self.job_id}: {self.reason}")
        if self.state is None:
            raise JobNotFound(f"there is no job {self.job_id}")
        raise IllegalTransition(f"job {self.job_id}: {self.reason}")
