"""Claims, settlements and heartbeats of consumers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple, assert_never

from msgspec import Meta, field

from forebay.domain.job import Job, WorkerId
from forebay.domain.outcome import (
    AttemptError,
    Cancelled,
    Completed,
    Discarded,
    Failed,
    Interrupted,
    Outcome,
    Snoozed,
)
from forebay.payload.codec import encode_tagged_result
from forebay.service.schema.base import (
    LONGEST_WAIT_SECONDS,
    MAX_BATCH_SIZE,
    DelaySeconds,
    JobId,
    LeaseSeconds,
    LeaseToken,
    Problem,
    Queue,
    RequestModel,
    ResponseModel,
    Task,
    Values,
    WaitSeconds,
    at,
    length,
    moment_of,
    seconds,
)
from forebay.service.schema.payloads import CallView, call_of

LongText = Annotated[str, Meta(max_length=100_000)]


class ClaimCriteria(RequestModel, frozen=True, kw_only=True):
    """Jobs to claim: of these queues, and of these tasks if any are named."""

    queues: Annotated[list[Queue], Meta(min_length=1, max_length=100)] = field(
        default_factory=lambda: ["default"]
    )
    tasks: Annotated[list[Task], Meta(min_length=1, max_length=1_000)] | None = None
    lease_seconds: LeaseSeconds | None = None


class ClaimRequest(ClaimCriteria, frozen=True, kw_only=True):
    """Jobs to claim. If there are none, the response waits for some up to `wait_seconds`."""

    limit: Annotated[int, Meta(ge=1, le=MAX_BATCH_SIZE)] = 1
    wait_seconds: WaitSeconds = LONGEST_WAIT_SECONDS


class ClaimedJob(CallView, frozen=True, kw_only=True):
    """Claimed job, which is yours until its lease ends. Send `lease` with every request about it. It fences
    late requests, and is no secret."""

    id: str
    lease: str
    queue: str
    task: str
    attempt: int
    run_number: int
    failures: int
    priority: int
    lease_expires_at: datetime
    heartbeat_seconds: float
    timeout_seconds: float | None
    deadline_at: datetime | None
    metadata: Values
    tags: list[str]
    correlation_id: str | None


class ClaimResponse(ResponseModel, frozen=True, kw_only=True):
    """Claimed jobs in the order in which to run them; empty if none came in time."""

    jobs: list[ClaimedJob]


class AckRequest(RequestModel, frozen=True, kw_only=True):
    """Completion of a job."""

    lease: LeaseToken
    result: Any = None
    cost: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None


class NackRequest(RequestModel, frozen=True, kw_only=True):
    """Failure of an attempt. The job is retried by its policy, or after `retry_after_seconds`; without
    `requeue` it goes to the dead letters."""

    lease: LeaseToken
    error: LongText = ""
    error_type: Annotated[str, Meta(min_length=1, max_length=200)] = "Failed"
    traceback: LongText = ""
    requeue: bool = True
    retry_after_seconds: DelaySeconds | None = None


class HeartbeatRequest(RequestModel, frozen=True, kw_only=True):
    """Heartbeat of a running job: its lease is renewed for `extend_seconds`, or as its queue has it. `done`,
    `total` and `message` report progress."""

    lease: LeaseToken
    extend_seconds: LeaseSeconds | None = None
    done: Annotated[float, Meta(ge=0)] | None = None
    total: Annotated[float, Meta(ge=0)] | None = None
    message: LongText = ""


class ExtendRequest(RequestModel, frozen=True, kw_only=True):
    """Extension of a lease, beyond its present end."""

    lease: LeaseToken
    additional_seconds: Annotated[float, Meta(ge=1, le=86_400)]


class HeartbeatResponse(ResponseModel, frozen=True, kw_only=True):
    """Renewed lease. `cancel` is the reason why the job must stop, if a cancel is pending."""

    lease_expires_at: datetime
    heartbeat_seconds: float
    cancel: str | None = None


class OutcomeRequest(RequestModel, frozen=True, kw_only=True):
    """Outcome of one attempt. `released` hands the job back unstarted, and `snoozed` for later; neither
    counts as a failure."""

    id: JobId
    lease: LeaseToken
    outcome: Literal["completed", "failed", "discarded", "snoozed", "released", "cancelled"] = "completed"
    result: Any = None
    error: LongText = ""
    error_type: Annotated[str, Meta(min_length=1, max_length=200)] = "Failed"
    traceback: LongText = ""
    delay_seconds: DelaySeconds | None = None
    cost: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None

    def as_outcome(self) -> Outcome:
        """Return the outcome for the domain; raises PayloadError."""
        match self.outcome:
            case "completed":
                return Completed(encode_tagged_result(self.result), cost=self.cost)
            case "failed":
                return Failed(self._error(), length(self.delay_seconds), cost=self.cost)
            case "discarded":
                return Discarded(self._error(), cost=self.cost)
            case "snoozed":
                return Snoozed(length(self.delay_seconds) or 0, cost=self.cost)
            case "released":
                return Interrupted(started=False)
            case "cancelled":
                return Cancelled(self.error or "cancelled", cost=self.cost)
            case _:
                assert_never(self.outcome)

    def _error(self) -> AttemptError:
        return AttemptError(type=self.error_type, message=self.error, traceback=self.traceback)


class SettleRequest(RequestModel, frozen=True, kw_only=True):
    """Outcomes of several attempts; each counts separately."""

    outcomes: Annotated[list[OutcomeRequest], Meta(min_length=1, max_length=MAX_BATCH_SIZE)]


class SettleResult(ResponseModel, frozen=True, kw_only=True):
    """Result for one outcome: whether it was stored, or the problem."""

    id: str
    is_kept: bool
    problem: Problem | None = None


class SettleResponse(ResponseModel, frozen=True, kw_only=True):
    """Results in the order of the outcomes."""

    settled: list[SettleResult]


class DecodedLeaseToken(NamedTuple):
    """Contents of a lease token: the attempt and the lease holder."""

    attempt: int
    worker: WorkerId

    @classmethod
    def parse(cls, text: str) -> DecodedLeaseToken:
        attempt, _, worker = text.partition("-")
        return cls(int(attempt), WorkerId(worker))

    def __str__(self) -> str:
        return f"{self.attempt}-{self.worker}"


def claimed_job(job: Job, now_ms: int) -> ClaimedJob:
    """Return a job as a claim returns it."""
    call = call_of(job.payload)
    expires_at = job.lease_expires_at or now_ms
    return ClaimedJob(
        id=job.id,
        lease=str(DecodedLeaseToken(job.attempt, job.worker or WorkerId(""))),
        queue=job.queue,
        task=job.task,
        args=call.args,
        kwargs=call.kwargs,
        payload_base64=call.payload_base64,
        payload_error=call.payload_error,
        attempt=job.attempt,
        run_number=job.run_number,
        failures=job.failures,
        priority=job.priority,
        lease_expires_at=moment_of(expires_at),
        heartbeat_seconds=interval(expires_at - (job.started_at or now_ms)),
        timeout_seconds=seconds(job.timeout_ms),
        deadline_at=at(job.deadline_at),
        metadata=job.metadata,
        tags=list(job.tags),
        correlation_id=job.correlation_id,
    )


def interval(lease_ms: int) -> float:
    """Return the seconds between heartbeats: a third of the lease."""
    return max(lease_ms, 0) / 3_000
