"""Import and export of jobs with their history, for the Redis engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from forebay.domain.fairness import FAIRNESS
from forebay.domain.job import Job, UniqueUntil
from forebay.domain.job_history import Attempt
from forebay.domain.store_move import JobExport
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.insert import check_reply
from forebay.stores.redis.rows import FRESH_QUEUE, event_row, format_log_line, format_step, imported_body
from forebay.stores.shared.job_export import JobExportMixin
from forebay.stores.shared.rows import json_text, log_line_text, progress_text

T = TypeVar("T")

_FIRST: Final = 2  # number of the first argument after the request
_decode: Final = msgspec.msgpack.Decoder(list[Any]).decode


class RedisJobImport(ABC):
    """Write side of job imports."""

    _connection: Connection

    @abstractmethod
    def _call_after_propagation(self, call: Callable[[], T]) -> T: ...

    @abstractmethod
    def _retry_after_pruning(self, insert: Callable[[], T]) -> T: ...

    @abstractmethod
    def _propagate_then(self, result: T) -> T: ...

    def import_jobs(self, exports: Sequence[JobExport]) -> list[bool]:
        for export in exports:
            export.check()
        arguments: list[bytes | str] = []
        rows = [_build_import(export, arguments) for export in exports]
        params = {"jobs": rows, "default_queue": FRESH_QUEUE}
        [replies] = self._call_after_propagation(
            lambda: check_reply(
                self._retry_after_pruning(lambda: self._connection.run("import_jobs", params, *arguments))
            )
        )
        return self._propagate_then([reply == 1 for reply in replies])


class RedisJobExport(JobExportMixin):
    """Read side of job exports."""

    _connection: Connection

    def _idempotency_until(self, job: Job) -> int | None:
        key = f"{self._connection.address.tag}:idempotency:{job.queue}"
        packed = self._connection.execute("HGET", key, job.idempotency_key or "")
        holder, until = (None, None) if packed is None else _decode(packed)
        return until if holder == job.id else None


def _build_import(export: JobExport, arguments: list[bytes | str]) -> dict[str, Any]:
    """Build a job as the script takes it. Bytes that Lua must not parse go to the arguments."""

    def put(argument: bytes) -> int:
        arguments.append(argument)
        return _FIRST + len(arguments) - 1

    job, progress_record = export.job, export.progress
    progress = progress_record.progress
    steps: list[Any] = []
    for order, step in enumerate(progress_record.steps):
        steps += (step.name, put(b"%04d%d " % (order, step.at) + format_step(step)))
    edges: list[str] = []
    for edge in export.edges:
        edges += (edge.parent, edge.on_failure.value, edge.state.value)
    return {
        "id": job.id,
        "header": _build_header(export),
        "holds_unique_key": export.holds_unique_key,
        "attempts": [_attempt_row(attempt) for attempt in export.attempts],
        "unstarted": job.unstarted or False,
        "events": [event_row(event) for event in export.events],
        "progress": False
        if progress is None
        else f"{progress.at} {progress.attempt} {progress_text(progress)}",
        "log_lines": [
            f"{line.position or ''} {format_log_line(line, log_line_text(line))}"
            for line in progress_record.lines
        ],
        "steps": steps,
        "edges": edges,
        "idempotency": False
        if export.idempotency_until is None
        else (job.idempotency_key, export.idempotency_until),
        "sequence": job.sequence or False,
        "fairness_key": job.limit_keys.get(FAIRNESS, False),
        "has_token_costs": job.cost != 1,
        "body": put(imported_body(job)),
        "result": False if job.result is None else put(job.result),
    }


def _build_header(export: JobExport) -> list[Any]:
    """Build a header with the fields of `shared/2_base.lua`. Fields that the script computes stay empty."""
    job = export.job
    return [
        job.queue, job.task, job.priority, job.lease_ms or False, job.extension_ms,
        job.unique_until is UniqueUntil.STARTED,
        0, job.created_at, job.ready_at, job.run_at, 0,
        job.state.value, job.attempt, job.worker or False, _none_to_false(job.started_at), job.updated_at,
        _none_to_false(job.finished_at), False, False, False, _none_to_false(job.deadline_at),
        _none_to_false(job.expires_at), job.unique_key or False, _none_to_false(job.cancel_reason), False,
        _none_to_false(job.reason), job.failures, job.crashes, len(export.attempts), False,
    ]  # fmt: skip


def _attempt_row(attempt: Attempt) -> list[Any]:
    """Build a row as `settle_and_claim.lua` stores it. Exports lack the worker that settled the attempt."""
    return [
        attempt.attempt, attempt.outcome.value, _none_to_false(attempt.worker),
        _none_to_false(attempt.started_at), attempt.ended_at, json_text(attempt.error), attempt.worker or "",
    ]  # fmt: skip


def _none_to_false(value: Any) -> Any:
    return False if value is None else value
