"""One table: which operation a method calls, what it is asked with and what it answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from forebay.service.grpc import alert_requests as about
from forebay.service.grpc import requests as asked
from forebay.service.permissions import (
    alerts as alerts_module,
)
from forebay.service.permissions import (
    claims,
    dead_letters,
    keys,
    schedules,
)
from forebay.service.permissions import (
    jobs as jobs_module,
)
from forebay.service.permissions import (
    metrics as metrics_module,
)
from forebay.service.permissions import (
    queues as queues_module,
)
from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.service.schema import alerts, job_views, metrics, queues, search
from forebay.service.schema import claims as jobs
from forebay.service.schema import dead_letters as revived
from forebay.service.schema import jobs as new
from forebay.service.schema import keys as kept
from forebay.service.schema import schedules as steered
from forebay.service.schema.base import RequestModel, ResponseModel

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
    return claims.claim(permit, wanted)


PRODUCER: Final = (
    unary_method(
        asked.EnqueueRequest,
        new.EnqueueResponse,
        lambda permit, data: jobs_module.enqueue(permit, data.job, with_position=data.with_position),
    ),
    unary_method(asked.EnqueueBatchRequest, new.EnqueueBatchResponse, jobs_module.enqueue_many),
    unary_method(
        asked.GetTaskStatusRequest, job_views.JobView, lambda permit, data: jobs_module.job(permit, data.id)
    ),
    unary_method(
        asked.WaitForCompletionRequest,
        job_views.JobView,
        lambda permit, data: jobs_module.wait(permit, data.id, data.timeout_seconds),
        wait_field="timeout_seconds",
    ),
    stream_method(
        asked.WatchTaskRequest, job_views.JobView, lambda permit, data: jobs_module.watch(permit, data.id)
    ),
    unary_method(
        asked.GetTaskGraphRequest,
        job_views.GraphView,
        lambda permit, data: jobs_module.graph(permit, data.id, data.limit),
    ),
    unary_method(
        asked.GetTaskResultRequest,
        new.ResultResponse,
        lambda permit, data: jobs_module.result(permit, data.id),
    ),
    unary_method(
        asked.CancelTaskRequest,
        new.ActionResponse,
        lambda permit, data: jobs_module.cancel(permit, data.id, data),
    ),
    unary_method(
        asked.UpdateTaskPriorityRequest,
        new.ActionResponse,
        lambda permit, data: jobs_module.update_job(permit, data.id, data),
    ),
)

CONSUMER: Final = (
    unary_method(asked.DequeueRequest, jobs.ClaimResponse, _dequeue, wait_field="wait_seconds"),
    unary_method(asked.DequeueBatchRequest, jobs.ClaimResponse, claims.claim, wait_field="wait_seconds"),
    stream_method(
        asked.DequeueStreamRequest,
        jobs.ClaimedJob,
        lambda permit, data: claims.stream(permit, data, data.window),
    ),
    unary_method(
        asked.AckTaskRequest, jobs.SettleResult, lambda permit, data: claims.ack(permit, data.id, data)
    ),
    unary_method(
        asked.NackTaskRequest, jobs.SettleResult, lambda permit, data: claims.nack(permit, data.id, data)
    ),
    unary_method(asked.SettleTasksRequest, jobs.SettleResponse, claims.settle),
    unary_method(
        asked.HeartbeatRequest,
        jobs.HeartbeatResponse,
        lambda permit, data: claims.heartbeat(permit, data.id, data),
    ),
    unary_method(
        asked.ExtendVisibilityRequest,
        jobs.HeartbeatResponse,
        lambda permit, data: claims.extend(permit, data.id, data),
    ),
    unary_method(
        asked.PeekNextRequest,
        job_views.PeekResponse,
        lambda permit, data: claims.peek(permit, data.queue, data.limit),
    ),
)

ADMIN: Final = (
    unary_method(asked.ListQueuesRequest, queues.QueueList, lambda permit, _: queues_module.queues(permit)),
    unary_method(
        asked.GetQueueRequest, queues.QueueView, lambda permit, data: queues_module.queue(permit, data.name)
    ),
    unary_method(
        asked.GetQueueMetricsRequest,
        metrics.QueueMetrics,
        lambda permit, data: metrics_module.queue_metrics(permit, data.queue, data.window_seconds),
    ),
    unary_method(
        asked.ListQueueMetricsRequest,
        metrics.QueueMetricsList,
        lambda permit, data: metrics_module.all_metrics(permit, data.window_seconds),
    ),
    unary_method(
        asked.GetQueueMetricsTimeSeriesRequest,
        metrics.SeriesResponse,
        lambda permit, data: metrics_module.metric_series(
            permit,
            data.metrics,
            queue=data.queue,
            task=data.task,
            start=data.start,
            end=data.end,
            resolution_seconds=data.resolution_seconds,
        ),
    ),
    unary_method(asked.CreateQueueRequest, queues.QueueView, queues_module.create_queue),
    unary_method(
        asked.UpdateQueueConfigRequest,
        queues.QueueView,
        lambda permit, data: queues_module.configure_queue(permit, data.name, data.settings),
    ),
    unary_method(
        asked.DeleteQueueRequest,
        queues.DropResponse,
        lambda permit, data: queues_module.delete_queue(permit, data.name, force=data.force),
    ),
    unary_method(
        asked.PauseQueueRequest,
        queues.QueueView,
        lambda permit, data: queues_module.pause_queue(permit, data.name),
    ),
    unary_method(
        asked.ResumeQueueRequest,
        queues.QueueView,
        lambda permit, data: queues_module.resume_queue(permit, data.name),
    ),
    unary_method(
        asked.DrainQueueRequest,
        queues.QueueView,
        lambda permit, data: queues_module.drain_queue(permit, data.name),
    ),
    unary_method(
        asked.PurgeQueueRequest,
        search.BulkResponse,
        lambda permit, data: queues_module.purge_queue(permit, data.name, data),
    ),
    unary_method(
        asked.RequeueTasksRequest,
        search.BulkResponse,
        lambda permit, data: queues_module.requeue(permit, data.name, data),
    ),
    unary_method(asked.SearchTasksRequest, job_views.JobList, queues_module.search),
    unary_method(asked.BulkTasksRequest, search.BulkResponse, queues_module.bulk),
    unary_method(
        asked.DeleteTaskRequest,
        new.ActionResponse,
        lambda permit, data: queues_module.delete_job(permit, data.id),
    ),
    unary_method(
        asked.ReviveTaskRequest,
        new.ActionResponse,
        lambda permit, data: queues_module.revive(permit, data.id, data),
    ),
    unary_method(
        asked.ReplayTaskRequest,
        new.EnqueueResponse,
        lambda permit, data: queues_module.replay(permit, data.id, data),
    ),
    unary_method(asked.ListDeadLetterTasksRequest, job_views.JobList, queues_module.dead_letters),
    unary_method(asked.RequeueFromDeadLetterRequest, search.BulkResponse, queues_module.revive_dead),
    unary_method(asked.PurgeDeadLetterQueueRequest, search.BulkResponse, queues_module.purge_dead),
    unary_method(asked.ListFailureGroupsRequest, revived.FailureGroupList, dead_letters.failure_groups),
    unary_method(
        asked.StartGradualReviveRequest, revived.GradualReviveView, dead_letters.start_gradual_revive
    ),
    unary_method(
        asked.ListGradualRevivesRequest,
        revived.GradualReviveList,
        lambda permit, _: dead_letters.gradual_revives(permit),
    ),
    unary_method(
        asked.GetGradualReviveRequest,
        revived.GradualReviveView,
        lambda permit, data: dead_letters.gradual_revive(permit, data.name),
    ),
    unary_method(
        asked.PauseGradualReviveRequest,
        revived.GradualReviveView,
        lambda permit, data: dead_letters.pause_gradual_revive(permit, data.name),
    ),
    unary_method(
        asked.ResumeGradualReviveRequest,
        revived.GradualReviveView,
        lambda permit, data: dead_letters.resume_gradual_revive(permit, data.name),
    ),
    unary_method(
        asked.StopGradualReviveRequest,
        revived.GradualReviveView,
        lambda permit, data: dead_letters.stop_gradual_revive(permit, data.name),
    ),
    unary_method(
        asked.ListSchedulesRequest, steered.ScheduleList, lambda permit, _: schedules.schedules(permit)
    ),
    unary_method(
        asked.GetScheduleRequest,
        steered.ScheduleView,
        lambda permit, data: schedules.schedule(permit, data.name),
    ),
    unary_method(
        asked.SaveScheduleRequest,
        steered.ScheduleView,
        lambda permit, data: schedules.save_schedule(permit, data.name, data),
    ),
    unary_method(
        asked.PreviewScheduleRequest,
        steered.PreviewResponse,
        lambda permit, data: schedules.preview_schedule(permit, data.name, data, data.runs),
    ),
    unary_method(
        asked.RemoveScheduleRequest,
        steered.ChangeResponse,
        lambda permit, data: schedules.remove_schedule(permit, data.name),
    ),
    unary_method(
        asked.PauseScheduleRequest,
        steered.ScheduleView,
        lambda permit, data: schedules.pause_schedule(permit, data.name),
    ),
    unary_method(
        asked.ResumeScheduleRequest,
        steered.ScheduleView,
        lambda permit, data: schedules.resume_schedule(permit, data.name),
    ),
    unary_method(
        asked.FireScheduleRequest,
        new.EnqueueResponse,
        lambda permit, data: schedules.fire_schedule(permit, data.name),
    ),
    unary_method(
        asked.ListScheduleRunsRequest,
        steered.ScheduleRunList,
        lambda permit, data: schedules.schedule_runs(permit, data.name, data.limit),
    ),
    unary_method(
        asked.ListWorkersRequest,
        steered.WorkerList,
        lambda permit, data: schedules.workers(permit, active_only=not data.with_dead),
    ),
    unary_method(
        asked.SendCommandRequest,
        steered.CommandList,
        lambda permit, data: schedules.command(permit, data.to_command_request()),
    ),
    unary_method(
        asked.GetCommandsRequest,
        steered.CommandList,
        lambda permit, data: schedules.commands(permit, data.ids),
    ),
    unary_method(asked.ListLimitsRequest, steered.LimitList, lambda permit, _: schedules.limits(permit)),
    unary_method(asked.SetLimitRequest, steered.LimitView, schedules.set_limit),
    unary_method(
        asked.RemoveLimitRequest,
        steered.ChangeResponse,
        lambda permit, data: schedules.remove_limit(permit, data.scope),
    ),
    unary_method(
        about.ListAlertsRequest,
        alerts.AlertList,
        lambda permit, data: alerts_module.alerts(
            permit,
            severity=data.severity,
            acknowledged=data.acknowledged,
            include_all=data.all,
            active=data.active,
            limit=data.limit,
        ),
    ),
    unary_method(about.TriggerAlertRequest, alerts.AlertView, alerts_module.trigger_alert),
    unary_method(
        about.AcknowledgeAlertRequest,
        alerts.AlertView,
        lambda permit, data: alerts_module.acknowledge_alert(permit, data.id),
    ),
    unary_method(
        about.ResolveAlertRequest,
        alerts.AlertView,
        lambda permit, data: alerts_module.resolve_alert(permit, data.id),
    ),
    unary_method(
        about.ListAlertRulesRequest, alerts.AlertRuleList, lambda permit, _: alerts_module.alert_rules(permit)
    ),
    unary_method(about.CreateAlertRuleRequest, alerts.AlertRuleView, alerts_module.create_alert_rule),
    unary_method(
        about.SaveAlertRuleRequest,
        alerts.AlertRuleView,
        lambda permit, data: alerts_module.save_alert_rule(permit, data.id, data),
    ),
    unary_method(
        about.RemoveAlertRuleRequest,
        steered.ChangeResponse,
        lambda permit, data: alerts_module.remove_alert_rule(permit, data.id),
    ),
    unary_method(
        about.ListAlertChannelsRequest,
        alerts.ChannelList,
        lambda permit, _: alerts_module.alert_channels(permit),
    ),
    unary_method(
        about.SaveAlertChannelRequest,
        alerts.ChannelView,
        lambda permit, data: alerts_module.save_alert_channel(permit, data.name, data),
    ),
    unary_method(
        about.RemoveAlertChannelRequest,
        steered.ChangeResponse,
        lambda permit, data: alerts_module.remove_alert_channel(permit, data.name),
    ),
    unary_method(asked.ListKeysRequest, kept.KeyList, lambda permit, _: keys.keys(permit)),
    unary_method(asked.GetKeyRequest, kept.KeyView, lambda permit, data: keys.key(permit, data.name)),
    unary_method(asked.CreateKeyRequest, kept.KeyWithToken, keys.create_key),
    unary_method(
        asked.RotateKeyRequest,
        kept.KeyWithToken,
        lambda permit, data: keys.rotate_key(permit, data.name, data),
    ),
    unary_method(
        asked.RevokeKeyRequest, kept.KeyView, lambda permit, data: keys.revoke_key(permit, data.name)
    ),
    unary_method(asked.SearchAuditRequest, kept.AuditResponse, keys.audit),
    unary_method(asked.VerifyAuditRequest, kept.AuditCheckResponse, keys.check_audit),
)

SERVICES: Final[Mapping[str, tuple[MethodSpec, ...]]] = {
    "Producer": PRODUCER,
    "Consumer": CONSUMER,
    "Admin": ADMIN,
}
