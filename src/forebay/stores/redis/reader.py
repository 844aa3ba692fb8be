"""Read side of the Redis engine: each result comes from one script, or from a few short ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from heapq import merge, nsmallest
from itertools import islice
from typing import Any, Final

from forebay.domain.dependencies import Edge, by_parent
from forebay.domain.job import Job, JobId, QueueName, WorkerId
from forebay.domain.job_history import Timeline
from forebay.domain.job_query import EXACT_UP_TO, JobQuery, Page, check_limit, page_end
from forebay.domain.job_views import ArchiveEntry, JobStateInfo, JobSummary
from forebay.domain.progress import JobProgress
from forebay.domain.queue import Queue, QueueState
from forebay.domain.queue_counts import Counts, LaneCount, Position
from forebay.domain.store_health import ServerUsage, StoreHealth
from forebay.domain.throughput import THROUGHPUT_WINDOW_MS, Throughput
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import Command
from forebay.stores.redis.audit_log import RedisAuditLogReader
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.documents import RedisDocumentReader
from forebay.stores.redis.job_import_and_export import RedisJobExport
from forebay.stores.redis.limit_definitions import RedisLimitReader
from forebay.stores.redis.metrics import RedisMetricReader
from forebay.stores.redis.rows import (
    archive_entry_from_stored,
    attempt_from_packed,
    command_from_packed,
    edge_from_stored,
    event_from_packed,
    job_from_row,
    progress_from_stored,
    queue_from_packed,
    state_info_from_row,
)
from forebay.stores.redis.schedules import RedisScheduleReader
from forebay.stores.redis.schema_setup_and_check import SCHEMA
from forebay.stores.redis.server_check import load_server_usage, memory_warnings
from forebay.stores.redis.workers_and_commands import load_workers
from forebay.stores.shared.query_filter import matches, summary_of

LATE_MS: Final = 60_000
JOBS_PER_SCAN: Final = 200  # a script that reads more would block all other clients
BYTES_PER_SCAN: Final = 4 * 1_048_576
JOBS_PER_PAGE: Final = 10_000  # jobs scanned for one page, which may end up short
_ARCHIVE_PAGE: Final = 500
_UNESCAPED: Final = re.compile(r"[A-Za-z0-9_.:@-]+")


def _conditions(query: JobQuery) -> dict[str, Any]:
    """Return the conditions that the script can check.

    Of the texts only those that stand unescaped in a body: JSON escapes some characters of the rest."""
    ids = (query.idempotency_key, query.correlation_id, query.parent_id)
    texts = (*query.tags, *(text for text in ids if text is not None))
    return {
        "queues": list(query.queues),
        "states": [state.value for state in query.states],
        "tasks": list(query.tasks),
        "unique_key": query.unique_key or False,
        "created_from": query.created_from or False,
        "created_before": False if query.created_before is None else query.created_before,
        "words": [text for text in texts if _UNESCAPED.fullmatch(text)],
        "text": query.text or False,
    }


class RedisReader(
    RedisScheduleReader,
    RedisLimitReader,
    RedisDocumentReader,
    RedisAuditLogReader,
    RedisMetricReader,
    RedisJobExport,
):
    """Read handle for one namespace."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._run = connection.run

    def _key(self, name: str) -> str:
        return f"{self._connection.address.tag}:{name}"

    def jobs(self, ids: Sequence[JobId], *, with_payload: bool = True) -> list[Job | None]:
        by_id: dict[JobId, Job] = {}
        for first in range(0, len(ids), JOBS_PER_SCAN):
            part = list(ids[first : first + JOBS_PER_SCAN])
            rows = self._run("jobs", {"ids": part, "is_bare": not with_payload})
            by_id |= {job.id: job for job in map(job_from_row, rows)}
        return [by_id.get(job_id) for job_id in ids]

    def job_states(self, ids: Sequence[JobId]) -> list[JobStateInfo | None]:
        by_id: dict[JobId, JobStateInfo] = {}
        for first in range(0, len(ids), JOBS_PER_SCAN):
            rows = self._run("job_states", {"ids": list(ids[first : first + JOBS_PER_SCAN])})
            by_id |= {info.id: info for info in map(state_info_from_row, rows)}
        return [by_id.get(job_id) for job_id in ids]

    def search(self, query: JobQuery, *, limit: int = 100, after: str | None = None) -> Page:
        check_limit(limit)
        below: int | None = None if after is None else page_end(after)
        matching: list[Job] = []
        reached: int | None = None
        params = {"limit": JOBS_PER_SCAN, "max_bytes": BYTES_PER_SCAN, **_conditions(query)}
        for _ in range(0, JOBS_PER_PAGE, JOBS_PER_SCAN):
            below, created_at, rows = self._run("search", {**params, "below": below})
            jobs = [job_from_row(row) for row in rows]
            reached = created_at or reached
            matching += islice((job for job in jobs if matches(query, job)), limit + 1 - len(matching))
            # One more than requested shows that there is a next page.
            if below is None or len(matching) > limit:
                break
        page = tuple(map(summary_of, matching[:limit]))
        if len(matching) > limit:
            return Page(jobs=page, after=str(matching[limit - 1].seq))
        if below is None:
            return Page(jobs=page)
        return Page(jobs=page, after=str(below), scanned_back_to=reached)

    def counts(self, queues: Sequence[QueueName] = ()) -> dict[QueueName, Counts]:
        names = list(queues) or sorted(self._load_queues())
        counted: dict[QueueName, dict[str, int]] = {name: {} for name in names}
        stored = self._connection.execute("HGETALL", self._key("counts"))
        for name, jobs in zip(stored[::2], stored[1::2], strict=True):
            queue, _, state = name.decode().rpartition(" ")
            if queue in counted:
                counted[QueueName(queue)][state] = int(jobs)
        return {name: Counts(**states) for name, states in counted.items()}

    def peek(self, queue: QueueName, limit: int = 10) -> list[JobSummary]:
        check_limit(limit)
        rows = self._run("peek", {"queue": queue, "limit": limit})
        return [summary_of(job_from_row(row)) for row in rows]

    def lanes(self) -> list[LaneCount]:
        return [
            LaneCount(queue=QueueName(queue.decode()), lane=lane.decode(), jobs=jobs)
            for queue, lane, jobs in self._run("lanes", {})
        ]

    def position(self, job_id: JobId) -> Position | None:
        reply = self._run(
            "position", {"id": job_id, "exact_up_to": EXACT_UP_TO, "window_ms": THROUGHPUT_WINDOW_MS}
        )
        if reply is None:
            return None
        ahead, completed = reply
        wait = Throughput(completed, THROUGHPUT_WINDOW_MS).wait_ms(ahead)
        return Position(ahead=ahead, is_exact=ahead <= EXACT_UP_TO, starts_in_ms=wait)

    def throughputs(self, queues: Sequence[QueueName]) -> dict[QueueName, Throughput]:
        completed = self._run("throughputs", {"queues": queues, "window_ms": THROUGHPUT_WINDOW_MS})
        return {
            queue: Throughput(jobs, THROUGHPUT_WINDOW_MS)
            for queue, jobs in zip(queues, completed, strict=True)
        }

    def queues(self, names: Sequence[QueueName] = ()) -> list[Queue]:
        queues = [queue for _, queue in sorted(self._load_queues().items())]
        if names:
            return [queue for queue in queues if queue.name in names]
        return [queue for queue in queues if queue.state is not QueueState.DROPPED]

    def _load_queues(self) -> dict[QueueName, Queue]:
        stored = self._connection.execute("HGETALL", self._key("queues"))
        names = [QueueName(name.decode()) for name in stored[::2]]
        return {
            name: queue_from_packed(name, packed) for name, packed in zip(names, stored[1::2], strict=True)
        }

    def workers(self, ids: Sequence[WorkerId] | None = None) -> list[WorkerInfo]:
        return load_workers(self._connection, ids)

    def commands(self, ids: Sequence[str]) -> list[Command | None]:
        if not ids:
            return []
        return [
            command_from_packed(packed)
            for packed in self._connection.execute("HMGET", self._key("commands"), *ids)
        ]

    def parents(self, ids: Sequence[JobId]) -> list[Edge]:
        order = {job_id: index for index, job_id in enumerate(ids)}
        edges = map(edge_from_stored, self._run("parents", {"ids": list(order)}))
        return sorted(edges, key=lambda edge: (order[edge.child], edge.position))

    def first_in_sequence(self, name: str) -> JobId | None:
        first = self._connection.execute("ZRANGE", self._key(f"sequence:{name}"), 0, 0)
        return JobId(first[0].decode()) if first else None

    def dependants(
        self, ids: Sequence[JobId], *, limit: int = 1_000, after: Edge | None = None
    ) -> list[Edge]:
        check_limit(limit)
        edges = map(edge_from_stored, self._run("dependants", {"ids": list(ids)}))
        rest = (edge for edge in edges if after is None or by_parent(edge) > by_parent(after))
        return nsmallest(limit, rest, key=by_parent)

    def progress(self, job_id: JobId) -> JobProgress:
        reply = self._run("history", {"id": job_id})
        return JobProgress() if reply is None else progress_from_stored(*reply[3:])

    def history(self, job_id: JobId) -> Timeline | None:
        reply = self._run("history", {"id": job_id})
        if reply is None:
            return None
        row, attempts, events, *progress = reply
        return Timeline(
            job=job_from_row(row),
            attempts=tuple(attempt_from_packed(job_id, packed) for packed in attempts),
            events=tuple(event_from_packed(packed) for packed in events if packed is not None),
            progress=progress_from_stored(*progress),
        )

    def archive(
        self, *, day: str | None = None, task: str | None = None, limit: int = 100
    ) -> list[ArchiveEntry]:
        check_limit(limit)
        span = _day_span(day)
        entries = merge(
            *(self._archive_entries(queue, span) for queue in self._load_queues()), key=_end_key, reverse=True
        )
        fitting = (entry for _, _, entry in entries if task is None or entry.task == task)
        return list(islice(fitting, limit))

    def _archive_entries(
        self, queue: QueueName, span: dict[str, Any]
    ) -> Iterator[tuple[int, int, ArchiveEntry]]:
        """Yield the entries of one queue, last ended first, read on demand."""
        skip = 0
        while True:
            params = {"queue": queue, **span, "skip": skip, "limit": _ARCHIVE_PAGE}
            numbers, times, entries = self._run("archive", params)
            for number, ended_at, stored in zip(numbers, times, entries, strict=True):
                if stored is not None:
                    yield ended_at, int(number), archive_entry_from_stored(stored)
            if len(numbers) < _ARCHIVE_PAGE:
                return
            skip += _ARCHIVE_PAGE

    def now(self) -> int:
        return int(self._run("now", {}))

    def server_usage(self) -> ServerUsage:
        return load_server_usage(self._connection)

    def health(self) -> StoreHealth:
        problems = memory_warnings(self._connection)
        problems += [problem.decode() for problem in self._run("check_totals", {"late_ms": LATE_MS})]
        problems += self._scan("check_jobs", {})
        for queue in self._load_queues():
            problems += self._scan("check_keys", {"queue": queue})
        return StoreHealth(engine="redis", schema=SCHEMA, problems=tuple(problems))

    def _scan(self, script: str, params: dict[str, Any]) -> Iterator[str]:
        cursor = b"0"
        while True:
            cursor, problems = self._run(
                script, {**params, "cursor": cursor.decode(), "limit": JOBS_PER_SCAN}
            )
            yield from (problem.decode() for problem in problems)
            if cursor == b"0":
                return

    def close(self) -> None:
        self._connection.close()


def _end_key(entry: tuple[int, int, ArchiveEntry]) -> tuple[int, int]:
    return entry[:2]


def _day_span(day: str | None) -> dict[str, Any]:
    """Return the times between which jobs ended on this day; an empty span for an invalid day."""
    if day is None:
        return {"from": None, "below": None}
    try:
        begin = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return {"from": 0, "below": 0}
    end = begin + timedelta(days=1)
    return {"from": round(begin.timestamp() * 1_000), "below": round(end.timestamp() * 1_000)}
