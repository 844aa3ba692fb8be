"""Records to rows for scripts, and script replies to records: the one module that knows the field order.

Headers, queues, events and the like are MessagePack that scripts read and write. `False` stands for no value,
because a Lua list has no holes. Bodies are opaque to scripts, except for the id in front.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from forebay.domain.dependencies import Edge, EdgeState
from forebay.domain.job import Job, JobId, NewJob, OnFailure, PastError, QueueName
from forebay.domain.job_history import Attempt, Event
from forebay.domain.job_views import ArchiveEntry, JobStateInfo
from forebay.domain.progress import JobProgress, LogLine, StepResult
from forebay.domain.queue import Queue, QueueSettings, QueueState
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import Command
from forebay.stores.shared.rows import (
    DEFAULT_OPTIONS,
    STATES,
    attempt_from_row,
    changes_text,
    command_from_row,
    event_from_row,
    is_unknown_command,
    json_text,
    new_options_text,
    options_from_text,
    options_of,
    options_text,
    progress_from_rows,
    settings_from_text,
    worker_details_json,
    worker_from_row,
)

_LENGTH: Final = struct.Struct(">H")
_EXCERPT: Final = 200
_EVENT_FIELDS: Final = 7  # an event without changes has no more
_DEFAULT_SETTINGS: Final = "{}"

Text = str | bool  # False for no value
Number = int | bool


class JobHeader(msgspec.Struct, array_like=True, gc=False):
    """Header of a job: the fields of `shared/2_base.lua`, in their order.

    False stands for a time that equals the creation time."""

    queue: str
    task: str
    priority: int
    lease_ms: Number
    extension_ms: int
    until_started: bool
    seq: str
    created_at: int
    ready_at: Number
    run_at: Number
    rank: int
    state: str
    attempt: int
    worker: Text
    started_at: Number
    updated_at: Number
    finished_at: Number
    lane: Text
    age_capped: bool
    rescore_at: Number
    deadline_at: Number
    expires_at: Number
    unique_key: Text
    cancel_reason: Text
    swept_from: Text
    reason: Text
    failures: int
    crashes: int
    errors: int
    result: msgspec.Raw


class JobBody(msgspec.Struct, array_like=True, gc=False):
    """Part of a job that is written once: the options as JSON, None for the defaults, and the payload."""

    options: str | None
    payload: bytes


_header_decoder: Final = msgspec.msgpack.Decoder(JobHeader)
# MessagePack's start of a list with so many values.
_VALUES: Final = bytes((0xDC, 0, len(JobHeader.__struct_fields__)))
_LENGTHS: Final = 3  # bytes before the values of a header
_decode_body: Final = msgspec.msgpack.Decoder(JobBody).decode
_decode_list: Final = msgspec.msgpack.Decoder(list[Any]).decode
_encode: Final = msgspec.msgpack.Encoder().encode
_error: Final = msgspec.json.Decoder(dict[str, str])
_NO_BODY: Final = JobBody(None, b"")


def header_prefix(
    queue: str, task: str, lease_ms: int | None, extension_ms: int, until_started: bool
) -> tuple[bytes, bytes]:
    """Pack the first part of a stored header: the bytes before the priority, and after it."""
    after = _encode(lease_ms or False) + _encode(extension_ms) + _encode(until_started)
    return _encode(queue) + _encode(task), after


def body_of(job_id: JobId, job: NewJob) -> bytes:
    return _encode_body(job_id, JobBody(new_options_text(job), job.payload))


def imported_body(job: Job) -> bytes:
    return _encode_body(job.id, JobBody(options_text(options_of(job)), job.payload))


def body_with(job_id: JobId, body: bytes, metadata: dict[str, Any]) -> bytes:
    """Return a body with other metadata."""
    old = _parse_body(body)
    options = msgspec.structs.replace(options_from_text(old.options), metadata=metadata)
    return _encode_body(job_id, JobBody(options_text(options), old.payload))


def _encode_body(job_id: JobId, body: JobBody) -> bytes:
    name = job_id.encode()
    return _LENGTH.pack(len(name)) + name + _encode(body)


def _parse_body(body: bytes | None) -> JobBody:
    """Parse a body. A missing or damaged body has no payload: no handler will see it."""
    if body is None:
        return _NO_BODY
    try:
        return _decode_body(memoryview(body)[2 + _LENGTH.unpack_from(body)[0] :])
    except (msgspec.MsgspecError, struct.error):
        return _NO_BODY


def _decode_header(packed: bytes) -> JobHeader:
    return _header_decoder.decode(_VALUES + packed[_LENGTHS:])


def pack_result(result: bytes | None) -> bytes:
    """Pack a result as a MessagePack string, though it is no text; False for None."""
    if result is None:
        return b"\xc2"
    length = len(result)
    if length < 1 << 5:
        return bytes((0xA0 | length,)) + result
    if length < 1 << 8:
        return bytes((0xD9, length)) + result
    width = ">BH" if length < 1 << 16 else ">BI"
    return struct.pack(width, 0xDA if length < 1 << 16 else 0xDB, length) + result


def _unpack_result(raw: msgspec.Raw) -> bytes | None:
    """Unpack the bytes of `pack_result`."""
    stored = bytes(raw)
    kind = stored[0]
    if kind == 0xC2:  # noqa: PLR2004 - the numbers of MessagePack: false, and strings by the width of their length
        return None
    return stored[{0xD9: 2, 0xDA: 3, 0xDB: 5}.get(kind, 1) :]


def _false_to_none(value: Any) -> Any:
    return None if value is False else value


def job_from_row(row: Sequence[Any]) -> Job:
    """Build a job from id, header, body, lease end, failed attempts and number of unstarted attempts."""
    job_id, packed, stored, lease_expires_at, errors, unstarted = row
    header = _decode_header(packed)
    body = _parse_body(stored)
    options = DEFAULT_OPTIONS if body.options is None else options_from_text(body.options)
    created_at = header.created_at
    return Job(
        JobId(job_id.decode()),
        int(header.seq),
        QueueName(header.queue),
        header.task,
        STATES[header.state],
        body.payload,
        header.priority,
        options.policy,
        header.attempt,
        header.failures,
        header.crashes,
        created_at,
        header.updated_at or created_at,
        header.ready_at or created_at,
        header.run_at or created_at,
        header.rank,
        header.age_capped,
        _false_to_none(header.lane),
        _false_to_none(header.worker),
        _false_to_none(header.started_at),
        lease_expires_at,
        options.lease_ms,
        options.extension_ms,
        options.timeout_ms,
        _false_to_none(header.deadline_at),
        _false_to_none(header.expires_at),
        _false_to_none(header.unique_key),
        options.unique_until,
        options.idempotency_key,
        # The receiver may change it, so the defaults are not shared.
        options.metadata or {},
        options.tags,
        options.correlation_id,
        options.parent_id,
        _false_to_none(header.cancel_reason),
        tuple(map(_past_error, errors)) if errors else (),
        _false_to_none(header.finished_at),
        _false_to_none(header.reason),
        _unpack_result(header.result),
        options.limit_keys or {},
        options.sequence,
        options.cost,
        unstarted,
    )


def state_info_from_row(row: Sequence[Any]) -> JobStateInfo:
    """Build the state of a job from id, header and last failed attempt."""
    job_id, packed, error = row
    header = _decode_header(packed)
    return JobStateInfo(
        id=JobId(job_id.decode()),
        seq=int(header.seq),
        queue=QueueName(header.queue),
        task=header.task,
        state=STATES[header.state],
        finished_at=_false_to_none(header.finished_at),
        reason=_false_to_none(header.reason),
        error=_past_error(error) if error else None,
    )


def jobs_from_lists(
    ids: Sequence[bytes],
    headers: Sequence[bytes],
    bodies: Sequence[bytes | None],
    ends: Sequence[int],
    errors: Sequence[tuple[int, Sequence[bytes]]],
    unstarted: Sequence[tuple[int, int]] = (),
) -> list[Job]:
    """Build claimed jobs. `errors` and `unstarted` have failed attempts and numbers of unstarted attempts.

    Both name their jobs by number, from 1 on."""
    errors_by_number = dict(errors)
    attempts = map(errors_by_number.get, range(1, len(ids) + 1))
    counts = [0] * len(ids)
    for number, count in unstarted:
        counts[number - 1] = count
    return [job_from_row(row) for row in zip(ids, headers, bodies, ends, attempts, counts, strict=True)]


def _past_error(packed: bytes) -> PastError:
    attempt, _, _, _, at, text, _ = _decode_list(packed)
    return PastError(attempt=attempt, at=at, **_error.decode(text))


def attempt_from_packed(job_id: JobId, packed: bytes) -> Attempt:
    attempt, outcome, worker, started_at, ended_at, text, _ = _decode_list(packed)
    return attempt_from_row(job_id, (attempt, outcome, worker, _false_to_none(started_at), ended_at, text))


def event_from_packed(packed: bytes) -> Event:
    row = tuple(map(_false_to_none, _decode_list(packed)))
    return event_from_row(row if len(row) > _EVENT_FIELDS else (*row, None))


def event_row(event: Event) -> list[Any]:
    return [
        event.kind.value,
        event.occurred_at,
        event.job_id or False,
        event.queue or False,
        False if event.attempt is None else event.attempt,
        False if event.actor is None else event.actor,
        event.detail,
        changes_text(event.changes) or False,
    ]


def progress_from_stored(
    progress: bytes | None, log_lines: Sequence[bytes], steps: Sequence[bytes]
) -> JobProgress:
    """Build a job's progress. `progress` and steps begin with the store's time, log lines with a position."""
    rows: list[tuple[Any, ...]] = []
    if progress is not None:
        at, _, text = progress.partition(b" ")
        attempt, _, body = text.partition(b" ")
        rows.append(("progress", 0, None, int(attempt), int(at), body))
    for line in log_lines:
        position, recorded_at, attempt, body = line.split(b" ", 3)
        rows.append(("log", int(position or 0), None, int(attempt), int(recorded_at), body))
    for order, name, value in sorted(
        (steps[i + 1][:4], steps[i], steps[i + 1][4:]) for i in range(0, len(steps), 2)
    ):
        at, attempt, result = value.split(b" ", 2)
        rows.append(("step", int(order), name.decode(), int(attempt), int(at), result))
    return progress_from_rows(rows)


def format_log_line(line: LogLine, text: str) -> str:
    return f"{line.at} {line.attempt} {text}"


def format_step(step: StepResult) -> bytes:
    return b"%d " % step.attempt + step.result


# Queues


def queue_row(queue: Queue, rescored_to_seq: int | None) -> list[Any]:
    settings, scoring = queue.settings, queue.settings.scoring
    return [
        queue.state.value,
        _DEFAULT_SETTINGS if settings == QueueSettings() else json_text(settings),
        queue.scoring_version,
        False if rescored_to_seq is None else rescored_to_seq,
        queue.created_at,
        queue.updated_at,
        settings.lease_ms,
        settings.max_length or False,
        settings.default_priority,
        settings.min_priority,
        settings.max_priority,
        scoring.aging_ms,
        False if scoring.cap is None else scoring.cap,
        scoring.retry_penalty,
        scoring.deadline_weight,
        scoring.deadline_horizon_ms,
        settings.keep_finished_ms,
        settings.keep_dead_ms,
        settings.archive,
        settings.keep_archive_ms,
        settings.enqueue_rate or False,
        settings.enqueue_burst or False,
        settings.client_rate or False,
        settings.client_burst or False,
        settings.fairness_weights or False,
        *(settings.stagger or (False, False)),
    ]


FRESH_QUEUE: Final = queue_row(Queue(name=QueueName("")), None)


def queue_from_packed(name: QueueName, packed: bytes) -> Queue:
    state, settings, version, rescored_to_seq, created_at, updated_at, *_ = _decode_list(packed)
    return Queue(
        name=name,
        state=QueueState(state),
        settings=settings_from_text(settings),
        scoring_version=version,
        is_rescoring=rescored_to_seq is not False,
        created_at=created_at,
        updated_at=updated_at,
    )


def rescored_to_seq_in(packed: bytes) -> int | None:
    seq: int | None = _false_to_none(_decode_list(packed)[3])
    return seq


# Workers and commands


def worker_row(worker: WorkerInfo) -> list[Any]:
    return [
        worker.id,
        worker.host,
        worker.pid,
        json_text(worker.queues),
        worker.state.value,
        worker.started_at,
        worker.heartbeat_at,
        worker_details_json(worker),
    ]


def worker_from_packed(packed: bytes) -> WorkerInfo:
    return worker_from_row(tuple(_decode_list(packed)))


def command_row(command: Command, expires_ms: int) -> list[Any]:
    """Build the row of a new command; the script sets the times."""
    queue = command.queue or False
    return [command.id, command.worker, command.kind.value, queue, command.actor, 0, expires_ms, False, False]


def command_from_packed(packed: bytes | None) -> Command | None:
    row = None if packed is None else tuple(map(_false_to_none, _decode_list(packed)))
    return None if row is None or is_unknown_command(row) else command_from_row(row)


# The archive


def archive_entry_from_stored(stored: bytes) -> ArchiveEntry:
    length = _LENGTH.unpack_from(stored)[0]
    header = _decode_header(stored[2 + length :])
    ended_at = int(header.finished_at)
    return ArchiveEntry(
        id=JobId(stored[2 : 2 + length].decode()),
        queue=QueueName(header.queue),
        task=header.task,
        state=STATES[header.state],
        created_at=header.created_at,
        finished_at=ended_at,
        day=datetime.fromtimestamp(ended_at / 1_000, UTC).strftime("%Y-%m-%d"),
        duration_ms=None if header.started_at is False else ended_at - header.started_at,
        attempt=header.attempt,
        failures=header.failures,
        excerpt=(_unpack_result(header.result) or b"").decode(errors="replace")[:_EXCERPT],
        reason=_false_to_none(header.reason),
    )


_EDGE_STATES: Final = (EdgeState.OPEN, EdgeState.HELD, EdgeState.FAILED, EdgeState.MET)


def edge_from_stored(row: Sequence[Any]) -> Edge:
    child, position, parent, on_failure, state = row
    return Edge(
        child=JobId(child.decode()),
        position=position,
        parent=JobId(parent.decode()),
        on_failure=OnFailure(on_failure.decode()),
        state=_EDGE_STATES[state],
    )
