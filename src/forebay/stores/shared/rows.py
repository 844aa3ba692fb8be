"""Rows to records and back, where the SQL engines agree; each engine's own part is in its `rows.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from forebay.domain.concurrency_and_rate_limits import Bucket, Limit, LimitUsage, usage_of
from forebay.domain.dependencies import Edge, EdgeState
from forebay.domain.fairness import FAIRNESS
from forebay.domain.job import (
    DAY_MS,
    DEFAULT_TIMEOUT_MS,
    Job,
    JobId,
    NewJob,
    OnFailure,
    PastError,
    QueueName,
    UniqueUntil,
    WorkerId,
)
from forebay.domain.job_history import Attempt, Changes, Event, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.job_views import ArchiveEntry, JobSummary
from forebay.domain.outcome import AttemptError
from forebay.domain.progress import JobProgress, LogLine, Progress, StepResult, number_at
from forebay.domain.queue import Queue, QueueSettings, QueueState
from forebay.domain.retry_policy import DEFAULT_POLICY, RetryPolicy
from forebay.domain.settlement import OutcomeKind
from forebay.domain.stored_document import Document
from forebay.domain.worker import DEFAULT_HEARTBEAT_MS, WorkerInfo, WorkerState
from forebay.domain.worker_command import Command, CommandKind
from forebay.prepared_types import prepare_type
from forebay.stores.shared.limit_counters import StoredLimit

Row = tuple[Any, ...]
T = TypeVar("T")

_KINDS: Final = {kind.value: kind for kind in EventKind}
_COMMANDS: Final = {kind.value: kind for kind in CommandKind}
_WORKER_STATES: Final = {state.value: state for state in WorkerState}
_ON_FAILURE: Final = {each.value: each for each in OnFailure}
_EDGE_STATES: Final = {state.value: state for state in EdgeState}
STATES: Final = {state.value: state for state in JobState}
_encode: Final = msgspec.json.Encoder().encode
_errors_decoder: Final = msgspec.json.Decoder(tuple[PastError, ...])
_attempt_error_decoder: Final = msgspec.json.Decoder(AttemptError)
_names_decoder: Final = msgspec.json.Decoder(tuple[QueueName, ...])


def json_text(value: object) -> str:
    """Return a value as JSON text."""
    return _encode(value).decode()


class JobOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a job other than its place in a queue; the column `options` holds those that are not
    default.

    `unstarted` is the one value that changes while the job is processed. It has no column of its own: few
    jobs have one, and a claim reads the options anyway.
    """

    policy: RetryPolicy = DEFAULT_POLICY
    lease_ms: int | None = None
    extension_ms: int = DAY_MS
    timeout_ms: int | None = DEFAULT_TIMEOUT_MS
    unique_until: UniqueUntil = UniqueUntil.FINAL
    idempotency_key: str | None = None
    metadata: dict[str, Any] = {}
    tags: tuple[str, ...] = ()
    correlation_id: str | None = None
    parent_id: JobId | None = None
    limit_keys: dict[str, str] = {}
    sequence: str | None = None
    cost: int = 1
    unstarted: int = 0


class WorkerDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Details of a worker's heartbeat; the column `details` holds those that are not default."""

    heartbeat_ms: int = DEFAULT_HEARTBEAT_MS
    paused: tuple[QueueName, ...] = ()
    running: tuple[JobId, ...] = ()
    slots: int = 0
    stuck: int = 0
    abandoned: int = 0
    is_worn: bool = False
    is_overdue: bool = False
    completed: int = 0
    failed: int = 0
    memory: int | None = None
    cpu: float | None = None
    supervisor: int = 0
    is_remote: bool = False
    recent: tuple[JobId, ...] = ()


_worker_details_decoder: Final = msgspec.json.Decoder(WorkerDetails)
_progress_decoder: Final = msgspec.json.Decoder(Progress)
_log_line_decoder: Final = msgspec.json.Decoder(dict[str, str])
DEFAULT_OPTIONS: Final = JobOptions()
CANDIDATE_COLUMNS: Final = 19  # columns of `candidates` that `job_from_candidate` reads
_RUNNING: Final = JobState.RUNNING
_FINAL: Final = UniqueUntil.FINAL  # an enum look-up takes as long as all other checks of most jobs
_options_decoder: Final = msgspec.json.Decoder(JobOptions)
_changes_decoder: Final = msgspec.json.Decoder(Changes)


def _decode_or_fallback(
    decoder: msgspec.json.Decoder[T], text: str | bytes, fallback: Callable[[str], T]
) -> T:
    """Decode a text. A damaged text is shown as it is, and never stops a listing, a history or a worker."""
    try:
        return decoder.decode(text)
    except ValueError:  # not the right shape, no JSON, or no text at all
        shown = text if isinstance(text, str) else text.decode(errors="replace")
        return fallback(shown[:200])


# A program has a handful of queues and reads their settings in every transaction.
@lru_cache(maxsize=1024)
def settings_from_text(text: str) -> QueueSettings:
    """Return the settings of a queue; settings that only a newer program knows are left out."""
    stored = msgspec.json.decode(text, type=dict[str, Any])
    known = {name: stored[name] for name in QueueSettings.__struct_fields__ if name in stored}
    return msgspec.convert(known, prepare_type(QueueSettings))


def errors_from_text(text: str | None) -> tuple[PastError, ...]:
    """Return the last errors; a damaged list is shown as one error."""
    if text is None:
        return ()
    return _decode_or_fallback(
        _errors_decoder, text, lambda shown: (PastError(attempt=0, at=0, type="Unreadable", message=shown),)
    )


def options_from_text(text: str | None) -> JobOptions:
    """Return the settings of a job; unreadable ones are replaced by the defaults and shown in the
    metadata."""
    if text is None:
        return DEFAULT_OPTIONS
    try:  # without `_decode_or_fallback`, because every claim runs this
        return _options_decoder.decode(text)
    except ValueError:
        return JobOptions(metadata={"unreadable": text[:200]})


def fairness_key_in(text: str | None) -> str | None:
    """Return the fairness key of a job with these settings, if it has one."""
    if text is None or '"fairness"' not in text:
        return None
    return options_from_text(text).limit_keys.get(FAIRNESS)


def options_text(options: JobOptions) -> str | None:
    return None if options == DEFAULT_OPTIONS else json_text(options)


def options_of(job: Job | NewJob) -> JobOptions:
    """Return the settings of a job, to store them."""
    return JobOptions(
        policy=job.policy,
        lease_ms=job.lease_ms,
        extension_ms=job.extension_ms,
        timeout_ms=job.timeout_ms,
        unique_until=job.unique_until,
        idempotency_key=job.idempotency_key,
        metadata=job.metadata,
        tags=job.tags,
        correlation_id=job.correlation_id,
        parent_id=job.parent_id,
        limit_keys=job.limit_keys,
        sequence=job.sequence,
        cost=job.cost,
    )


def new_options_text(job: NewJob) -> str | None:
    """Return the settings of a new job that differ from the defaults; None for most jobs."""
    if (
        job.policy is DEFAULT_POLICY
        and job.timeout_ms == DEFAULT_TIMEOUT_MS
        and job.lease_ms is None
        and job.extension_ms == DAY_MS
        and job.idempotency_key is None
        and job.unique_until is _FINAL
        and not job.metadata
        and not job.tags
        and job.correlation_id is None
        and job.parent_id is None
        and not job.limit_keys
        and job.sequence is None
        and job.cost == 1
    ):
        return None
    return options_text(options_of(job))


def build_job(
    identity: Row, options: JobOptions, progress: Row, limits: Row, errors: str | None, outcome: Row
) -> Job:
    """Return a job from columns in the order of `Job`, with the values of its options in between."""
    deadline_at, expires_at, unique_key, cancel_reason = limits
    values: Row = (
        *identity,
        options.policy,
        *progress,
        options.lease_ms,
        options.extension_ms,
        options.timeout_ms,
        deadline_at,
        expires_at,
        unique_key,
        options.unique_until,
        options.idempotency_key,
        # The caller may change it, so the shared default is not returned.
        options.metadata or {},
        options.tags,
        options.correlation_id,
        options.parent_id,
        cancel_reason,
        () if errors is None else errors_from_text(errors),
        *outcome,
    )
    return with_rare_fields(Job(*values), options)


def with_rare_fields(job: Job, options: JobOptions) -> Job:
    """Return a job with the fields that few jobs have; as positional fields they would cost all jobs time."""
    if options.limit_keys or options.sequence is not None or options.cost != 1 or options.unstarted:
        return replace(
            job,
            limit_keys=options.limit_keys,
            sequence=options.sequence,
            cost=options.cost,
            unstarted=options.unstarted,
        )
    return job


def job_from_candidate(
    row: Sequence[Any], worker: WorkerId, now: int, lease_ms: int | None, queue_lease_ms: int
) -> Job:
    """Return a job from the first columns of `candidates`, as it is after this worker's claim. `lease_ms`
    comes before the job's own lease time, and that before the queue's.

    It repeats `build_job` in its own code, because a claim runs it for each row.
    """
    (
        job_id, seq, queue, task, payload, priority, options, attempt, failures, crashes, created_at,
        ready_at, run_at, rank, age_capped, deadline_at, expires_at, unique_key, errors,
    ) = row  # fmt: skip
    opts = DEFAULT_OPTIONS if options is None else options_from_text(options)
    lease_ms = opts.lease_ms if lease_ms is None else lease_ms
    ends_at = now + (queue_lease_ms if lease_ms is None else lease_ms)
    job = Job(
        job_id, seq, queue, task, _RUNNING, payload, priority, opts.policy, attempt + 1, failures, crashes,
        created_at, now, ready_at, run_at, rank, bool(age_capped), None, worker, now, ends_at, opts.lease_ms,
        opts.extension_ms, opts.timeout_ms, deadline_at, expires_at, unique_key, opts.unique_until,
        opts.idempotency_key, opts.metadata or {}, opts.tags, opts.correlation_id, opts.parent_id, None,
        errors_from_text(errors),
    )  # fmt: skip
    return job if opts is DEFAULT_OPTIONS else with_rare_fields(job, opts)


def summary_from_row(row: Row) -> JobSummary:
    return JobSummary(
        id=row[0],
        queue=row[1],
        task=row[2],
        state=STATES[row[3]],
        priority=row[4],
        attempt=row[5],
        failures=row[6],
        created_at=row[7],
        run_at=row[8],
        started_at=row[9],
        finished_at=row[10],
        worker=row[11],
        reason=row[12],
        tags=options_from_text(row[13]).tags,
    )


def queue_from_row(row: Row) -> Queue:
    return Queue(
        name=row[0],
        state=QueueState(row[1]),
        settings=settings_from_text(row[2]),
        scoring_version=row[3],
        is_rescoring=row[4] is not None,
        created_at=row[5],
        updated_at=row[6],
    )


def row_from_queue(queue: Queue, rescored_to_seq: int | None) -> dict[str, object]:
    return {
        "name": queue.name,
        "state": queue.state.value,
        "settings": json_text(queue.settings),
        "scoring_version": queue.scoring_version,
        "rescored_to_seq": rescored_to_seq,
        "created_at": queue.created_at,
        "updated_at": queue.updated_at,
    }


def stored_limit_from_row(row: Row) -> StoredLimit:
    scope, concurrency, rate, per_ms, burst, parts, at = row
    limit = Limit(scope=scope, concurrency=concurrency, rate=rate, per_ms=per_ms, burst=burst)
    return StoredLimit(limit, Bucket(parts, at))


def usage_from_row(row: Row, now: int) -> LimitUsage:
    *limit_columns, running = row
    return usage_of(*stored_limit_from_row(tuple(limit_columns)), running, now)


def row_from_stored_limit(stored: StoredLimit) -> dict[str, object]:
    return {**asdict(stored.limit), **stored.bucket._asdict()}


def document_from_row(row: Row) -> Document:
    kind, name, body, revision, created_at, updated_at = row
    return Document(
        kind=kind, name=name, body=body, revision=revision, created_at=created_at, updated_at=updated_at
    )


def row_from_document(document: Document, now: int) -> dict[str, object]:
    """Return the values to save a document that was read with its revision."""
    return {
        "kind": document.kind,
        "name": document.name,
        "body": document.body,
        "revision": document.revision,
        "now": now,
    }


def changes_text(changes: Changes) -> str | None:
    """Return the changes of an event as text; most events have none."""
    return json_text(changes) if changes else None


def event_from_row(row: Row) -> Event:
    kind = _KINDS.get(row[0], EventKind.COMMENT)
    return Event(
        kind=kind,
        occurred_at=row[1],
        job_id=row[2],
        queue=row[3],
        attempt=row[4],
        actor=row[5],
        # The name of a kind that only a newer program knows.
        detail=row[6] if kind == row[0] else f"{row[0]}: {row[6]}",
        changes=_decode_or_fallback(_changes_decoder, row[7], lambda shown: {"unreadable": (None, shown)})
        if row[7]
        else {},
    )


def attempt_from_row(job_id: JobId, row: Row) -> Attempt:
    return Attempt(
        job_id=job_id,
        attempt=row[0],
        outcome=OutcomeKind(row[1]),
        worker=row[2],
        started_at=row[3],
        ended_at=row[4],
        error=_decode_or_fallback(
            _attempt_error_decoder, row[5], lambda shown: AttemptError(type="Unreadable", message=shown)
        ),
    )


def progress_text(progress: Progress) -> str:
    """Return the members of a progress without a column of their own."""
    return json_text({"done": progress.done, "total": progress.total, "message": progress.message})


def log_line_text(line: LogLine) -> str:
    """Return the members of a log line without a column of their own."""
    return json_text({"level": line.level, "text": line.text})


def progress_from_rows(rows: Sequence[Row]) -> JobProgress:
    """Return a job's progress; a damaged row is shown as it is, and never hides the others."""
    progress: Progress | None = None
    lines: list[LogLine] = []
    steps: list[StepResult] = []
    for kind, position, name, attempt, recorded_at, body in rows:
        if kind == "progress":
            progress = replace(_decode_progress(body), attempt=attempt, at=recorded_at)
        elif kind == "log":
            log_line = replace(_decode_log_line(body), attempt=attempt, at=recorded_at)
            lines.append(replace(log_line, number=number_at(position, attempt)))
        else:
            steps.append(StepResult(name=name, result=body, attempt=attempt, at=recorded_at))
    return JobProgress(progress=progress, lines=tuple(lines), steps=tuple(steps))


def _decode_progress(body: str | bytes) -> Progress:
    return _decode_or_fallback(_progress_decoder, body, lambda shown: Progress(message=shown))


def _decode_log_line(body: str | bytes) -> LogLine:
    members = _decode_or_fallback(
        _log_line_decoder, body, lambda shown: {"level": "unreadable", "text": shown}
    )
    return LogLine(at=0, level=members.get("level", ""), text=members.get("text", ""))


def worker_details_json(worker: WorkerInfo) -> str:
    """Return the details of a worker without a column of their own."""
    return json_text(
        WorkerDetails(**{name: getattr(worker, name) for name in WorkerDetails.__struct_fields__})
    )


def worker_from_row(row: Row) -> WorkerInfo:
    return WorkerInfo(
        id=row[0],
        host=row[1],
        pid=row[2],
        queues=_decode_or_fallback(_names_decoder, row[3], lambda _: ()),
        # A program of another release may know other states.
        state=_WORKER_STATES.get(row[4], WorkerState.IDLE),
        started_at=row[5],
        heartbeat_at=row[6],
        **asdict(_decode_or_fallback(_worker_details_decoder, row[7], lambda _: WorkerDetails())),
    )


def is_unknown_command(row: Row) -> bool:
    """Return whether a command is of a kind that only a newer program knows."""
    return row[2] not in _COMMANDS


def command_from_row(row: Row) -> Command:
    return Command(
        id=row[0],
        worker=row[1],
        kind=_COMMANDS[row[2]],
        queue=row[3],
        actor=row[4],
        sent_at=row[5],
        expires_at=row[6],
        delivered_at=row[7],
        response=row[8],
    )


def row_from_command(command: Command) -> dict[str, object]:
    return {**asdict(command), "kind": command.kind.value}


def edge_from_row(row: Row) -> Edge:
    return Edge(
        child=row[0],
        position=row[1],
        parent=row[2],
        on_failure=_ON_FAILURE[row[3]],
        state=_EDGE_STATES[row[4]],
    )


def edge_cursor_params(edge: Edge | None) -> dict[str, object]:
    """Return the parameters with which a list of edges continues."""
    if edge is None:
        return {"after": None, "after_child_id": None, "after_position": None}
    return {"after": edge.parent, "after_child_id": edge.child, "after_position": edge.position}


def archive_entry_from_row(row: Row) -> ArchiveEntry:
    return ArchiveEntry(
        id=row[0],
        queue=row[1],
        task=row[2],
        state=STATES[row[3]],
        created_at=row[4],
        finished_at=row[5],
        day=row[6],
        duration_ms=row[7],
        attempt=row[8],
        failures=row[9],
        excerpt=row[10],
        reason=row[11],
    )
