"""One walk through all operations, that is gone by HTTP and by gRPC."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import grpc

from forebay.service.generated import forebay_pb2
from forebay.service.problem_details import codes
from tests.service.live_protocols import Spoken, fields_of, message_of
from tests.service.live_server import PATIENCE

STATUS: Final = {code: kind.grpc for code, kind in codes().items()}
BY_CHANCE: Final = {"token", "used_at", "enqueued_per_second", "unchained"}
LENGTHS: Final = {"heartbeat_seconds", "duration_seconds", "drain_seconds", "starts_in_seconds"}
MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT")
ID: Final = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b")
WORKER: Final = re.compile(r"service-[\w.@:-]+")
FAR: Final = 2080

Fields = dict[str, Any]
Seen = Mapping[str, Any]


class Way(NamedTuple):
    """How an operation is asked for by each protocol. What stands in the path or in the query is not in the
    body of HTTP; gRPC has all of it in one message."""

    method: str
    path: str
    rpc: str
    query: tuple[str, ...] = ()


WAYS: Final = {
    "enqueue": Way("POST", "/v1/jobs", "Producer.Enqueue", ("position",)),
    "enqueue_many": Way("POST", "/v1/jobs/batch", "Producer.EnqueueBatch"),
    "job": Way("GET", "/v1/jobs/{id}", "Producer.GetTaskStatus"),
    "wait": Way("GET", "/v1/jobs/{id}/wait", "Producer.WaitForCompletion", ("timeout_seconds",)),
    "graph": Way("GET", "/v1/jobs/{id}/graph", "Producer.GetTaskGraph", ("limit",)),
    "result": Way("GET", "/v1/jobs/{id}/result", "Producer.GetTaskResult"),
    "cancel": Way("POST", "/v1/jobs/{id}/cancel", "Producer.CancelTask"),
    "update_job": Way("PATCH", "/v1/jobs/{id}", "Producer.UpdateTaskPriority"),
    "claim": Way("POST", "/v1/claim", "Consumer.DequeueBatch"),
    "settle": Way("POST", "/v1/settle", "Consumer.SettleTasks"),
    "ack": Way("POST", "/v1/jobs/{id}/ack", "Consumer.AckTask"),
    "nack": Way("POST", "/v1/jobs/{id}/nack", "Consumer.NackTask"),
    "heartbeat": Way("POST", "/v1/jobs/{id}/heartbeat", "Consumer.Heartbeat"),
    "extend": Way("POST", "/v1/jobs/{id}/extend", "Consumer.ExtendVisibility"),
    "peek": Way("GET", "/v1/queues/{queue}/peek", "Consumer.PeekNext", ("limit",)),
    "queues": Way("GET", "/v1/queues", "Admin.ListQueues"),
    "create_queue": Way("POST", "/v1/queues", "Admin.CreateQueue"),
    "queue": Way("GET", "/v1/queues/{name}", "Admin.GetQueue"),
    "queue_metrics": Way("GET", "/v1/metrics/queues/{queue}", "Admin.GetQueueMetrics", ("window_seconds",)),
    "all_metrics": Way("GET", "/v1/metrics/queues", "Admin.ListQueueMetrics", ("window_seconds",)),
    "metric_series": Way(
        "GET",
        "/v1/metrics/series",
        "Admin.GetQueueMetricsTimeSeries",
        ("metrics", "queue", "task", "start", "end", "resolution_seconds"),
    ),
    "configure_queue": Way("PATCH", "/v1/queues/{name}", "Admin.UpdateQueueConfig"),
    "delete_queue": Way("DELETE", "/v1/queues/{name}", "Admin.DeleteQueue", ("force",)),
    "pause_queue": Way("POST", "/v1/queues/{name}/pause", "Admin.PauseQueue"),
    "resume_queue": Way("POST", "/v1/queues/{name}/resume", "Admin.ResumeQueue"),
    "drain_queue": Way("POST", "/v1/queues/{name}/drain", "Admin.DrainQueue"),
    "purge_queue": Way("POST", "/v1/queues/{name}/purge", "Admin.PurgeQueue"),
    "requeue": Way("POST", "/v1/queues/{name}/requeue", "Admin.RequeueTasks"),
    "search": Way("POST", "/v1/jobs/search", "Admin.SearchTasks"),
    "bulk": Way("POST", "/v1/jobs/bulk", "Admin.BulkTasks"),
    "delete_job": Way("DELETE", "/v1/jobs/{id}", "Admin.DeleteTask"),
    "revive": Way("POST", "/v1/jobs/{id}/revive", "Admin.ReviveTask"),
    "replay": Way("POST", "/v1/jobs/{id}/replay", "Admin.ReplayTask"),
    "dead_letters": Way("POST", "/v1/dead-letters/search", "Admin.ListDeadLetterTasks"),
    "revive_dead": Way("POST", "/v1/dead-letters/revive", "Admin.RequeueFromDeadLetter"),
    "purge_dead": Way("POST", "/v1/dead-letters/purge", "Admin.PurgeDeadLetterQueue"),
    "failure_groups": Way("POST", "/v1/dead-letters/failure-groups", "Admin.ListFailureGroups"),
    "start_gradual_revive": Way("POST", "/v1/dead-letters/gradual-revives", "Admin.StartGradualRevive"),
    "gradual_revives": Way("GET", "/v1/dead-letters/gradual-revives", "Admin.ListGradualRevives"),
    "gradual_revive": Way("GET", "/v1/dead-letters/gradual-revives/{name}", "Admin.GetGradualRevive"),
    "pause_gradual_revive": Way(
        "POST", "/v1/dead-letters/gradual-revives/{name}/pause", "Admin.PauseGradualRevive"
    ),
    "resume_gradual_revive": Way(
        "POST", "/v1/dead-letters/gradual-revives/{name}/resume", "Admin.ResumeGradualRevive"
    ),
    "stop_gradual_revive": Way(
        "POST", "/v1/dead-letters/gradual-revives/{name}/stop", "Admin.StopGradualRevive"
    ),
    "schedules": Way("GET", "/v1/schedules", "Admin.ListSchedules"),
    "schedule": Way("GET", "/v1/schedules/{name}", "Admin.GetSchedule"),
    "save_schedule": Way("PUT", "/v1/schedules/{name}", "Admin.SaveSchedule"),
    "preview_schedule": Way("POST", "/v1/schedules/{name}/preview", "Admin.PreviewSchedule", ("runs",)),
    "remove_schedule": Way("DELETE", "/v1/schedules/{name}", "Admin.RemoveSchedule"),
    "pause_schedule": Way("POST", "/v1/schedules/{name}/pause", "Admin.PauseSchedule"),
    "resume_schedule": Way("POST", "/v1/schedules/{name}/resume", "Admin.ResumeSchedule"),
    "fire_schedule": Way("POST", "/v1/schedules/{name}/fire", "Admin.FireSchedule"),
    "schedule_runs": Way("GET", "/v1/schedules/{name}/history", "Admin.ListScheduleRuns", ("limit",)),
    "workers": Way("GET", "/v1/workers", "Admin.ListWorkers", ("active_only",)),
    "command": Way("POST", "/v1/workers/commands", "Admin.SendCommand"),
    "commands": Way("GET", "/v1/workers/commands", "Admin.GetCommands", ("ids",)),
    "limits": Way("GET", "/v1/limits", "Admin.ListLimits"),
    "set_limit": Way("PUT", "/v1/limits", "Admin.SetLimit"),
    "alerts": Way(
        "GET", "/v1/alerts", "Admin.ListAlerts", ("severity", "acknowledged", "all", "active", "limit")
    ),
    "trigger_alert": Way("POST", "/v1/alerts", "Admin.TriggerAlert"),
    "acknowledge_alert": Way("POST", "/v1/alerts/{id}/acknowledge", "Admin.AcknowledgeAlert"),
    "resolve_alert": Way("POST", "/v1/alerts/{id}/resolve", "Admin.ResolveAlert"),
    "alert_rules": Way("GET", "/v1/alert-rules", "Admin.ListAlertRules"),
    "create_alert_rule": Way("POST", "/v1/alert-rules", "Admin.CreateAlertRule"),
    "save_alert_rule": Way("PUT", "/v1/alert-rules/{id}", "Admin.SaveAlertRule"),
    "remove_alert_rule": Way("DELETE", "/v1/alert-rules/{id}", "Admin.RemoveAlertRule"),
    "alert_channels": Way("GET", "/v1/alert-channels", "Admin.ListAlertChannels"),
    "save_alert_channel": Way("PUT", "/v1/alert-channels/{name}", "Admin.SaveAlertChannel"),
    "remove_alert_channel": Way("DELETE", "/v1/alert-channels/{name}", "Admin.RemoveAlertChannel"),
    "keys": Way("GET", "/v1/keys", "Admin.ListKeys"),
    "key": Way("GET", "/v1/keys/{name}", "Admin.GetKey"),
    "create_key": Way("POST", "/v1/keys", "Admin.CreateKey"),
    "rotate_key": Way("POST", "/v1/keys/{name}/rotate", "Admin.RotateKey"),
    "revoke_key": Way("POST", "/v1/keys/{name}/revoke", "Admin.RevokeKey"),
    "audit": Way("POST", "/v1/audit/search", "Admin.SearchAudit"),
    "check_audit": Way("POST", "/v1/audit/verify", "Admin.VerifyAudit"),
    "remove_limit": Way("DELETE", "/v1/limits/{scope}", "Admin.RemoveLimit"),
}


class Step(NamedTuple):
    """What is asked for; `fields` may name what earlier steps were answered."""

    name: str
    operation: str
    fields: Fields | Callable[[Seen], Fields] | None = None

    def filled(self, seen: Seen) -> Fields:
        return self.fields(seen) if callable(self.fields) else self.fields or {}


def _job(name: str, **more: Any) -> Callable[[Seen], Fields]:
    """The job that a step has made."""
    return lambda seen: {"id": seen[name]["id"], **more}


def _run(name: str, **more: Any) -> Callable[[Seen], Fields]:
    """The job that a claim has given."""
    return lambda seen: {"id": seen[name]["jobs"][0]["id"], **more}


def _claimed(name: str, **more: Any) -> Callable[[Seen], Fields]:
    """The same with its lease."""
    return lambda seen: {"id": seen[name]["jobs"][0]["id"], "lease": seen[name]["jobs"][0]["lease"], **more}


def _outcomes(seen: Seen) -> Fields:
    [first, second] = seen["claim two"]["jobs"]
    return {
        "outcomes": [
            {"id": first["id"], "lease": first["lease"], "result": {"deep": [1, None, 2**60]}},
            {"id": second["id"], "lease": "1-absent", "outcome": "failed", "error": "broken"},
            {"id": "unknown", "lease": "1-absent"},
        ]
    }


_SERIES: Final = {
    "metrics": ["completed", "wait_p95_ms"],
    "start": "2026-01-01T00:00:00+00:00",
    "end": "2026-01-01T00:05:00+00:00",
}
_TO_MAIL: Final = {"task": "t", "queue": "mail"}
_NOW: Final = {"queues": ["mail"], "wait_seconds": 0}
_DAILY: Final = {"name": "daily", "task": "report", "queue": "mail", "cron": "0 7 * * *", "args": [7]}

STEPS: Final = (
    Step(
        "create",
        "create_queue",
        {"name": "mail", "settings": {"max_length": 100, "fairness_weights": {"a": 2}}},
    ),
    Step("create again", "create_queue", {"name": "mail"}),
    Step("create with a bad name", "create_queue", {"name": "no spaces"}),
    Step("create spare", "create_queue", {"name": "spare"}),
    Step(
        "configure",
        "configure_queue",
        {"name": "mail", "max_length": None, "weight": 3, "lease_seconds": 3_600.5},
    ),
    Step("metrics", "queue_metrics", {"queue": "mail", "window_seconds": 60}),
    Step("metrics of nothing", "queue_metrics", {"queue": "none"}),
    Step("metrics of all", "all_metrics"),
    Step("series", "metric_series", {**_SERIES, "queue": "mail", "resolution_seconds": 60}),
    Step("series of what is unknown", "metric_series", {**_SERIES, "metrics": ["mood"]}),
    Step("configure beyond", "configure_queue", {"name": "mail", "weight": 0}),
    Step("configure unknown", "configure_queue", {"name": "none", "weight": 3}),
    Step(
        "enqueue",
        "enqueue",
        {
            "task": "mail.send",
            "queue": "mail",
            "args": ["ada", 7, 7.5, None, True, 2**60, {"~": "date", "v": "2026-01-02"}],
            "kwargs": {"subject": "Hi \u00e9\u4f60"},
            "metadata": {"n": 1, "deep": {"list": [1, 2.0]}},
            "tags": ["a", "b"],
            "priority": -5,
            "limit_keys": {"tenant": "t1"},
            "timeout_seconds": None,
            "deadline_at": "2099-01-02T03:04:05.678+00:00",
            "idempotency_key": "k1",
            "position": True,
        },
    ),
    Step(
        "enqueue with a key that is taken",
        "enqueue",
        {"task": "other", "queue": "mail", "idempotency_key": "k1"},
    ),
    Step("enqueue nowhere", "enqueue", {"task": "t", "queue": "none"}),
    Step(
        "enqueue with a bad tag", "enqueue", {"task": "t", "queue": "mail", "args": [{"~": "date", "v": "x"}]}
    ),
    Step("enqueue among deliveries", "enqueue", {"task": "t", "queue": "forebay-alerts"}),
    Step("enqueue beyond", "enqueue", {**_TO_MAIL, "priority": 1_000}),
    Step("enqueue too late", "enqueue", {**_TO_MAIL, "run_at": "2150-01-01T00:00:00+00:00"}),
    Step(
        "batch",
        "enqueue_many",
        {
            "jobs": [
                {"task": "one", "queue": "mail", "max_retries": 0},
                {"task": "two", "queue": "mail", "depends_on": [{"index": 0, "on_failure": "ignore"}]},
            ]
        },
    ),
    Step(
        "batch in part",
        "enqueue_many",
        {"atomic": False, "jobs": [{"task": "x", "queue": "spare"}, {"task": "t", "queue": "none"}]},
    ),
    Step("batch of none", "enqueue_many", {"jobs": []}),
    Step("job", "job", _job("enqueue")),
    Step("job unknown", "job", {"id": "unknown"}),
    Step("graph", "graph", lambda seen: {"id": seen["batch"]["accepted"][0]["id"], "limit": 10}),
    Step("update", "update_job", _job("enqueue", priority=9, metadata={"n": None, "m": 2})),
    Step("update to nowhere", "update_job", _job("enqueue", queue="none")),
    Step("update to deliveries", "update_job", _job("enqueue", queue="forebay-alerts")),
    Step("update to another queue", "update_job", _job("enqueue", queue="spare")),
    Step("update to its own queue again", "update_job", _job("enqueue", queue="mail")),
    Step(
        "update with both times",
        "update_job",
        _job("enqueue", delay_seconds=0, run_at="2099-01-01T00:00:00+00:00"),
    ),
    Step("result too early", "result", _job("enqueue")),
    Step("wait in vain", "wait", _job("enqueue", timeout_seconds=0)),
    Step("peek", "peek", {"queue": "mail", "limit": 2}),
    Step("peek nowhere", "peek", {"queue": "none"}),
    Step("claim", "claim", _NOW),
    Step(
        "heartbeat", "heartbeat", _claimed("claim", extend_seconds=3_000, done=1, total=2.5, message="half")
    ),
    Step("extend", "extend", _claimed("claim", additional_seconds=60)),
    Step("extend by nothing", "extend", _claimed("claim", additional_seconds=0)),
    Step("ack without a lease", "ack", _job("enqueue", lease="1-absent")),
    Step("ack", "ack", _claimed("claim", result={"sent": [1, 2.5, None]})),
    Step("ack again", "ack", _claimed("claim", result={"sent": [1, 2.5, None]})),
    Step("result", "result", _run("claim")),
    Step("wait", "wait", _run("claim")),
    Step("claim to fail", "claim", _NOW),
    Step("nack", "nack", _claimed("claim to fail", error="no", error_type="Broken", requeue=False)),
    Step("job that failed", "job", _run("claim to fail")),
    Step("enqueue more", "enqueue", {"task": "more", "queue": "mail", "priority": 50}),
    Step("claim two", "claim", {**_NOW, "limit": 2, "lease_seconds": 7_200.5}),
    Step("settle", "settle", _outcomes),
    Step("claim nothing", "claim", {"queues": ["spare"], "tasks": ["other"], "wait_seconds": 0}),
    Step("claim from nowhere", "claim", {"queues": ["a b"], "wait_seconds": 0}),
    Step("dead letters", "dead_letters", {"where": {"queues": ["mail"]}, "with_total": True}),
    Step("failure groups", "failure_groups", {"where": {"queues": ["mail"]}, "newest": 100}),
    Step("failure groups of no letters", "failure_groups", {"newest": 0}),
    Step("gradual revives", "gradual_revives"),
    Step("gradual revive unknown", "gradual_revive", {"name": "NONE"}),
    Step("pause an unknown gradual revive", "pause_gradual_revive", {"name": "NONE"}),
    Step("resume an unknown gradual revive", "resume_gradual_revive", {"name": "NONE"}),
    Step("stop an unknown gradual revive", "stop_gradual_revive", {"name": "NONE"}),
    # It finds no job, so nothing depends on when its turn comes; and no step looks at it from here on.
    Step(
        "start gradual revive",
        "start_gradual_revive",
        {"where": {"queues": ["mail"], "tags": ["none"]}, "initial_batch": 3},
    ),
    Step(
        "start a bad gradual revive",
        "start_gradual_revive",
        {"where": {"queues": ["mail"]}, "growth_factor": 0.5},
    ),
    Step("search", "search", {"where": {"states": ["completed", "dead"], "tasks": []}, "limit": 5}),
    Step("search by a bad state", "search", {"where": {"states": ["asleep"]}}),
    Step("revive", "revive", _run("claim to fail", delay_seconds=3_600)),
    Step("revive again", "revive", _run("claim to fail")),
    Step("replay", "replay", _job("enqueue", args=[1], kwargs={}, queue="spare")),
    Step("replay by half", "replay", _job("enqueue", args=[1])),
    Step("cancel", "cancel", _job("replay", reason="not now")),
    Step("cancel again", "cancel", _job("replay")),
    Step("result of a cancelled one", "result", _job("replay")),
    Step("requeue", "requeue", {"name": "spare", "where": {"states": ["cancelled"]}, "dry_run": True}),
    Step("delete", "delete_job", _job("replay")),
    Step("delete again", "delete_job", _job("replay")),
    Step("bulk of all", "bulk", {"action": "cancel"}),
    Step("bulk", "bulk", {"action": "cancel", "where": {"queues": ["spare"]}, "reason": "enough"}),
    Step("revive dead of a group", "revive_dead", {"where": {"queues": ["mail"]}, "group": "0" * 16}),
    Step("revive dead", "revive_dead", {"where": {"queues": ["mail"]}}),
    Step("purge dead", "purge_dead", {"dry_run": True}),
    Step("purge", "purge_queue", {"name": "spare", "where": {"states": ["cancelled"]}}),
    Step("pause", "pause_queue", {"name": "spare"}),
    Step("resume", "resume_queue", {"name": "spare"}),
    Step("drain", "drain_queue", {"name": "spare"}),
    Step("enqueue into a closed one", "enqueue", {"task": "t", "queue": "spare"}),
    Step("queues", "queues"),
    Step("queue", "queue", {"name": "mail"}),
    Step("queue unknown", "queue", {"name": "none"}),
    Step("drop with jobs", "delete_queue", {"name": "mail"}),
    Step("drop", "delete_queue", {"name": "spare", "force": True}),
    Step("save schedule", "save_schedule", _DAILY),
    Step("save a bad schedule", "save_schedule", {**_DAILY, "cron": "every day"}),
    Step("preview", "preview_schedule", {**_DAILY, "runs": 3, "start_at": "2090-01-01T00:00:00+00:00"}),
    Step("schedules", "schedules"),
    Step("schedule", "schedule", {"name": "daily"}),
    Step("schedule unknown", "schedule", {"name": "none"}),
    Step("pause schedule", "pause_schedule", {"name": "daily"}),
    Step("resume schedule", "resume_schedule", {"name": "daily"}),
    Step("fire", "fire_schedule", {"name": "daily"}),
    Step("schedule runs", "schedule_runs", {"name": "daily", "limit": 5}),
    Step("remove schedule", "remove_schedule", {"name": "daily"}),
    Step("set limit", "set_limit", {"scope": "queue:mail", "concurrency": 5, "rate": 10, "per_seconds": 0.5}),
    Step("set no limit", "set_limit", {"scope": "nothing", "rate": 0}),
    Step("limits", "limits"),
    Step("remove limit", "remove_limit", {"scope": "queue:mail"}),
    Step("remove limit again", "remove_limit", {"scope": "queue:mail"}),
    Step("workers", "workers", {"active_only": False}),
    Step("command", "command", {"kind": "pause", "workers": ["absent"]}),
    Step("command to all", "command", {"kind": "pause", "workers": None}),
    Step(
        "trigger",
        "trigger_alert",
        {"kind": "deploy", "message": "It is late", "severity": "info", "details": {"who": "ann"}},
    ),
    Step("acknowledge", "acknowledge_alert", _job("trigger")),
    # Of this severity none comes by itself.
    Step("alerts", "alerts", {"severity": "info", "acknowledged": True, "active": True, "limit": 5}),
    Step("resolve", "resolve_alert", _job("trigger")),
    Step("all alerts", "alerts", {"severity": "info", "all": True}),
    Step("resolve none", "resolve_alert", {"id": "none"}),
    Step(
        "create rule",
        "create_alert_rule",
        {"id": "deep", "name": "Deep", "condition": "queue_depth > 9", "queue": "mail", "enabled": False},
    ),
    Step("create rule again", "create_alert_rule", {"id": "deep", "name": "D", "condition": "pending > 9"}),
    Step("create a bad rule", "create_alert_rule", {"name": "Deep", "condition": "depth > 9"}),
    Step(
        "save rule",
        "save_alert_rule",
        {"id": "deep", "name": "Deep", "condition": "failed > 9", "per": "task", "hold_for_seconds": 5.0},
    ),
    Step("rules", "alert_rules"),
    Step("remove rule", "remove_alert_rule", {"id": "deep"}),
    Step("remove rule again", "remove_alert_rule", {"id": "deep"}),
    Step(
        "save channel",
        "save_alert_channel",
        {"name": "ops", "kind": "webhook", "url": "https://example.com/x", "secret": "s", "enabled": False},
    ),
    Step("save a bad channel", "save_alert_channel", {"name": "post", "kind": "email"}),
    Step("channels", "alert_channels"),
    Step("remove channel", "remove_alert_channel", {"name": "ops"}),
    Step(
        "create key",
        "create_key",
        {"name": "k", "grants": ["produce:mail"], "lasts_seconds": 3_600.0},
    ),
    Step("create key again", "create_key", {"name": "k", "grants": ["produce"]}),
    Step("create a bad key", "create_key", {"name": "other", "grants": ["sing"]}),
    Step("rotate key", "rotate_key", {"name": "k", "grace_seconds": 5}),
    Step("key", "key", {"name": "k"}),
    Step("key unknown", "key", {"name": "none"}),
    Step("revoke key", "revoke_key", {"name": "k"}),
    Step("keys", "keys"),
    Step("audit", "audit", {"kinds": ["replayed"], "limit": 5}),
    Step("check audit", "check_audit", {"after": 2**40, "limit": 5}),
    Step("commands", "commands", {"ids": ["unknown"]}),
)


class ByHttp:
    """Asks by HTTP."""

    def __init__(self, spoken: Spoken, token: str) -> None:
        self._spoken = spoken
        self._headers = {"Authorization": f"Bearer {token}", "X-Request-Id": "r"}

    def ask(self, operation: str, fields: Fields) -> tuple[str, Any]:
        way, left = WAYS[operation], dict(fields)
        path = way.path.format(**fields)
        for name in fields:
            if f"{{{name}}}" in way.path:
                del left[name]
        query = {name: left.pop(name) for name in way.query if name in left}
        query = {name: str(one).lower() if isinstance(one, bool) else one for name, one in query.items()}
        if operation == "metric_series":
            query["metrics"] = ",".join(query["metrics"])
        body = None if way.method in ("GET", "DELETE") else left
        answer = self._spoken.client.request(way.method, path, params=query, json=body, headers=self._headers)
        body_json = answer.json()
        return ("", body_json) if answer.is_success else (body_json["code"], body_json)


class ByGrpc:
    """Asks by gRPC."""

    def __init__(self, spoken: Spoken, token: str) -> None:
        self._stubs = {"Producer": spoken.producer, "Consumer": spoken.consumer, "Admin": spoken.admin}
        self._metadata = (("authorization", f"Bearer {token}"), ("x-request-id", "r"))

    def ask(self, operation: str, fields: Fields) -> tuple[str, Any]:
        way = WAYS[operation]
        service, _, name = way.rpc.partition(".")
        request = getattr(forebay_pb2, f"{name}Request")()
        try:
            answer = getattr(self._stubs[service], name)(
                message_of(request, _arranged(operation, fields)),
                metadata=self._metadata,
                timeout=PATIENCE,
            )
        except grpc.RpcError as exc:
            metadata = dict(exc.trailing_metadata())
            problem = forebay_pb2.Problem.FromString(metadata["forebay-problem-bin"])
            if (exc.code().name, metadata["forebay-code"]) != (STATUS[problem.code], problem.code):
                raise
            return problem.code, fields_of(problem)
        return "", fields_of(answer)


def _arranged(operation: str, fields: Fields) -> Fields:
    """The same under the names that gRPC has for it."""
    arranged = dict(fields)
    match operation:
        case "enqueue":
            return {"with_position": arranged.pop("position", False), "job": arranged}
        case "configure_queue":
            return {"name": arranged.pop("name"), "settings": arranged}
        case "workers":
            return {"with_dead": not arranged["active_only"]}
        case "command" if arranged["workers"] is None:
            return {"kind": arranged["kind"], "all_workers": True}
        case _:
            return arranged


def walk(asker: ByHttp | ByGrpc, admin: ByHttp | ByGrpc) -> dict[str, tuple[str, Any]]:
    """What each step was answered. What the asker did not get is done by the admin, so that it goes on."""
    answers: dict[str, tuple[str, Any]] = {}
    seen: dict[str, Any] = {}
    hidden = Hidden()
    for step in STEPS:
        fields = step.filled(seen)
        code, body = asker.ask(step.operation, fields)
        seen[step.name] = admin.ask(step.operation, fields)[1] if code and asker is not admin else body
        # What is wrong with the form of a request is told in the words of the protocol.
        answers[step.name] = (code, None if code == "bad_request" else hidden.plain(body))
    return answers


class Hidden:
    """Takes out of an answer what no two servers have in common: ids, moments, lengths of time."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def plain(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            found = {key: self.plain(one, key) for key, one in value.items()}
            # HTTP leaves out of a problem what there is nothing to say about.
            return {key: one for key, one in found.items() if one not in (None, "") and key not in BY_CHANCE}
        if isinstance(value, list):
            return [self.plain(one) for one in value]
        if name in LENGTHS and value is not None:
            return "so long"
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        if MOMENT.match(text):
            moment = datetime.fromisoformat(text)
            return moment.isoformat() if moment.year > FAR else "then"
        text = WORKER.sub("service-x", text)
        return ID.sub(lambda found: self._ids.setdefault(found[0], f"id{len(self._ids)}"), text)
