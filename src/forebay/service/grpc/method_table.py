"""Method table: the permission function, request type and response type of each gRPC method."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from forebay.service.grpc import alert_request_messages, request_messages
from forebay.service.permissions import (
    alerts,
    api_keys,
    audit,
    concurrency_and_rate_limits,
    dead_letters,
    gradual_revives,
    job_claims,
    jobs,
    metrics,
    queues,
    schedules,
    workers_and_commands,
)
from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.schema.alerts import (
    AlertList,
    AlertRuleList,
    AlertRuleView,
    AlertView,
    ChannelList,
    ChannelView,
)
from forebay.service.schema.api_keys import KeyList, KeyView, KeyWithToken
from forebay.service.schema.audit import AuditCheckResponse, AuditResponse
from forebay.service.schema.base import ChangeResponse, RequestModel, ResponseModel
from forebay.service.schema.concurrency_and_rate_limits import LimitList, LimitView
from forebay.service.schema.dead_letters import FailureGroupList
from forebay.service.schema.gradual_revives import GradualReviveList, GradualReviveView
from forebay.service.schema.job_admin import BulkResponse
from forebay.service.schema.job_claims import (
    ClaimedJob,
    ClaimRequest,
    ClaimResponse,
    HeartbeatResponse,
    SettleResponse,
    SettleResult,
)
from forebay.service.schema.job_views import GraphView, JobList, JobView, PeekResponse
from forebay.service.schema.metrics import QueueMetrics, QueueMetricsList, SeriesResponse
from forebay.service.schema.producer_jobs import (
    ActionResponse,
    EnqueueBatchResponse,
    EnqueueResponse,
    ResultResponse,
)
from forebay.service.schema.queues import DropResponse, QueueList, QueueView
from forebay.service.schema.schedules import PreviewResponse, ScheduleList, ScheduleRunList, ScheduleView
from forebay.service.schema.workers_and_commands import CommandList, WorkerList

Request = TypeVar("Request", bound=RequestModel)
Response = TypeVar("Response", bound=ResponseModel)


class MethodSpec(NamedTuple):
    """gRPC method with exactly one of `call` and `stream`. `wait_field` is the request's wait, which must not
    exceed the deadline of the call."""

    request_type: type[RequestModel]
    response_type: type[ResponseModel]
    call: Callable[[AuthorizedRequest, Any], Awaitable[ResponseModel]] | None = None
    stream: Callable[[AuthorizedRequest, Any], AsyncGenerator[ResponseModel, None]] | None = None
    wait_field: str | None = None

    @property
    def name(self) -> str:
        return self.request_type.__name__.removesuffix("Request")


def unary_method(
    request_type: type[Request],
    response_type: type[Response],
    call: Callable[[AuthorizedRequest, Request], Awaitable[Response]],
    wait_field: str | None = None,
) -> MethodSpec:
    """Return a method with one response."""
    return MethodSpec(request_type, response_type, call=call, wait_field=wait_field)


def stream_method(
    request_type: type[Request],
    response_type: type[Response],
    stream: Callable[[AuthorizedRequest, Request], AsyncGenerator[Response, None]],
) -> MethodSpec:
    """Return a method with a stream of responses."""
    return MethodSpec(request_type, response_type, stream=stream)


def _dequeue(permit: AuthorizedRequest, data: request_messages.DequeueRequest) -> Awaitable[ClaimResponse]:
    request = ClaimRequest(
        queues=data.queues,
        tasks=data.tasks,
        lease_seconds=data.lease_seconds,
        wait_seconds=data.wait_seconds,
    )
    return job_claims.claim(permit, request)


PRODUCER: Final = (
    unary_method(
        request_messages.EnqueueRequest,
        EnqueueResponse,
        lambda permit, data: jobs.enqueue(permit, data.job, with_position=data.with_position),
    ),
    unary_method(request_messages.EnqueueBatchRequest, EnqueueBatchResponse, jobs.enqueue_many),
    unary_method(
        request_messages.GetTaskStatusRequest, JobView, lambda permit, data: jobs.job(permit, data.id)
    ),
    unary_method(
        request_messages.WaitForCompletionRequest,
        JobView,
        lambda permit, data: jobs.wait(permit, data.id, data.timeout_seconds),
        wait_field="timeout_seconds",
    ),
    stream_method(
        request_messages.WatchTaskRequest, JobView, lambda permit, data: jobs.watch(permit, data.id)
    ),
    unary_method(
        request_messages.GetTaskGraphRequest,
        GraphView,
        lambda permit, data: jobs.graph(permit, data.id, data.limit),
    ),
    unary_method(
        request_messages.GetTaskResultRequest,
        ResultResponse,
        lambda permit, data: jobs.result(permit, data.id),
    ),
    unary_method(
        request_messages.CancelTaskRequest,
        ActionResponse,
        lambda permit, data: jobs.cancel(permit, data.id, data),
    ),
    unary_method(
        request_messages.UpdateTaskPriorityRequest,
        ActionResponse,
        lambda permit, data: jobs.update_job(permit, data.id, data),
    ),
)

CONSUMER: Final = (
    unary_method(request_messages.DequeueRequest, ClaimResponse, _dequeue, wait_field="wait_seconds"),
    unary_method(
        request_messages.DequeueBatchRequest, ClaimResponse, job_claims.claim, wait_field="wait_seconds"
    ),
    stream_method(
        request_messages.DequeueStreamRequest,
        ClaimedJob,
        lambda permit, data: job_claims.stream(permit, data, data.window),
    ),
    unary_method(
        request_messages.AckTaskRequest,
        SettleResult,
        lambda permit, data: job_claims.ack(permit, data.id, data),
    ),
    unary_method(
        request_messages.NackTaskRequest,
        SettleResult,
        lambda permit, data: job_claims.nack(permit, data.id, data),
    ),
    unary_method(request_messages.SettleTasksRequest, SettleResponse, job_claims.settle),
    unary_method(
        request_messages.HeartbeatRequest,
        HeartbeatResponse,
        lambda permit, data: job_claims.heartbeat(permit, data.id, data),
    ),
    unary_method(
        request_messages.ExtendVisibilityRequest,
        HeartbeatResponse,
        lambda permit, data: job_claims.extend(permit, data.id, data),
    ),
    unary_method(
        request_messages.PeekNextRequest,
        PeekResponse,
        lambda permit, data: job_claims.peek(permit, data.queue, data.limit),
    ),
)

ADMIN: Final = (
    unary_method(request_messages.ListQueuesRequest, QueueList, lambda permit, _: queues.queues(permit)),
    unary_method(
        request_messages.GetQueueRequest, QueueView, lambda permit, data: queues.queue(permit, data.name)
    ),
    unary_method(
        request_messages.GetQueueMetricsRequest,
        QueueMetrics,
        lambda permit, data: metrics.queue_metrics(permit, data.queue, data.window_seconds),
    ),
    unary_method(
        request_messages.ListQueueMetricsRequest,
        QueueMetricsList,
        lambda permit, data: metrics.all_metrics(permit, data.window_seconds),
    ),
    unary_method(
        request_messages.GetQueueMetricsTimeSeriesRequest,
        SeriesResponse,
        lambda permit, data: metrics.metric_series(
            permit,
            data.metrics,
            queue=data.queue,
            task=data.task,
            start=data.start,
            end=data.end,
            resolution_seconds=data.resolution_seconds,
        ),
    ),
    unary_method(request_messages.CreateQueueRequest, QueueView, queues.create_queue),
    unary_method(
        request_messages.UpdateQueueConfigRequest,
        QueueView,
        lambda permit, data: queues.configure_queue(permit, data.name, data.settings),
    ),
    unary_method(
        request_messages.DeleteQueueRequest,
        DropResponse,
        lambda permit, data: queues.delete_queue(permit, data.name, force=data.force),
    ),
    unary_method(
        request_messages.PauseQueueRequest,
        QueueView,
        lambda permit, data: queues.pause_queue(permit, data.name),
    ),
    unary_method(
        request_messages.ResumeQueueRequest,
        QueueView,
        lambda permit, data: queues.resume_queue(permit, data.name),
    ),
    unary_method(
        request_messages.DrainQueueRequest,
        QueueView,
        lambda permit, data: queues.drain_queue(permit, data.name),
    ),
    unary_method(
        request_messages.PurgeQueueRequest,
        BulkResponse,
        lambda permit, data: queues.purge_queue(permit, data.name, data),
    ),
    unary_method(
        request_messages.RequeueTasksRequest,
        BulkResponse,
        lambda permit, data: queues.requeue(permit, data.name, data),
    ),
    unary_method(request_messages.SearchTasksRequest, JobList, jobs.search),
    unary_method(request_messages.BulkTasksRequest, BulkResponse, jobs.bulk),
    unary_method(
        request_messages.DeleteTaskRequest,
        ActionResponse,
        lambda permit, data: jobs.delete_job(permit, data.id),
    ),
    unary_method(
        request_messages.ReviveTaskRequest,
        ActionResponse,
        lambda permit, data: jobs.revive(permit, data.id, data),
    ),
    unary_method(
        request_messages.ReplayTaskRequest,
        EnqueueResponse,
        lambda permit, data: jobs.replay(permit, data.id, data),
    ),
    unary_method(request_messages.ListDeadLetterTasksRequest, JobList, dead_letters.dead_letters),
    unary_method(request_messages.RequeueFromDeadLetterRequest, BulkResponse, dead_letters.revive_dead),
    unary_method(request_messages.PurgeDeadLetterQueueRequest, BulkResponse, dead_letters.purge_dead),
    unary_method(request_messages.ListFailureGroupsRequest, FailureGroupList, dead_letters.failure_groups),
    unary_method(
        request_messages.StartGradualReviveRequest, GradualReviveView, gradual_revives.start_gradual_revive
    ),
    unary_method(
        request_messages.ListGradualRevivesRequest,
        GradualReviveList,
        lambda permit, _: gradual_revives.gradual_revives(permit),
    ),
    unary_method(
        request_messages.GetGradualReviveRequest,
        GradualReviveView,
        lambda permit, data: gradual_revives.gradual_revive(permit, data.name),
    ),
    unary_method(
        request_messages.PauseGradualReviveRequest,
        GradualReviveView,
        lambda permit, data: gradual_revives.pause_gradual_revive(permit, data.name),
    ),
    unary_method(
        request_messages.ResumeGradualReviveRequest,
        GradualReviveView,
        lambda permit, data: gradual_revives.resume_gradual_revive(permit, data.name),
    ),
    unary_method(
        request_messages.StopGradualReviveRequest,
        GradualReviveView,
        lambda permit, data: gradual_revives.stop_gradual_revive(permit, data.name),
    ),
    unary_method(
        request_messages.ListSchedulesRequest, ScheduleList, lambda permit, _: schedules.schedules(permit)
    ),
    unary_method(
        request_messages.GetScheduleRequest,
        ScheduleView,
        lambda permit, data: schedules.schedule(permit, data.name),
    ),
    unary_method(
        request_messages.SaveScheduleRequest,
        ScheduleView,
        lambda permit, data: schedules.save_schedule(permit, data.name, data),
    ),
    unary_method(
        request_messages.PreviewScheduleRequest,
        PreviewResponse,
        lambda permit, data: schedules.preview_schedule(permit, data.name, data, data.runs),
    ),
    unary_method(
        request_messages.RemoveScheduleRequest,
        ChangeResponse,
        lambda permit, data: schedules.remove_schedule(permit, data.name),
    ),
    unary_method(
        request_messages.PauseScheduleRequest,
        ScheduleView,
        lambda permit, data: schedules.pause_schedule(permit, data.name),
    ),
    unary_method(
        request_messages.ResumeScheduleRequest,
        ScheduleView,
        lambda permit, data: schedules.resume_schedule(permit, data.name),
    ),
    unary_method(
        request_messages.FireScheduleRequest,
        EnqueueResponse,
        lambda permit, data: schedules.fire_schedule(permit, data.name),
    ),
    unary_method(
        request_messages.ListScheduleRunsRequest,
        ScheduleRunList,
        lambda permit, data: schedules.schedule_runs(permit, data.name, data.limit),
    ),
    unary_method(
        request_messages.ListWorkersRequest,
        WorkerList,
        lambda permit, data: workers_and_commands.workers(permit, active_only=not data.with_dead),
    ),
    unary_method(
        request_messages.SendCommandRequest,
        CommandList,
        lambda permit, data: workers_and_commands.command(permit, data.to_command_request()),
    ),
    unary_method(
        request_messages.GetCommandsRequest,
        CommandList,
        lambda permit, data: workers_and_commands.commands(permit, data.ids),
    ),
    unary_method(
        request_messages.ListLimitsRequest,
        LimitList,
        lambda permit, _: concurrency_and_rate_limits.limits(permit),
    ),
    unary_method(request_messages.SetLimitRequest, LimitView, concurrency_and_rate_limits.set_limit),
    unary_method(
        request_messages.RemoveLimitRequest,
        ChangeResponse,
        lambda permit, data: concurrency_and_rate_limits.remove_limit(permit, data.scope),
    ),
    unary_method(
        alert_request_messages.ListAlertsRequest,
        AlertList,
        lambda permit, data: alerts.alerts(
            permit,
            severity=data.severity,
            acknowledged=data.acknowledged,
            include_all=data.all,
            active=data.active,
            limit=data.limit,
        ),
    ),
    unary_method(alert_request_messages.TriggerAlertRequest, AlertView, alerts.trigger_alert),
    unary_method(
        alert_request_messages.AcknowledgeAlertRequest,
        AlertView,
        lambda permit, data: alerts.acknowledge_alert(permit, data.id),
    ),
    unary_method(
        alert_request_messages.ResolveAlertRequest,
        AlertView,
        lambda permit, data: alerts.resolve_alert(permit, data.id),
    ),
    unary_method(
        alert_request_messages.ListAlertRulesRequest,
        AlertRuleList,
        lambda permit, _: alerts.alert_rules(permit),
    ),
    unary_method(alert_request_messages.CreateAlertRuleRequest, AlertRuleView, alerts.create_alert_rule),
    unary_method(
        alert_request_messages.SaveAlertRuleRequest,
        AlertRuleView,
        lambda permit, data: alerts.save_alert_rule(permit, data.id, data),
    ),
    unary_method(
        alert_request_messages.RemoveAlertRuleRequest,
        ChangeResponse,
        lambda permit, data: alerts.remove_alert_rule(permit, data.id),
    ),
    unary_method(
        alert_request_messages.ListAlertChannelsRequest,
        ChannelList,
        lambda permit, _: alerts.alert_channels(permit),
    ),
    unary_method(
        alert_request_messages.SaveAlertChannelRequest,
        ChannelView,
        lambda permit, data: alerts.save_alert_channel(permit, data.name, data),
    ),
    unary_method(
        alert_request_messages.RemoveAlertChannelRequest,
        ChangeResponse,
        lambda permit, data: alerts.remove_alert_channel(permit, data.name),
    ),
    unary_method(request_messages.ListKeysRequest, KeyList, lambda permit, _: api_keys.keys(permit)),
    unary_method(
        request_messages.GetKeyRequest, KeyView, lambda permit, data: api_keys.key(permit, data.name)
    ),
    unary_method(request_messages.CreateKeyRequest, KeyWithToken, api_keys.create_key),
    unary_method(
        request_messages.RotateKeyRequest,
        KeyWithToken,
        lambda permit, data: api_keys.rotate_key(permit, data.name, data),
    ),
    unary_method(
        request_messages.RevokeKeyRequest,
        KeyView,
        lambda permit, data: api_keys.revoke_key(permit, data.name),
    ),
    unary_method(request_messages.SearchAuditRequest, AuditResponse, audit.audit),
    unary_method(request_messages.VerifyAuditRequest, AuditCheckResponse, audit.check_audit),
)

SERVICES: Final[Mapping[str, tuple[MethodSpec, ...]]] = {
    "Producer": PRODUCER,
    "Consumer": CONSUMER,
    "Admin": ADMIN,
}
