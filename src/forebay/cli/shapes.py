"""Jobs, queues and workers as JSON: names in our words, instants as ISO texts in UTC, lengths in `_ms`."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from forebay.app.codec import decode_call, decode_result
from forebay.app.masking import masked
from forebay.app.story import story
from forebay.domain.audit_chain import ChainLine
from forebay.domain.group import Group
from forebay.domain.history import Attempt, Event, Timeline
from forebay.domain.job import Job, JobSummary
from forebay.domain.note import Notes
from forebay.domain.pressure import Pace
from forebay.domain.query import Counts
from forebay.domain.queue import Queue
from forebay.domain.ramp import Ramp
from forebay.domain.schedule import Firing, Schedule
from forebay.domain.worker import WorkerInfo
from forebay.errors import PayloadError
from forebay.stores.protocol import Verdict

# How an engine keeps a job is no business of programs that read our answers.
_INNER: Final = ("seq", "rank", "capped", "payload", "result", "unstarted")
_QUEUE_INNER: Final = ("rank_version",)
_RAMP_INNER: Final = (
    "query",
    "after",
    "is_searched",
    "picked",
    "watched",
    "size",
    "died",
    "chosen",
    "seen_at",
)


def iso(at: int | None) -> str | None:
    """An instant as an ISO text with milliseconds."""
    if at is None:
        return None
    return datetime.fromtimestamp(at / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(value)
    return {name: _instant(name, inner) for name, inner in fields.items() if name not in without}


def _instant(name: str, value: Any) -> Any:
    return iso(value) if (name.endswith("_at") or name == "at") and isinstance(value, int) else value


def summary_json(job: JobSummary) -> dict[str, Any]:
    """A job as a line of a list."""
    return {**_plain(job), "duration_ms": job.duration_ms}


def job_json(job: Job) -> dict[str, Any]:
    """All of a job's record."""
    fields = {**_plain(job, _INNER), **arguments(job.payload), **result(job.result)}
    fields["errors"] = [_plain(error) for error in job.errors]
    # Whole: it is stored without what is usual, and a reader cannot know what that is.
    fields["policy"] = msgspec.structs.asdict(job.policy)
    fields["status"] = job.status
    fields["run_number"] = job.run_number
    return fields


def arguments(payload: bytes) -> dict[str, Any]:
    """The stored arguments as they are stored, but for secrets; bytes in base64 if they are not ours or
    broken."""
    return _decoded("payload", payload, decode_call, ("args", "kwargs"))


def schedule_json(schedule: Schedule) -> dict[str, Any]:
    """A schedule with how far it has come; its arguments are told where one alone is shown."""
    definition = schedule.definition
    said = {name: getattr(definition, name) for name in definition.__struct_fields__ if name != "job"}
    state = {name: getattr(schedule, name) for name in schedule.__struct_fields__ if name != "definition"}
    job = {"task": definition.job.task, "queue": definition.job.queue, "priority": definition.job.priority}
    fields = {**said, **job, **state, "when": definition.when()}
    return {name: _instant(name, value) for name, value in fields.items()}


def firing_json(firing: Firing) -> dict[str, Any]:
    """One line of a schedule's history."""
    return _plain(firing)


def result(stored: bytes | None) -> dict[str, Any]:
    """What a task has returned, as it is stored."""
    if stored is None:
        return {"result": None}
    return _decoded("result", stored, decode_result, ("result",))


def _decoded(
    field: str, data: bytes, check: Callable[[bytes], Any], names: tuple[str, ...]
) -> dict[str, Any]:
    try:
        check(data)
    except PayloadError as exc:
        raw = base64.b64encode(data).decode("ascii")
        return {**dict.fromkeys(names), f"{field}_base64": raw, f"{field}_error": str(exc)}
    body = msgspec.json.decode(data[data.index(b"\n") + 1 :])
    return {name: masked(body[name]) for name in names}


def timeline_json(timeline: Timeline) -> dict[str, Any]:
    """A job with its whole known life."""
    return {
        **job_json(timeline.job),
        "attempts": [attempt_json(attempt) for attempt in timeline.attempts],
        **notes_json(timeline.notes),
        "timeline": [{"at": iso(at), "what": what, "detail": detail} for at, what, detail in story(timeline)],
    }


def notes_json(notes: Notes) -> dict[str, Any]:
    """What attempts have said: how far they came, the steps that are done, their log lines."""
    return {
        "progress": None if notes.progress is None else _plain(notes.progress),
        "steps": [{**_plain(step, ("result",)), **result(step.result)} for step in notes.steps],
        "log": [_plain(line) for line in notes.lines],
    }


def attempt_json(attempt: Attempt) -> dict[str, Any]:
    return _plain(attempt, ("job_id",))


def counts_json(counts: Counts) -> dict[str, Any]:
    """Jobs by state, with the two sums that everybody wants."""
    return {**msgspec.to_builtins(counts), "live": counts.live, "total": counts.total}


def queue_json(queue: Queue, counts: Counts) -> dict[str, Any]:
    """A queue with its settings and how many jobs it has."""
    return {**_plain(queue, _QUEUE_INNER), "counts": counts_json(counts)}


def drain_ms(counts: Counts, pace: Pace) -> int | None:
    """How long it takes to work off what is pending, at this pace; None without one."""
    return pace.wait_ms(counts.pending) if counts.pending else 0


def worker_json(worker: WorkerInfo, now: int) -> dict[str, Any]:
    """A worker with what the store's clock makes of its beats."""
    silent, up = max(0, now - worker.beat_at), max(0, now - worker.started_at)
    return {**_plain(worker), "pulse": worker.pulse(now), "silent_ms": silent, "up_ms": up}


def group_json(group: Group) -> dict[str, Any]:
    """Dead letters that have died of the same."""
    return _plain(group)


def ramp_json(ramp: Ramp) -> dict[str, Any]:
    """How far a revival in batches has come; `waiting` jobs were put back and have not ended again."""
    told = {"waiting": len(ramp.watched), "revived": ramp.revived}
    asked = {
        name: value
        for name, value in msgspec.to_builtins(ramp.query).items()
        if value not in (None, (), [], {})
    }
    return {**_plain(ramp, _RAMP_INNER), **told, "query": asked}


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """What became of an operator's wish about one job."""
    return {
        "id": verdict.job_id,
        "done": verdict.done,
        "state": verdict.state,
        "reason": verdict.reason,
        "is_busy": verdict.is_busy,
    }


def audit_json(line: tuple[int, Event]) -> dict[str, Any]:
    """A line of the audit log."""
    number, event = line
    return {
        "number": number,
        "at": iso(event.at),
        "kind": event.kind,
        "actor": event.who or None,
        "request": event.request or None,
        "queue": event.queue,
        "job_id": event.job_id,
        "detail": event.detail,
        "before": {name: before for name, (before, _) in event.changes.items()},
        "after": {name: after for name, (_, after) in event.changes.items()},
    }


def chain_json(line: ChainLine) -> dict[str, Any]:
    """A line of the audit log with its place in the chain, as it is exported."""
    place = {"position": line.position, "previous": line.previous, "hash": line.hash}
    return {**place, **audit_json((line.number, line.event))}
