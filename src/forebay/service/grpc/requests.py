"""What each method is asked with: the shapes of the service, with what HTTP has in its addresses.

A method is called as its request is, and the first line of the request says what it does. Its message has the
same name, and the same fields under numbers that the committed .proto file keeps (tools/proto.py).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field
from msgspec.structs import replace

from forebay.domain.job import DAY_MS
from forebay.errors import InvalidJob
from forebay.operations.queue_stats import DEFAULT_WINDOW_MS, MAX_WINDOW_MS
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
from forebay.service.schema.claims import (
    AckRequest,
    ClaimCriteria,
    ClaimRequest,
    ExtendRequest,
    NackRequest,
    SettleRequest,
)
from forebay.service.schema.claims import HeartbeatRequest as Heartbeat
from forebay.service.schema.dead_letters import (
    DeadLetterRequest,
    FailureGroupsRequest,
    GradualReviveName,
    GradualReviveRequest,
)
from forebay.service.schema.jobs import CancelRequest, EnqueueManyRequest, UpdateJobRequest
from forebay.service.schema.jobs import EnqueueRequest as NewJob
from forebay.service.schema.keys import KEY_NAME, KeyRequest, RotateRequest
from forebay.service.schema.limits import LimitRequest
from forebay.service.schema.queues import CreateQueueRequest as NewQueue
from forebay.service.schema.queues import QueueSettingsRequest
from forebay.service.schema.schedules import ScheduleRequest
from forebay.service.schema.search import (
    BulkRequest,
    FilterRequest,
    ReplayRequest,
    ReviveRequest,
    SearchRequest,
)
from forebay.service.schema.workers import CommandRequest

Name = Annotated[str, Meta(min_length=1, max_length=100, pattern="^[^\\x00-\\x1f\\x7f]*$")]
WindowSeconds = Annotated[float, Meta(ge=10, le=MAX_WINDOW_MS / 1_000)]
PageSize = Annotated[int, Meta(ge=1, le=1_000)]

# Producers


class EnqueueRequest(RequestModel, frozen=True, kw_only=True):
    """Ask for a job."""

    job: NewJob
    with_position: bool = False


class EnqueueBatchRequest(EnqueueManyRequest, frozen=True, kw_only=True):
    """Ask for several jobs, in one or several queues: all or none, or without `atomic` those that can be."""


class GetTaskStatusRequest(RequestModel, frozen=True, kw_only=True):
    """Show a job with its attempts and with what depends on it."""

    id: JobId


class WaitForCompletionRequest(RequestModel, frozen=True, kw_only=True):
    """Show a job when it has ended, or as it is when the time is up."""

    id: JobId
    timeout_seconds: WaitSeconds = LONGEST_WAIT_SECONDS


class WatchTaskRequest(RequestModel, frozen=True, kw_only=True):
    """Show a job now, and again whenever something has happened to it, until it has ended."""

    id: JobId


class GetTaskGraphRequest(RequestModel, frozen=True, kw_only=True):
    """Show the jobs around one that wait for each other."""

    id: JobId
    limit: Annotated[int, Meta(ge=1, le=500)] = 200


class GetTaskResultRequest(RequestModel, frozen=True, kw_only=True):
    """Give what a completed job has returned."""

    id: JobId


class CancelTaskRequest(CancelRequest, frozen=True, kw_only=True):
    """Cancel a job that waits; ask one that runs to stop."""

    id: JobId


class UpdateTaskPriorityRequest(UpdateJobRequest, frozen=True, kw_only=True):
    """Change the priority, time, metadata or queue of a job that waits; what is left out stays."""

    id: JobId


# Consumers


class DequeueRequest(ClaimCriteria, frozen=True, kw_only=True):
    """Take a job to run, and a lease on it; wait for one if there is none."""

    wait_seconds: WaitSeconds = LONGEST_WAIT_SECONDS


class DequeueBatchRequest(ClaimRequest, frozen=True, kw_only=True):
    """Take up to `most` jobs to run, and a lease on each; wait for some if there are none."""


class DequeueStreamRequest(ClaimCriteria, frozen=True, kw_only=True):
    """Take jobs as they come, until the call is cancelled; at most `window` of them that are not settled."""

    window: PageSize = 10


class AckTaskRequest(AckRequest, frozen=True, kw_only=True):
    """Say that a job is done."""

    id: JobId


class NackTaskRequest(NackRequest, frozen=True, kw_only=True):
    """Say that an attempt failed. It is tried again, or, without `requeue`, goes to the dead letters."""

    id: JobId


class SettleTasksRequest(SettleRequest, frozen=True, kw_only=True):
    """Say how several jobs ended; each is answered for itself."""


class HeartbeatRequest(Heartbeat, frozen=True, kw_only=True):
    """Keep a job for longer, and say how far it is."""

    id: JobId


class ExtendVisibilityRequest(ExtendRequest, frozen=True, kw_only=True):
    """Let a lease end later than it would."""

    id: JobId


class PeekNextRequest(RequestModel, frozen=True, kw_only=True):
    """Show the jobs that would be claimed next, and take none."""

    queue: Queue
    limit: PageSize = 10


# Operators: queues


class ListQueuesRequest(RequestModel, frozen=True, kw_only=True):
    """List the queues with their jobs by state."""


class GetQueueRequest(RequestModel, frozen=True, kw_only=True):
    """Show a queue with its settings and its jobs by state."""

    name: Queue


class GetQueueMetricsRequest(RequestModel, frozen=True, kw_only=True):
    """Show what a queue has done lately."""

    queue: Queue
    window_seconds: WindowSeconds = DEFAULT_WINDOW_MS / 1_000


class ListQueueMetricsRequest(RequestModel, frozen=True, kw_only=True):
    """Show what all queues have done lately."""

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
    """Close a queue for good; by `force` though it has jobs, which go to the dead letters."""

    name: Queue
    force: bool = False


class PauseQueueRequest(RequestModel, frozen=True, kw_only=True):
    """Give out no more jobs of a queue; it goes on taking new ones."""

    name: Queue


class ResumeQueueRequest(RequestModel, frozen=True, kw_only=True):
    """Make a paused or draining queue active again."""

    name: Queue


class DrainQueueRequest(RequestModel, frozen=True, kw_only=True):
    """Take no new jobs and let the others be worked off."""

    name: Queue


class PurgeQueueRequest(FilterRequest, frozen=True, kw_only=True):
    """Delete jobs that wait in a queue, or those that a filter names; running ones stay."""

    name: Queue


class RequeueTasksRequest(FilterRequest, frozen=True, kw_only=True):
    """Put dead and cancelled jobs of a queue back."""

    name: Queue


# Operators: jobs


class SearchTasksRequest(SearchRequest, frozen=True, kw_only=True):
    """List jobs that fit, newest first."""


class BulkTasksRequest(BulkRequest, frozen=True, kw_only=True):
    """Cancel, revive or delete all jobs that fit, or say how many they are."""


class DeleteTaskRequest(RequestModel, frozen=True, kw_only=True):
    """Remove a job that does not run, with its history."""

    id: JobId


class ReviveTaskRequest(ReviveRequest, frozen=True, kw_only=True):
    """Put a dead or cancelled job back."""

    id: JobId


class ReplayTaskRequest(ReplayRequest, frozen=True, kw_only=True):
    """Enqueue a new job like an earlier one, with other arguments if you like."""

    id: JobId


class ListDeadLetterTasksRequest(SearchRequest, frozen=True, kw_only=True):
    """List dead letters, newest first."""


class RequeueFromDeadLetterRequest(DeadLetterRequest, frozen=True, kw_only=True):
    """Put the dead letters that fit back."""


class PurgeDeadLetterQueueRequest(DeadLetterRequest, frozen=True, kw_only=True):
    """Delete the dead letters that fit for good."""


class ListFailureGroupsRequest(FailureGroupsRequest, frozen=True, kw_only=True):
    """Show dead letters by what they died of, the largest group first."""


class StartGradualReviveRequest(GradualReviveRequest, frozen=True, kw_only=True):
    """Begin to put dead letters back in batches that grow, until too many die again."""


class ListGradualRevivesRequest(RequestModel, frozen=True, kw_only=True):
    """List ramps, the newest first."""


class GetGradualReviveRequest(RequestModel, frozen=True, kw_only=True):
    """Show how far a ramp has come."""

    name: GradualReviveName


class PauseGradualReviveRequest(RequestModel, frozen=True, kw_only=True):
    """Put no more dead letters back until the ramp is resumed."""

    name: GradualReviveName


class ResumeGradualReviveRequest(RequestModel, frozen=True, kw_only=True):
    """Go on with a ramp that was paused or has stopped."""

    name: GradualReviveName


class StopGradualReviveRequest(RequestModel, frozen=True, kw_only=True):
    """End a ramp; what was put back goes on."""

    name: GradualReviveName


# Operators: schedules, workers, limits


class ListSchedulesRequest(RequestModel, frozen=True, kw_only=True):
    """List schedules by name."""


class GetScheduleRequest(RequestModel, frozen=True, kw_only=True):
    """Show a schedule with its next run."""

    name: Name


class SaveScheduleRequest(ScheduleRequest, frozen=True, kw_only=True):
    """Make a schedule, or change what it does and when."""

    name: Name


class PreviewScheduleRequest(ScheduleRequest, frozen=True, kw_only=True):
    """Say when such a schedule would run next; nothing is saved."""

    name: Name
    runs: Annotated[int, Meta(ge=1, le=100)] = 5


class RemoveScheduleRequest(RequestModel, frozen=True, kw_only=True):
    """Forget a schedule with its history; its jobs stay."""

    name: Name


class PauseScheduleRequest(RequestModel, frozen=True, kw_only=True):
    """Enqueue no more of its jobs."""

    name: Name


class ResumeScheduleRequest(RequestModel, frozen=True, kw_only=True):
    """Let it go on from now."""

    name: Name


class FireScheduleRequest(RequestModel, frozen=True, kw_only=True):
    """Enqueue its job now."""

    name: Name


class ListScheduleRunsRequest(RequestModel, frozen=True, kw_only=True):
    """List what became of the runs of a schedule, newest first."""

    name: Name
    limit: Annotated[int, Meta(ge=1, le=100)] = 100


class ListWorkersRequest(RequestModel, frozen=True, kw_only=True):
    """List workers with their state; with `with_dead` those that have died too."""

    with_dead: bool = False


class SendCommandRequest(CommandRequest, frozen=True, kw_only=True):
    """Ask workers to pause, resume, stop, or say what their threads do: those named, or `all_workers`."""

    all_workers: bool = False

    def to_command_request(self) -> CommandRequest:
        """The same as HTTP has it. A list that happens to be empty is nobody, and not everybody."""
        if self.all_workers is bool(self.workers):
            raise InvalidJob("name workers, or say all_workers", field="workers")
        return replace(self, workers=None) if self.all_workers else self


class GetCommandsRequest(RequestModel, frozen=True, kw_only=True):
    """Show what came of commands."""

    ids: Annotated[list[str], Meta(min_length=1, max_length=100)]


class ListLimitsRequest(RequestModel, frozen=True, kw_only=True):
    """List limits by scope."""


class SetLimitRequest(LimitRequest, frozen=True, kw_only=True):
    """Set the limit of a scope."""


class RemoveLimitRequest(RequestModel, frozen=True, kw_only=True):
    """Remove the limit of a scope."""

    scope: Annotated[str, Meta(min_length=1, max_length=200)]


# Administrators: API keys, the audit log

KeyName = Annotated[str, Meta(pattern=KEY_NAME)]


class ListKeysRequest(RequestModel, frozen=True, kw_only=True):
    """List the API keys, without their secrets."""


class GetKeyRequest(RequestModel, frozen=True, kw_only=True):
    """Show what an API key is for."""

    name: KeyName


class CreateKeyRequest(KeyRequest, frozen=True, kw_only=True):
    """Make an API key, and tell its token this once."""


class RotateKeyRequest(RotateRequest, frozen=True, kw_only=True):
    """Give an API key another secret, and tell its new token this once."""

    name: KeyName


class RevokeKeyRequest(RequestModel, frozen=True, kw_only=True):
    """Let an API key open nothing any more; servers know within five seconds."""

    name: KeyName


class SearchAuditRequest(AuditRequest, frozen=True, kw_only=True):
    """List who did what, newest first, with what was before and what is after."""


class VerifyAuditRequest(AuditCheckRequest, frozen=True, kw_only=True):
    """Check that no line of the audit log was changed or removed."""
