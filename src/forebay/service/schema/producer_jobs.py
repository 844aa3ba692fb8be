"""Jobs of producers: enqueue, cancel and update requests, with their responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, field
from msgspec.structs import replace

from forebay.domain.job import (
    DAY_MS,
    MAX_COST,
    Dependency,
    JobId,
    NewJob,
    OnFailure,
    QueueName,
    UniqueUntil,
)
from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.retry_policy import PRESETS
from forebay.errors import InvalidJob
from forebay.payload.codec import encode_tagged_call
from forebay.service.schema.base import (
    MAX_BATCH_SIZE,
    DelaySeconds,
    Key,
    LeaseSeconds,
    Moment,
    Priority,
    Problem,
    Queue,
    RequestModel,
    ResponseModel,
    Task,
    Values,
    in_ms,
    length,
)


class DependencyRequest(RequestModel, frozen=True, kw_only=True):
    """Parent of a job: a stored one by `id`, or one of the same batch by its `index`."""

    id: Key | None = None
    index: Annotated[int, Meta(ge=0, lt=MAX_BATCH_SIZE)] | None = None
    on_failure: OnFailure = OnFailure.CANCEL


class EnqueueRequest(RequestModel, frozen=True, kw_only=True):
    """Job to enqueue. Arguments are JSON; other Python types are tagged as the reference page on payloads
    says."""

    task: Task
    queue: Queue = "default"
    args: Annotated[list[Any], Meta(max_length=100)] = field(default_factory=list)
    kwargs: Annotated[dict[str, Any], Meta(max_length=50)] = field(default_factory=dict)
    id: Key | None = None
    priority: Priority | None = None
    delay_seconds: DelaySeconds = 0
    run_at: Moment | None = None
    deadline_at: Moment | None = None
    expires_at: Moment | None = None
    timeout_seconds: Annotated[float, Meta(ge=0.001, le=86_400)] | None = 1_800
    lease_seconds: LeaseSeconds | None = None
    max_retries: Annotated[int, Meta(ge=0, le=100)] | None = None
    retry_policy: Literal["default", "cap_5m", "base_5s", "jitter_both_ways", "base_1m"] = "default"
    unique_key: Key | None = None
    unique_until: UniqueUntil = UniqueUntil.FINAL
    idempotency_key: Key | None = None
    metadata: Values = field(default_factory=dict)
    tags: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=50, pattern="^[^\\x00-\\x1f\\x7f]*$")]],
        Meta(max_length=20),
    ] = field(default_factory=list)
    correlation_id: Key | None = None
    parent_id: Key | None = None
    limit_keys: Annotated[dict[str, Key], Meta(max_length=5)] = field(default_factory=dict)
    depends_on: Annotated[list[DependencyRequest], Meta(max_length=MAX_BATCH_SIZE)] = field(
        default_factory=list
    )
    allow_missing: bool = False
    sequence: Key | None = None
    client: Key | None = None
    cost: Annotated[int, Meta(ge=0, le=MAX_COST)] = 1


class EnqueueManyRequest(RequestModel, frozen=True, kw_only=True):
    """Jobs to store together: all or none, or without `atomic` those that can be stored."""

    jobs: Annotated[list[EnqueueRequest], Meta(min_length=1, max_length=MAX_BATCH_SIZE)]
    atomic: bool = True


class EnqueueResponse(ResponseModel, frozen=True, kw_only=True):
    """Stored job. A duplicate is an earlier job that holds the key: nothing new was stored.

    If a position was requested: the number of jobs before this one, and the estimated seconds until it
    starts, by the throughput of its queue in the last minute.
    """

    id: str
    queue: str
    state: JobState | None
    is_duplicate: bool
    index: int = 0
    position: int | None = None
    position_is_exact: bool | None = None
    starts_in_seconds: float | None = None


class RejectedJob(ResponseModel, frozen=True, kw_only=True):
    """Job of a batch that was not stored."""

    index: int
    problem: Problem


class EnqueueBatchResponse(ResponseModel, frozen=True, kw_only=True):
    """Result for each job of a batch, by its index in the request."""

    accepted: list[EnqueueResponse]
    rejected: list[RejectedJob]


class CancelRequest(RequestModel, frozen=True, kw_only=True):
    """Reason of a cancel; with `dependants`, all jobs that depend on this one are cancelled too."""

    reason: Annotated[str, Meta(min_length=1, max_length=1_000)] = "cancelled"
    dependants: bool = False
    force: bool = False


class UpdateJobRequest(RequestModel, frozen=True, kw_only=True):
    """Changes of a waiting job; fields that are left out stay. `delay_seconds` 0 makes it due now. `metadata`
    is merged key by key, and null removes a key. `queue` moves the job."""

    priority: Priority | None = None
    delay_seconds: DelaySeconds | None = None
    run_at: Moment | None = None
    metadata: Values | None = None
    queue: Queue | None = None

    def to_job_update(self, now_ms: int) -> JobUpdate:
        """Return the change for the store; raises InvalidJob."""
        if self.delay_seconds is not None and self.run_at is not None:
            raise InvalidJob("give delay_seconds or run_at, not both", field="run_at")
        run_at = in_ms("run_at", self.run_at)
        delay_ms = length(self.delay_seconds) if run_at is None else max(0, run_at - now_ms)
        queue = None if self.queue is None else QueueName(self.queue)
        return JobUpdate(priority=self.priority, delay_ms=delay_ms, metadata=self.metadata, queue=queue)


class ActionResponse(ResponseModel, frozen=True, kw_only=True):
    """Result of an action on one job; `state` is its present state, null if the job does not exist."""

    id: str
    applied: bool
    state: JobState | None
    reason: str = ""


class ResultResponse(ResponseModel, frozen=True, kw_only=True):
    """Result of a completed job."""

    id: str
    result: Any


def new_jobs(requests: Sequence[EnqueueRequest]) -> list[NewJob]:
    """Return the jobs of a batch; raises InvalidJob or PayloadError for the first invalid one."""
    return [new_job(request, index) for index, request in enumerate(requests)]


def new_job(request: EnqueueRequest, index: int = 0) -> NewJob:
    """Return the job to store; `index` is the position of the request in its batch."""
    policy = PRESETS[request.retry_policy]
    if request.max_retries is not None:
        policy = replace(policy, max_retries=request.max_retries)
    return NewJob(
        task=request.task,
        payload=encode_tagged_call(request.args, request.kwargs),
        queue=QueueName(request.queue),
        id=None if request.id is None else JobId(request.id),
        priority=request.priority,
        delay_ms=length(request.delay_seconds) or 0,
        run_at=in_ms("run_at", request.run_at),
        deadline_at=in_ms("deadline_at", request.deadline_at),
        expires_at=in_ms("expires_at", request.expires_at),
        timeout_ms=length(request.timeout_seconds),
        lease_ms=length(request.lease_seconds),
        policy=policy,
        unique_key=request.unique_key,
        unique_until=request.unique_until,
        idempotency_key=request.idempotency_key,
        idempotency_ttl_ms=DAY_MS,
        metadata=request.metadata,
        tags=tuple(request.tags),
        correlation_id=request.correlation_id,
        parent_id=None if request.parent_id is None else JobId(request.parent_id),
        limit_keys=request.limit_keys,
        depends_on=tuple(_dependency(dependency, index) for dependency in request.depends_on),
        allow_missing=request.allow_missing,
        sequence=request.sequence,
        client=request.client,
        cost=request.cost,
    )


def _dependency(request: DependencyRequest, index: int) -> Dependency:
    if (request.id is None) == (request.index is None):
        raise InvalidJob("depends_on names each job by its id or by its index", field="depends_on")
    if request.id is not None:
        return Dependency(JobId(request.id), request.on_failure)
    if request.index is None or request.index >= index:
        raise InvalidJob("depends_on names jobs that stand before this one in the batch", field="depends_on")
    return Dependency(index - request.index, request.on_failure)
