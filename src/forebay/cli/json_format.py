"""JSON views of jobs, queues, workers and other records: instants as ISO text in UTC, durations in `_ms`."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from forebay.domain.audit_hash_chain import ChainLine
from forebay.domain.failure_group import FailureGroup
from forebay.domain.gradual_revive import GradualRevive
from forebay.domain.job import Job
from forebay.domain.job_history import Attempt, Event, Timeline
from forebay.domain.job_views import JobSummary
from forebay.domain.progress import JobProgress
from forebay.domain.queue import Queue
from forebay.domain.queue_counts import Counts
from forebay.domain.schedule import Schedule, ScheduleRun
from forebay.domain.throughput import Throughput
from forebay.domain.worker import WorkerInfo
from forebay.errors import PayloadError
from forebay.operations.job_timeline import timeline_lines
from forebay.payload.codec import decode_call, decode_result
from forebay.payload.masking import mask
from forebay.stores.contract.claims_and_results import ActionResult

# How an engine stores a job is no part of the JSON answers.
_INTERNAL_FIELDS: Final = ("seq", "rank", "age_capped", "payload", "result", "unstarted")
_INTERNAL_QUEUE_FIELDS: Final = ("scoring_version",)
_INTERNAL_REVIVE_FIELDS: Final = (
    "query",
    "after",
    "is_searched",
    "picked",
    "watched",
    "size",
    "failed_again",
    "chosen",
    "checked_at",
)


def iso_instant(at: int | None) -> str | None:
    """Return an instant as ISO text with milliseconds."""
    if at is None:
        return None
    return datetime.fromtimestamp(at / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json_fields(value: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(value)
    return {name: _json_value(name, inner) for name, inner in fields.items() if name not in without}


def _json_value(name: str, value: Any) -> Any:
    return iso_instant(value) if (name.endswith("_at") or name == "at") and isinstance(value, int) else value


def summary_json(job: JobSummary) -> dict[str, Any]:
    """Return a job as an entry of a list."""
    return {**_json_fields(job), "duration_ms": job.duration_ms}


def job_json(job: Job) -> dict[str, Any]:
    """Return all public fields of a job."""
    fields = {
        **_json_fields(job, _INTERNAL_FIELDS),
        **decode_arguments(job.payload),
        **decode_result_field(job.result),
    }
    fields["errors"] = [_json_fields(error) for error in job.errors]
    # Complete: default values are not stored, and a reader cannot know them.
    fields["policy"] = msgspec.structs.asdict(job.policy)
    fields["status"] = job.status
    fields["run_number"] = job.run_number
    return fields


def decode_arguments(payload: bytes) -> dict[str, Any]:
    """Return the stored arguments, secrets masked; base64 if the payload is foreign or damaged."""
    return _decode_field("payload", payload, decode_call, ("args", "kwargs"))


def schedule_json(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule with its progress; its arguments are left out, as in every list."""
    definition = schedule.definition
    fields_of_definition = {
        name: getattr(definition, name) for name in definition.__struct_fields__ if name != "job"
    }
    state = {name: getattr(schedule, name) for name in schedule.__struct_fields__ if name != "definition"}
    job = {"task": definition.job.task, "queue": definition.job.queue, "priority": definition.job.priority}
    fields = {**fields_of_definition, **job, **state, "when": definition.describe_times()}
    return {name: _json_value(name, value) for name, value in fields.items()}


def schedule_run_json(run: ScheduleRun) -> dict[str, Any]:
    """Return one entry of a schedule's history."""
    return _json_fields(run)


def decode_result_field(stored: bytes | None) -> dict[str, Any]:
    """Return the stored result of a task."""
    if stored is None:
        return {"result": None}
    return _decode_field("result", stored, decode_result, ("result",))


def _decode_field(
    field: str, data: bytes, check: Callable[[bytes], Any], names: tuple[str, ...]
) -> dict[str, Any]:
    try:
        check(data)
    except PayloadError as exc:
        raw = base64.b64encode(data).decode("ascii")
        return {**dict.fromkeys(names), f"{field}_base64": raw, f"{field}_error": str(exc)}
    body = msgspec.json.decode(data[data.index(b"\n") + 1 :])
    return {name: mask(body[name]) for name in names}


def timeline_json(timeline: Timeline) -> dict[str, Any]:
    """Return a job with its full history."""
    return {
        **job_json(timeline.job),
        "attempts": [attempt_json(attempt) for attempt in timeline.attempts],
        **progress_json(timeline.progress),
        "timeline": [
            {"at": iso_instant(at), "what": what, "detail": detail}
            for at, what, detail in timeline_lines(timeline)
        ],
    }


def progress_json(progress: JobProgress) -> dict[str, Any]:
    """Return progress, finished steps and log lines of a job's attempts."""
    return {
        "progress": None if progress.progress is None else _json_fields(progress.progress),
        "steps": [
            {**_json_fields(step, ("result",)), **decode_result_field(step.result)} for step in progress.steps
        ],
        "log": [_json_fields(line) for line in progress.lines],
    }


def attempt_json(attempt: Attempt) -> dict[str, Any]:
    return _json_fields(attempt, ("job_id",))


def counts_json(counts: Counts) -> dict[str, Any]:
    """Return jobs by state, with the sums `live` and `total`."""
    return {**msgspec.to_builtins(counts), "live": counts.live, "total": counts.total}


def queue_json(queue: Queue, counts: Counts) -> dict[str, Any]:
    """Return a queue with its settings and job counts."""
    return {**_json_fields(queue, _INTERNAL_QUEUE_FIELDS), "counts": counts_json(counts)}


def estimate_drain_ms(counts: Counts, throughput: Throughput) -> int | None:
    """Estimate how long the pending jobs take at this throughput; None without a throughput."""
    return throughput.wait_ms(counts.pending) if counts.pending else 0


def worker_json(worker: WorkerInfo, now: int) -> dict[str, Any]:
    """Return a worker with its heartbeat status by the store's clock."""
    silent, up = max(0, now - worker.heartbeat_at), max(0, now - worker.started_at)
    return {
        **_json_fields(worker),
        "heartbeat_status": worker.heartbeat_status(now),
        "silent_ms": silent,
        "up_ms": up,
    }


def failure_group_json(group: FailureGroup) -> dict[str, Any]:
    """Return a group of dead letters with the same error."""
    return _json_fields(group)


def gradual_revive_json(gradual_revive: GradualRevive) -> dict[str, Any]:
    """Return the progress of a gradual revive; `waiting` jobs are revived and have not ended yet."""
    counts = {"waiting": len(gradual_revive.watched), "revived": gradual_revive.revived}
    conditions = {
        name: value
        for name, value in msgspec.to_builtins(gradual_revive.query).items()
        if value not in (None, (), [], {})
    }
    return {**_json_fields(gradual_revive, _INTERNAL_REVIVE_FIELDS), **counts, "query": conditions}


def action_result_json(action_result: ActionResult) -> dict[str, Any]:
    """Return the result of an action on one job."""
    return {
        "id": action_result.job_id,
        "applied": action_result.applied,
        "state": action_result.state,
        "reason": action_result.reason,
        "is_busy": action_result.is_busy,
    }


def audit_json(entry: tuple[int, Event]) -> dict[str, Any]:
    """Return an entry of the audit log."""
    number, event = entry
    return {
        "number": number,
        "at": iso_instant(event.occurred_at),
        "kind": event.kind,
        "actor": event.actor_name or None,
        "request": event.request_id or None,
        "queue": event.queue,
        "job_id": event.job_id,
        "detail": event.detail,
        "before": {name: before for name, (before, _) in event.changes.items()},
        "after": {name: after for name, (_, after) in event.changes.items()},
    }


def chain_json(entry: ChainLine) -> dict[str, Any]:
    """Return an entry of the audit log with its position in the hash chain, as exported."""
    place = {"position": entry.position, "previous": entry.previous, "hash": entry.hash}
    return {**place, **audit_json((entry.number, entry.event))}
