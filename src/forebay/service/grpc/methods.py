"""One table: which operation a method calls, what it is asked with and what it answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from forebay.service.grpc import alert_requests as about
from forebay.service.grpc import requests as asked
from forebay.service.permitting import (
    administering,
    alerting,
    consuming,
    keeping,
    measuring,
    producing,
    reviving,
    steering,
)
from forebay.service.permitting.permit import AuthorizedRequest
from forebay.service.schema import alerting as alerts
from forebay.service.schema import consuming as jobs
from forebay.service.schema import keeping as kept
from forebay.service.schema import looking, metrics, queues, searching
from forebay.service.schema import producing as new
from forebay.service.schema import reviving as revived
from forebay.service.schema import steering as steered
from forebay.service.schema.shared import RequestModel, ResponseModel

Request = TypeVar("Request", bound=RequestModel)
Response = TypeVar("Response", bound=ResponseModel)


class MethodSpec(NamedTuple):
    """Exactly one of `call` and `stream` is there. `waits` is the field that says how long the answer may
    take: never longer than the deadline of the call leaves."""

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
    """A method that is answered once."""
    return MethodSpec(request_type, response_type, call=call, wait_field=wait_field)


def stream_method(
    request_type: type[Request],
    response_type: type[Response],
    stream: Callable[[AuthorizedRequest, Request], AsyncGenerator[Response, None]],
) -> MethodSpec:
    """A method that is answered again and again."""
    return MethodSpec(request_type, response_type, stream=stream)


def _dequeue(permit: AuthorizedRequest, data: asked.DequeueRequest) -> Awaitable[jobs.ClaimResponse]:
    wanted = jobs.ClaimRequest(
        queues=data.queues,
        tasks=data.tasks,
        lease_seconds=data.lease_seconds,
        wait_seconds=data.wait_seconds,
    )
    return consuming.claim(permit, wanted)


PRODUCER: Final = (
    unary_method(
        asked.EnqueueRequest,
        new.EnqueueResponse,
        lambda permit, data: producing.enqueue(permit, data.job, with_position=data.with_position),
    ),
    unary_method(asked.EnqueueBatchRequest, new.EnqueueBatchResponse, producing.enqueue_many),
    unary_method(
        asked.GetTaskStatusRequest, looking.JobView, lambda permit, data: producing.job(permit, data.id)
    ),
    unary_method(
        asked.WaitForCompletionRequest,
        looking.JobView,
        lambda permit, data: producing.wait(permit, data.id, data.timeout_seconds),
        wait_field="timeout_seconds",
    ),
    stream_method(
        asked.WatchTaskRequest, looking.JobView, lambda permit, data: producing.watch(permit, data.id)
    ),
    unary_method(
        asked.GetTaskGraphRequest,
        looking.GraphView,
        lambda permit, data: producing.graph(permit, data.id, data.limit),
    ),
    unary_method(
        asked.GetTaskResultRequest, new.ResultResponse, lambda permit, data: producing.result(permit, data.id)
    ),
    unary_method(
        asked.CancelTaskRequest,
        new.ActionResponse,
        lambda permit, data: producing.cancel(permit, data.id, data),
    ),
    unary_method(
        asked.UpdateTaskPriorityRequest,
        new.ActionResponse,
        lambda permit, data: producing.update_job(permit, data.id, data),
    ),
)

CONSUMER: Final = (
    unary_method(asked.DequeueRequest, jobs.ClaimResponse, _dequeue, wait_field="wait_seconds"),
    unary_method(asked.DequeueBatchRequest, jobs.ClaimResponse, consuming.claim, wait_field="wait_seconds"),
    stream_method(
        asked.DequeueStreamRequest,
        jobs.ClaimedJob,
        lambda permit, data: consuming.stream(permit, data, data.window),
    ),
    unary_method(
        asked.AckTaskRequest, jobs.SettleResult, lambda permit, data: consuming.ack(permit, data.id, data)
    ),
    unary_method(
        asked.NackTaskRequest, jobs.SettleResult, lambda permit, data: consuming.nack(permit, data.id, data)
    ),
    unary_method(asked.SettleTasksRequest, jobs.SettleResponse, consuming.settle),
    unary_method(
        asked.HeartbeatRequest,
        jobs.HeartbeatResponse,
        lambda permit, data: consuming.heartbeat(permit, data.id, data),
    ),
    unary_method(
        asked.ExtendVisibilityRequest,
        jobs.HeartbeatResponse,
        lambda permit, data: consuming.extend(permit, data.id, data),
    ),
    unary_method(
        asked.PeekNextRequest,
        looking.PeekResponse,
        lambda permit, data: consuming.peek(permit, data.queue, data.limit),
    ),
)

ADMIN: Final = (
    unary_method(asked.ListQueuesRequest, queues.QueueList, lambda permit, _: administering.queues(permit)),
    unary_method(
        asked.GetQueueRequest, queues.QueueView, lambda permit, data: administering.queue(permit, data.name)
    ),
    unary_method(
        asked.GetQueueMetricsRequest,
        metrics.QueueMetrics,
        lambda permit, data: measuring.queue_metrics(permit, data.queue, data.window_seconds),
    ),
    unary_method(
        asked.ListQueueMetricsRequest,
        metrics.QueueMetricsList,
        lambda permit, data: measuring.all_metrics(permit, data.window_seconds),
    ),
    unary_method(
        asked.GetQueueMetricsTimeSeriesRequest,
        metrics.SeriesResponse,
        lambda permit, data: measuring.metric_series(
            permit,
            data.metrics,
            queue=data.queue,
            task=data.task,
            start=data.start,
            end=data.end,
            resolution_seconds=data.resolution_seconds,
        ),
    ),
    unary_method(asked.CreateQueueRequest, queues.QueueView, administering.create_queue),
    unary_method(
        asked.UpdateQueueConfigRequest,
        queues.QueueView,
        lambda permit, data: administering.configure_queue(permit, data.name, data.settings),
    ),
    unary_method(
        asked.DeleteQueueRequest,
        queues.DropResponse,
        lambda permit, data: administering.delete_queue(permit, data.name, force=data.force),
    ),
    unary_method(
        asked.PauseQueueRequest,
        queues.QueueView,
        lambda permit, data: administering.pause_queue(permit, data.name),
    ),
    unary_method(
        asked.ResumeQueueRequest,
        queues.QueueView,
        lambda permit, data: administering.resume_queue(permit, data.name),
    ),
    unary_method(
        asked.DrainQueueRequest,
        queues.QueueView,
        lambda permit, data: administering.drain_queue(permit, data.name),
    ),
    unary_method(
        asked.PurgeQueueRequest,
        searching.BulkResponse,
        lambda permit, data: administering.purge_queue(permit, data.name, data),
    ),
    unary_method(
        asked.RequeueTasksRequest,
        searching.BulkResponse,
        lambda permit, data: administering.requeue(permit, data.name, data),
    ),
    unary_method(asked.SearchTasksRequest, looking.JobList, administering.search),
    unary_method(asked.BulkTasksRequest, searching.BulkResponse, administering.bulk),
    unary_method(
        asked.DeleteTaskRequest,
        new.ActionResponse,
        lambda permit, data: administering.delete_job(permit, data.id),
    ),
    unary_method(
        asked.ReviveTaskRequest,
        new.ActionResponse,
        lambda permit, data: administering.revive(permit, data.id, data),
    ),
    unary_method(
        asked.ReplayTaskRequest,
        new.EnqueueResponse,
        lambda permit, data: administering.replay(permit, data.id, data),
    ),
    unary_method(asked.ListDeadLetterTasksRequest, looking.JobList, administering.dead_letters),
    unary_method(asked.RequeueFromDeadLetterRequest, searching.BulkResponse, administering.revive_dead),
    unary_method(asked.PurgeDeadLetterQueueRequest, searching.BulkResponse, administering.purge_dead),
    unary_method(asked.ListFailureGroupsRequest, revived.FailureGroupList, reviving.failure_groups),
    unary_method(asked.StartGradualReviveRequest, revived.GradualReviveView, reviving.start_gradual_revive),
    unary_method(
        asked.ListGradualRevivesRequest,
        revived.GradualReviveList,
        lambda permit, _: reviving.gradual_revives(permit),
    ),
    unary_method(
        asked.GetGradualReviveRequest,
        revived.GradualReviveView,
        lambda permit, data: reviving.gradual_revive(permit, data.name),
    ),
    unary_method(
        asked.PauseGradualReviveRequest,
        revived.GradualReviveView,
        lambda permit, data: reviving.pause_gradual_revive(permit, data.name),
    ),
    unary_method(
        asked.ResumeGradualReviveRequest,
        revived.GradualReviveView,
        lambda permit, data: reviving.resume_gradual_revive(permit, data.name),
    ),
    unary_method(
        asked.StopGradualReviveRequest,
        revived.GradualReviveView,
        lambda permit, data: reviving.stop_gradual_revive(permit, data.name),
    ),
    unary_method(
        asked.ListSchedulesRequest, steered.ScheduleList, lambda permit, _: steering.schedules(permit)
    ),
    unary_method(
        asked.GetScheduleRequest,
        steered.ScheduleView,
        lambda permit, data: steering.schedule(permit, data.name),
    ),
    unary_method(
        asked.SaveScheduleRequest,
        steered.ScheduleView,
        lambda permit, data: steering.save_schedule(permit, data.name, data),
    ),
    unary_method(
        asked.PreviewScheduleRequest,
        steered.PreviewResponse,
        lambda permit, data: steering.preview_schedule(permit, data.name, data, data.runs),
    ),
    unary_method(
        asked.RemoveScheduleRequest,
        steered.ChangeResponse,
        lambda permit, data: steering.remove_schedule(permit, data.name),
    ),
    unary_method(
        asked.PauseScheduleRequest,
        steered.ScheduleView,
        lambda permit, data: steering.pause_schedule(permit, data.name),
    ),
    unary_method(
        asked.ResumeScheduleRequest,
        steered.ScheduleView,
        lambda permit, data: steering.resume_schedule(permit, data.name),
    ),
    unary_method(
        asked.FireScheduleRequest,
        new.EnqueueResponse,
        lambda permit, data: steering.fire_schedule(permit, data.name),
    ),
    unary_method(
        asked.ListScheduleRunsRequest,
        steered.ScheduleRunList,
        lambda permit, data: steering.schedule_runs(permit, data.name, data.limit),
    ),
    unary_method(
        asked.ListWorkersRequest,
        steered.WorkerList,
        lambda permit, data: steering.workers(permit, active_only=not data.with_dead),
    ),
    unary_method(
        asked.SendCommandRequest,
        steered.CommandList,
        lambda permit, data: steering.command(permit, data.to_command_request()),
    ),
    unary_method(
        asked.GetCommandsRequest,
        steered.CommandList,
        lambda permit, data: steering.commands(permit, data.ids),
    ),
    unary_method(asked.ListLimitsRequest, steered.LimitList, lambda permit, _: steering.limits(permit)),
    unary_method(asked.SetLimitRequest, steered.LimitView, steering.set_limit),
    unary_method(
        asked.RemoveLimitRequest,
        steered.ChangeResponse,
        lambda permit, data: steering.remove_limit(permit, data.scope),
    ),
    unary_method(
        about.ListAlertsRequest,
        alerts.AlertList,
        lambda permit, data: alerting.alerts(
            permit,
            severity=data.severity,
            acknowledged=data.acknowledged,
            include_all=data.all,
            active=data.active,
            limit=data.limit,
        ),
    ),
    unary_method(about.TriggerAlertRequest, alerts.AlertView, alerting.trigger_alert),
    unary_method(
        about.AcknowledgeAlertRequest,
        alerts.AlertView,
        lambda permit, data: alerting.acknowledge_alert(permit, data.id),
    ),
    unary_method(
        about.ResolveAlertRequest,
        alerts.AlertView,
        lambda permit, data: alerting.resolve_alert(permit, data.id),
    ),
    unary_method(
        about.ListAlertRulesRequest, alerts.AlertRuleList, lambda permit, _: alerting.alert_rules(permit)
    ),
    unary_method(about.CreateAlertRuleRequest, alerts.AlertRuleView, alerting.create_alert_rule),
    unary_method(
        about.SaveAlertRuleRequest,
        alerts.AlertRuleView,
        lambda permit, data: alerting.save_alert_rule(permit, data.id, data),
    ),
    unary_method(
        about.RemoveAlertRuleRequest,
        steered.ChangeResponse,
        lambda permit, data: alerting.remove_alert_rule(permit, data.id),
    ),
    unary_method(
        about.ListAlertChannelsRequest,
        alerts.ChannelList,
        lambda permit, _: alerting.alert_channels(permit),
    ),
    unary_method(
        about.SaveAlertChannelRequest,
        alerts.ChannelView,
        lambda permit, data: alerting.save_alert_channel(permit, data.name, data),
    ),
    unary_method(
        about.RemoveAlertChannelRequest,
        steered.ChangeResponse,
        lambda permit, data: alerting.remove_alert_channel(permit, data.name),
    ),
    unary_method(asked.ListKeysRequest, kept.KeyList, lambda permit, _: keeping.keys(permit)),
    unary_method(asked.GetKeyRequest, kept.KeyView, lambda permit, data: keeping.key(permit, data.name)),
    unary_method(asked.CreateKeyRequest, kept.KeyWithToken, keeping.create_key),
    unary_method(
        asked.RotateKeyRequest,
        kept.KeyWithToken,
        lambda permit, data: keeping.rotate_key(permit, data.name, data),
    ),
    unary_method(
        asked.RevokeKeyRequest, kept.KeyView, lambda permit, data: keeping.revoke_key(permit, data.name)
    ),
    unary_method(asked.SearchAuditRequest, kept.AuditResponse, keeping.audit),
    unary_method(asked.VerifyAuditRequest, kept.AuditCheckResponse, keeping.check_audit),
)

SERVICES: Final[Mapping[str, tuple[MethodSpec, ...]]] = {
    "Producer": PRODUCER,
    "Consumer": CONSUMER,
    "Admin": ADMIN,
}
