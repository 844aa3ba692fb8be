"""Request messages of the methods: structs of the service, with the fields that HTTP has in its paths.

A method is named after its request, and the docstring of the request describes it. Its message has the same
name, and the same fields, under numbers that the committed .proto file preserves (tools/proto.py).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field
from msgspec.structs import replace

from forebay.domain.job import DAY_MS
from forebay.errors import InvalidJob
from forebay.operations.queue_stats import DEFAULT_WINDOW_MS, MAX_WINDOW_MS
from forebay.service.schema.api_keys import KEY_NAME, KeyRequest, RotateRequest
from forebay.service.schema.audit import AuditCheckRequest, AuditRequest
from forebay.service.schema.base import (
    LONGEST_WAIT_SECONDS,
    JobId,
    Moment,
    Queue,
    RequestModel,
    Task,
    WaitSeconds,
)
from forebay.service.schema.concurrency_and_rate_limits import LimitRequest
from forebay.service.schema.dead_letters import DeadLetterRequest, FailureGroupsRequest
from forebay.service.schema.gradual_revives import GradualReviveName, GradualReviveRequest
from forebay.service.schema.job_admin import BulkRequest, ReplayRequest, ReviveRequest
from forebay.service.schema.job_claims import (
    AckRequest,
    ClaimCriteria,
    ClaimRequest,
    ExtendRequest,
    NackRequest,
    SettleRequest,
)
from forebay.service.schema.job_claims import HeartbeatRequest as Heartbeat
from forebay.service.schema.job_filter import FilterRequest, SearchRequest
from forebay.service.schema.producer_jobs import CancelRequest, EnqueueManyRequest, UpdateJobRequest
from forebay.service.schema.producer_jobs import EnqueueRequest as NewJob
from forebay.service.schema.queues import CreateQueueRequest as NewQueue
from forebay.service.schema.queues import QueueSettingsRequest
from forebay.service.schema.schedules import ScheduleRequest
from forebay.service.schema.workers_and_commands import CommandRequest

Name = Annotated[str, Meta(min_length=1, max_length=100, pattern="^[^\\x00-\\x1f\\x7f]*$")]
WindowSeconds = Annotated[float, Meta(ge=10, le=MAX_WINDOW_MS / 1_000)]
PageSize = Annotated[int, Meta(ge=1, le=1_000)]

# Producers


class EnqueueRequest(RequestModel, frozen=True, kw_only=True):
    """Enqueue a job."""

    job: NewJob
    with_position: bool = False


class EnqueueBatchRequest(EnqueueManyRequest, frozen=True, kw_only=True):
    """Enqueue several jobs, in one or several queues: all or none, or without `atomic` those that can be
    stored."""


class GetTaskStatusRequest(RequestModel, frozen=True, kw_only=True):
    """Show a job with its attempts, its dependencies and its dependants."""

    id: JobId


class WaitForCompletionRequest(RequestModel, frozen=True, kw_only=True):
    """Show a job when it has ended, or its state when the time is up."""

    id: JobId
    timeout_seconds: WaitSeconds = LONGEST_WAIT_SECONDS


class WatchTaskRequest(RequestModel, frozen=True, kw_only=True):
    """Show a job now and after each change, until it has ended."""

    id: JobId


class GetTaskGraphRequest(RequestModel, frozen=True, kw_only=True):
    """Show the jobs that are connected with one by dependencies."""

    id: JobId
    limit: Annotated[int, Meta(ge=1, le=500)] = 200


class GetTaskResultRequest(RequestModel, frozen=True, kw_only=True):
    """Return the result of a completed job."""

    id: JobId


class CancelTaskRequest(CancelRequest, frozen=True, kw_only=True):
    """Cancel a waiting job; ask a running one to stop."""

    id: JobId


class UpdateTaskPriorityRequest(UpdateJobRequest, frozen=True, kw_only=True):
    """Change the priority, time, metadata or queue of a waiting job; what is left out stays."""

    id: JobId


# Consumers


class DequeueRequest(ClaimCriteria, frozen=True, kw_only=True):
    """Claim a job, with a lease on it; wait for one if there is none."""

    wait_seconds: WaitSeconds = LONGEST_WAIT_SECONDS


class DequeueBatchRequest(ClaimRequest, frozen=True, kw_only=True):
    """Claim up to `limit` jobs, with a lease on each; wait for some if there are none."""


class DequeueStreamRequest(ClaimCriteria, frozen=True, kw_only=True):
    """Claim jobs as they come, until the call is cancelled; at most `window` of them are unsettled at a
    time."""

    window: PageSize = 10


class AckTaskRequest(AckRequest, frozen=True, kw_only=True):
    """Report that a job has completed."""

    id: JobId


class NackTaskRequest(NackRequest, frozen=True, kw_only=True):
    """Report that an attempt has failed. The job is retried, or without `requeue` goes to the dead
    letters."""

    id: JobId


class SettleTasksRequest(SettleRequest, frozen=True, kw_only=True):
    """Report the outcomes of several jobs; each is answered separately."""


class HeartbeatRequest(Heartbeat, frozen=True, kw_only=True):
    """Renew a lease, and report progress."""

    id: JobId


class ExtendVisibilityRequest(ExtendRequest, frozen=True, kw_only=True):
    """Extend a lease."""

    id: JobId


class PeekNextRequest(RequestModel, frozen=True, kw_only=True):
    """Show the next jobs to be claimed, without claiming them."""

    queue: Queue
    limit: PageSize = 10


# Operators: queues


class ListQueuesRequest(RequestModel, frozen=True, kw_only=True):
    """List the queues with their jobs by state."""


class GetQueueRequest(RequestModel, frozen=True, kw_only=True):
    """Show a queue with its settings and its jobs by state."""

    name: Queue


class GetQueueMetricsRequest(RequestModel, frozen=True, kw_only=True):
    """Show recent metrics of a queue."""

    queue: Queue
    window_seconds: WindowSeconds = DEFAULT_WINDOW_MS / 1_000


class ListQueueMetricsRequest(RequestModel, frozen=True, kw_only=True):
    """Show recent metrics of all queues."""

    window_seconds: WindowSeconds = DEFAULT_WINDOW_MS / 1_000


class GetQueueMetricsTimeSeriesRequest(RequestModel, frozen=True, kw_only=True):
    """Show metrics over time: of all queues or one, of all tasks or one."""

    metrics: Annotated[
        list[Annotated[str, Meta(pattern="^[a-z0-9_]{1,40}$")]], Meta(min_length=1, max_length=20)
    ]
    queue: Queue | None = None
    task: Task | None = None
    start: Moment | None = None
    end: Moment | None = None
    resolution_seconds: Annotated[float, Meta(ge=10, le=30 * DAY_MS / 1_000)] | None = None


class CreateQueueRequest(NewQueue, frozen=True, kw_only=True):
    """Create a queue."""


class UpdateQueueConfigRequest(RequestModel, frozen=True, kw_only=True):
    """Change settings of a queue; workers follow at once."""

    name: Queue
    settings: QueueSettingsRequest = field(default_factory=QueueSettingsRequest)


class DeleteQueueRequest(RequestModel, frozen=True, kw_only=True):
    """Delete a queue; with `force` although it has jobs, which go to the dead letters."""

    name: Queue
    force: bool = False


class PauseQueueRequest(RequestModel, frozen=True, kw_only=True):
    """Pause a queue: no more jobs are claimed, new ones are accepted."""

    name: Queue


class ResumeQueueRequest(RequestModel, frozen=True, kw_only=True):
    """Resume a paused or draining queue."""

    name: Queue


class DrainQueueRequest(RequestModel, frozen=True, kw_only=True):
    """Drain a queue: new jobs are refused, present ones are still run."""

    name: Queue


class PurgeQueueRequest(FilterRequest, frozen=True, kw_only=True):
    """Delete waiting jobs of a queue, or those that a filter matches; running jobs stay."""

    name: Queue


class RequeueTasksRequest(FilterRequest, frozen=True, kw_only=True):
    """Revive dead and cancelled jobs of a queue."""

    name: Queue


# Operators: jobs


class SearchTasksRequest(SearchRequest, frozen=True, kw_only=True):
    """List matching jobs, newest first."""


class BulkTasksRequest(BulkRequest, frozen=True, kw_only=True):
    """Cancel, revive or delete all matching jobs, or count them."""


class DeleteTaskRequest(RequestModel, frozen=True, kw_only=True):
    """Delete a job that is not running, with its history."""

    id: JobId


class ReviveTaskRequest(ReviveRequest, frozen=True, kw_only=True):
    """Revive a dead or cancelled job."""

    id: JobId


class ReplayTaskRequest(ReplayRequest, frozen=True, kw_only=True):
    """Enqueue a copy of an earlier job, optionally with other arguments."""

    id: JobId


class ListDeadLetterTasksRequest(SearchRequest, frozen=True, kw_only=True):
    """List matching dead letters, newest first."""


class RequeueFromDeadLetterRequest(DeadLetterRequest, frozen=True, kw_only=True):
    """Revive matching dead letters."""


class PurgeDeadLetterQueueRequest(DeadLetterRequest, frozen=True, kw_only=True):
    """Delete matching dead letters."""


class ListFailureGroupsRequest(FailureGroupsRequest, frozen=True, kw_only=True):
    """Group dead letters by error, largest group first."""


class StartGradualReviveRequest(GradualReviveRequest, frozen=True, kw_only=True):
    """Start to revive dead letters in growing batches, until too many fail again."""


class ListGradualRevivesRequest(RequestModel, frozen=True, kw_only=True):
    """List gradual revives, newest first."""


class GetGradualReviveRequest(RequestModel, frozen=True, kw_only=True):
    """Show the progress of a gradual revive."""

    name: GradualReviveName


class PauseGradualReviveRequest(RequestModel, frozen=True, kw_only=True):
    """Pause a gradual revive: no further batch starts until it is resumed."""

    name: GradualReviveName


class ResumeGradualReviveRequest(RequestModel, frozen=True, kw_only=True):
    """Resume a gradual revive that was paused or has stopped."""

    name: GradualReviveName


class StopGradualReviveRequest(RequestModel, frozen=True, kw_only=True):
    """End a gradual revive; revived jobs stay in their queues."""

    name: GradualReviveName


# Operators: schedules, workers, limits


class ListSchedulesRequest(RequestModel, frozen=True, kw_only=True):
    """List schedules by name."""


class GetScheduleRequest(RequestModel, frozen=True, kw_only=True):
    """Show a schedule with its next run."""

    name: Name


class SaveScheduleRequest(ScheduleRequest, frozen=True, kw_only=True):
    """Create or change a schedule."""

    name: Name


class PreviewScheduleRequest(ScheduleRequest, frozen=True, kw_only=True):
    """Return the next runs of such a schedule; nothing is saved."""

    name: Name
    runs: Annotated[int, Meta(ge=1, le=100)] = 5


class RemoveScheduleRequest(RequestModel, frozen=True, kw_only=True):
    """Remove a schedule with its history; its jobs stay."""

    name: Name


class PauseScheduleRequest(RequestModel, frozen=True, kw_only=True):
    """Pause a schedule: no further runs are enqueued."""

    name: Name


class ResumeScheduleRequest(RequestModel, frozen=True, kw_only=True):
    """Resume a schedule from now on."""

    name: Name


class FireScheduleRequest(RequestModel, frozen=True, kw_only=True):
    """Enqueue the job of a schedule now."""

    name: Name


class ListScheduleRunsRequest(RequestModel, frozen=True, kw_only=True):
    """List the runs of a schedule, newest first."""

    name: Name
    limit: Annotated[int, Meta(ge=1, le=100)] = 100


class ListWorkersRequest(RequestModel, frozen=True, kw_only=True):
    """List workers with their state; with `with_dead` dead ones too."""

    with_dead: bool = False


class SendCommandRequest(CommandRequest, frozen=True, kw_only=True):
    """Send a command to the named workers, or to `all_workers`: pause, resume, stop, drain, halt or
    stacks."""

    all_workers: bool = False

    def to_command_request(self) -> CommandRequest:
        """Return the request as HTTP has it. An empty list means no worker, not every worker."""
        if self.all_workers is bool(self.workers):
            raise InvalidJob("name workers, or say all_workers", field="workers")
        return replace(self, workers=None) if self.all_workers else self


class GetCommandsRequest(RequestModel, frozen=True, kw_only=True):
    """Show commands with the responses of their workers."""

    ids: Annotated[list[str], Meta(min_length=1, max_length=100)]


class ListLimitsRequest(RequestModel, frozen=True, kw_only=True):
    """List limits with their usage, by scope."""


class SetLimitRequest(LimitRequest, frozen=True, kw_only=True):
    """Set the limit of a scope."""


class RemoveLimitRequest(RequestModel, frozen=True, kw_only=True):
    """Remove the limit of a scope."""

    scope: Annotated[str, Meta(min_length=1, max_length=200)]


# Administrators: API keys, the audit log

KeyName = Annotated[str, Meta(pattern=KEY_NAME)]


class ListKeysRequest(RequestModel, frozen=True, kw_only=True):
    """List API keys, without their secrets."""


class GetKeyRequest(RequestModel, frozen=True, kw_only=True):
    """Show an API key."""

    name: KeyName


class CreateKeyRequest(KeyRequest, frozen=True, kw_only=True):
    """Create an API key; its token is returned this once."""


class RotateKeyRequest(RotateRequest, frozen=True, kw_only=True):
    """Give an API key a new secret; the new token is returned this once."""

    name: KeyName


class RevokeKeyRequest(RequestModel, frozen=True, kw_only=True):
    """Revoke an API key; servers reject it within five seconds."""

    name: KeyName


class SearchAuditRequest(AuditRequest, frozen=True, kw_only=True):
    """Search the audit log, newest first, with the values before and after each change."""


class VerifyAuditRequest(AuditCheckRequest, frozen=True, kw_only=True):
    """Check that no entry of the audit log was changed or removed."""
