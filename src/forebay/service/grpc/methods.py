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
from forebay.service.permitting.permit import Permit
from forebay.service.schema import alerting as alerts
from forebay.service.schema import consuming as jobs
from forebay.service.schema import keeping as kept
from forebay.service.schema import looking, metrics, queues, searching
from forebay.service.schema import producing as new
from forebay.service.schema import reviving as revived
from forebay.service.schema import steering as steered
from forebay.service.schema.shared import Asked, Shape

Request = TypeVar("Request", bound=Asked)
Answer = TypeVar("Answer", bound=Shape)


class Method(NamedTuple):
    """Exactly one of `call` and `stream` is there. `waits` is the field that says how long the answer may
    take: never longer than the deadline of the call leaves."""

    asked: type[Asked]
    answer: type[Shape]
    call: Callable[[Permit, Any], Awaitable[Shape]] | None = None
    stream: Callable[[Permit, Any], AsyncGenerator[Shape, None]] | None = None
    waits: str | None = None

    @property
    def name(self) -> str:
        return self.asked.__name__.removesuffix("Request")


def one(
    asked: type[Request],
    answer: type[Answer],
    call: Callable[[Permit, Request], Awaitable[Answer]],
    waits: str | None = None,
) -> Method:
    """A method that is answered once."""
    return Method(asked, answer, call=call, waits=waits)


def many(
    asked: type[Request],
    answer: type[Answer],
    stream: Callable[[Permit, Request], AsyncGenerator[Answer, None]],
) -> Method:
    """A method that is answered again and again."""
    return Method(asked, answer, stream=stream)


def _dequeue(permit: Permit, data: asked.DequeueRequest) -> Awaitable[jobs.ClaimAnswer]:
    wanted = jobs.ClaimRequest(
        queues=data.queues,
        tasks=data.tasks,
        lease_seconds=data.lease_seconds,
        wait_seconds=data.wait_seconds,
    )
    return consuming.claim(permit, wanted)


PRODUCER: Final = (
    one(
        asked.EnqueueRequest,
        new.Accepted,
        lambda permit, data: producing.enqueue(permit, data.job, with_position=data.with_position),
    ),
    one(asked.EnqueueBatchRequest, new.EnqueueManyAnswer, producing.enqueue_many),
    one(asked.GetTaskStatusRequest, looking.JobShape, lambda permit, data: producing.job(permit, data.id)),
    one(
        asked.WaitForCompletionRequest,
        looking.JobShape,
        lambda permit, data: producing.wait(permit, data.id, data.timeout_seconds),
        waits="timeout_seconds",
    ),
    many(asked.WatchTaskRequest, looking.JobShape, lambda permit, data: producing.watch(permit, data.id)),
    one(
        asked.GetTaskGraphRequest,
        looking.GraphShape,
        lambda permit, data: producing.graph(permit, data.id, data.limit),
    ),
    one(asked.GetTaskResultRequest, new.ResultAnswer, lambda permit, data: producing.result(permit, data.id)),
    one(asked.CancelTaskRequest, new.Verdict, lambda permit, data: producing.cancel(permit, data.id, data)),
    one(
        asked.UpdateTaskPriorityRequest,
        new.Verdict,
        lambda permit, data: producing.amend(permit, data.id, data),
    ),
)

CONSUMER: Final = (
    one(asked.DequeueRequest, jobs.ClaimAnswer, _dequeue, waits="wait_seconds"),
    one(asked.DequeueBatchRequest, jobs.ClaimAnswer, consuming.claim, waits="wait_seconds"),
    many(
        asked.DequeueStreamRequest,
        jobs.ClaimedJob,
        lambda permit, data: consuming.stream(permit, data, data.window),
    ),
    one(asked.AckTaskRequest, jobs.Settled, lambda permit, data: consuming.ack(permit, data.id, data)),
    one(asked.NackTaskRequest, jobs.Settled, lambda permit, data: consuming.nack(permit, data.id, data)),
    one(asked.SettleTasksRequest, jobs.SettleAnswer, consuming.settle),
    one(
        asked.HeartbeatRequest,
        jobs.HeartbeatAnswer,
        lambda permit, data: consuming.heartbeat(permit, data.id, data),
    ),
    one(
        asked.ExtendVisibilityRequest,
        jobs.HeartbeatAnswer,
        lambda permit, data: consuming.extend(permit, data.id, data),
    ),
    one(
        asked.PeekNextRequest,
        looking.PeekAnswer,
        lambda permit, data: consuming.peek(permit, data.queue, data.limit),
    ),
)

ADMIN: Final = (
    one(asked.ListQueuesRequest, queues.QueueList, lambda permit, _: administering.queues(permit)),
    one(
        asked.GetQueueRequest, queues.QueueShape, lambda permit, data: administering.queue(permit, data.name)
    ),
    one(
        asked.GetQueueMetricsRequest,
        metrics.QueueMetrics,
        lambda permit, data: measuring.queue_metrics(permit, data.queue, data.window_seconds),
    ),
    one(
        asked.ListQueueMetricsRequest,
        metrics.QueueMetricsList,
        lambda permit, data: measuring.all_metrics(permit, data.window_seconds),
    ),
    one(
        asked.GetQueueMetricsTimeSeriesRequest,
        metrics.SeriesAnswer,
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
    one(asked.CreateQueueRequest, queues.QueueShape, administering.create_queue),
    one(
        asked.UpdateQueueConfigRequest,
        queues.QueueShape,
        lambda permit, data: administering.configure_queue(permit, data.name, data.settings),
    ),
    one(
        asked.DeleteQueueRequest,
        queues.DropAnswer,
        lambda permit, data: administering.delete_queue(permit, data.name, force=data.force),
    ),
    one(
        asked.PauseQueueRequest,
        queues.QueueShape,
        lambda permit, data: administering.pause_queue(permit, data.name),
    ),
    one(
        asked.ResumeQueueRequest,
        queues.QueueShape,
        lambda permit, data: administering.resume_queue(permit, data.name),
    ),
    one(
        asked.DrainQueueRequest,
        queues.QueueShape,
        lambda permit, data: administering.drain_queue(permit, data.name),
    ),
    one(
        asked.PurgeQueueRequest,
        searching.BulkAnswer,
        lambda permit, data: administering.purge_queue(permit, data.name, data),
    ),
    one(
        asked.RequeueTasksRequest,
        searching.BulkAnswer,
        lambda permit, data: administering.requeue(permit, data.name, data),
    ),
    one(asked.SearchTasksRequest, looking.JobList, administering.search),
    one(asked.BulkTasksRequest, searching.BulkAnswer, administering.bulk),
    one(asked.DeleteTaskRequest, new.Verdict, lambda permit, data: administering.delete_job(permit, data.id)),
    one(
        asked.ReviveTaskRequest,
        new.Verdict,
        lambda permit, data: administering.revive(permit, data.id, data),
    ),
    one(
        asked.ReplayTaskRequest,
        new.Accepted,
        lambda permit, data: administering.replay(permit, data.id, data),
    ),
    one(asked.ListDeadLetterTasksRequest, looking.JobList, administering.dead),
    one(asked.RequeueFromDeadLetterRequest, searching.BulkAnswer, administering.revive_dead),
    one(asked.PurgeDeadLetterQueueRequest, searching.BulkAnswer, administering.purge_dead),
    one(asked.ListFailureGroupsRequest, revived.GroupList, reviving.failure_groups),
    one(asked.StartRampRequest, revived.RampShape, reviving.start_ramp),
    one(asked.ListRampsRequest, revived.RampList, lambda permit, _: reviving.ramps(permit)),
    one(asked.GetRampRequest, revived.RampShape, lambda permit, data: reviving.ramp(permit, data.name)),
    one(
        asked.PauseRampRequest,
        revived.RampShape,
        lambda permit, data: reviving.pause_ramp(permit, data.name),
    ),
    one(
        asked.ResumeRampRequest,
        revived.RampShape,
        lambda permit, data: reviving.resume_ramp(permit, data.name),
    ),
    one(asked.StopRampRequest, revived.RampShape, lambda permit, data: reviving.stop_ramp(permit, data.name)),
    one(asked.ListSchedulesRequest, steered.ScheduleList, lambda permit, _: steering.schedules(permit)),
    one(
        asked.GetScheduleRequest,
        steered.ScheduleShape,
        lambda permit, data: steering.schedule(permit, data.name),
    ),
    one(
        asked.SaveScheduleRequest,
        steered.ScheduleShape,
        lambda permit, data: steering.save_schedule(permit, data.name, data),
    ),
    one(
        asked.PreviewScheduleRequest,
        steered.PreviewAnswer,
        lambda permit, data: steering.preview_schedule(permit, data.name, data, data.runs),
    ),
    one(
        asked.RemoveScheduleRequest,
        steered.Answered,
        lambda permit, data: steering.remove_schedule(permit, data.name),
    ),
    one(
        asked.PauseScheduleRequest,
        steered.ScheduleShape,
        lambda permit, data: steering.pause_schedule(permit, data.name),
    ),
    one(
        asked.ResumeScheduleRequest,
        steered.ScheduleShape,
        lambda permit, data: steering.resume_schedule(permit, data.name),
    ),
    one(
        asked.FireScheduleRequest,
        new.Accepted,
        lambda permit, data: steering.fire_schedule(permit, data.name),
    ),
    one(
        asked.ListFiringsRequest,
        steered.FiringList,
        lambda permit, data: steering.firings(permit, data.name, data.limit),
    ),
    one(
        asked.ListWorkersRequest,
        steered.WorkerList,
        lambda permit, data: steering.workers(permit, active_only=not data.with_dead),
    ),
    one(
        asked.SendCommandRequest,
        steered.CommandList,
        lambda permit, data: steering.command(permit, data.checked()),
    ),
    one(
        asked.GetCommandsRequest,
        steered.CommandList,
        lambda permit, data: steering.commands(permit, data.ids),
    ),
    one(asked.ListLimitsRequest, steered.LimitList, lambda permit, _: steering.limits(permit)),
    one(asked.SetLimitRequest, steered.LimitShape, steering.set_limit),
    one(
        asked.RemoveLimitRequest,
        steered.Answered,
        lambda permit, data: steering.remove_limit(permit, data.scope),
    ),
    one(
        about.ListAlertsRequest,
        alerts.AlertList,
        lambda permit, data: alerting.alerts(
            permit,
            severity=data.severity,
            acknowledged=data.acknowledged,
            everything=data.everything,
            active=data.active,
            limit=data.limit,
        ),
    ),
    one(about.TriggerAlertRequest, alerts.AlertShape, alerting.trigger_alert),
    one(
        about.AcknowledgeAlertRequest,
        alerts.AlertShape,
        lambda permit, data: alerting.acknowledge_alert(permit, data.id),
    ),
    one(
        about.ResolveAlertRequest,
        alerts.AlertShape,
        lambda permit, data: alerting.resolve_alert(permit, data.id),
    ),
    one(about.ListAlertRulesRequest, alerts.RuleList, lambda permit, _: alerting.alert_rules(permit)),
    one(about.CreateAlertRuleRequest, alerts.RuleShape, alerting.create_alert_rule),
    one(
        about.SaveAlertRuleRequest,
        alerts.RuleShape,
        lambda permit, data: alerting.save_alert_rule(permit, data.id, data),
    ),
    one(
        about.RemoveAlertRuleRequest,
        steered.Answered,
        lambda permit, data: alerting.remove_alert_rule(permit, data.id),
    ),
    one(
        about.ListAlertChannelsRequest,
        alerts.ChannelList,
        lambda permit, _: alerting.alert_channels(permit),
    ),
    one(
        about.SaveAlertChannelRequest,
        alerts.ChannelShape,
        lambda permit, data: alerting.save_alert_channel(permit, data.name, data),
    ),
    one(
        about.RemoveAlertChannelRequest,
        steered.Answered,
        lambda permit, data: alerting.remove_alert_channel(permit, data.name),
    ),
    one(asked.ListKeysRequest, kept.KeyList, lambda permit, _: keeping.keys(permit)),
    one(asked.GetKeyRequest, kept.KeyShape, lambda permit, data: keeping.key(permit, data.name)),
    one(asked.CreateKeyRequest, kept.KeyMade, keeping.create_key),
    one(
        asked.RotateKeyRequest,
        kept.KeyMade,
        lambda permit, data: keeping.rotate_key(permit, data.name, data),
    ),
    one(asked.RevokeKeyRequest, kept.KeyShape, lambda permit, data: keeping.revoke_key(permit, data.name)),
    one(asked.SearchAuditRequest, kept.AuditAnswer, keeping.audit),
    one(asked.VerifyAuditRequest, kept.AuditChecked, keeping.check_audit),
)

SERVICES: Final[Mapping[str, tuple[Method, ...]]] = {
    "Producer": PRODUCER,
    "Consumer": CONSUMER,
    "Admin": ADMIN,
}
