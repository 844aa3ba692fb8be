"""Looking at a namespace: each answer is one script, or a few that are short."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from heapq import merge, nsmallest
from itertools import islice
from typing import Any, Final

from forebay.domain.backpressure import THROUGHPUT_WINDOW_MS, Throughput
from forebay.domain.dependencies import Edge, by_parent
from forebay.domain.history import Timeline
from forebay.domain.job import Job, JobId, JobSummary, QueueName, WorkerId
from forebay.domain.progress import JobProgress
from forebay.domain.query import (
    EXACT_UP_TO,
    ArchiveEntry,
    Counts,
    JobQuery,
    JobStateInfo,
    LaneCount,
    Page,
    Position,
    ServerUsage,
    StoreHealth,
    check_limit,
    page_end,
)
from forebay.domain.queue import Queue, QueueState
from forebay.domain.worker import Command, WorkerInfo
from forebay.stores.redis.audit_log import RedisAuditLogReader
from forebay.stores.redis.commands import load_workers
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.documents import RedisDocumentReader
from forebay.stores.redis.job_import import RedisJobExport
from forebay.stores.redis.limits import RedisLimitReader
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
from forebay.stores.redis.schema import SCHEMA
from forebay.stores.redis.server_check import load_server_usage, memory_warnings
from forebay.stores.shared.query_filter import matches, summary_of

LATE_MS: Final = 60_000
JOBS_PER_SCAN: Final = 200  # a script that reads more would hold up everybody
BYTES_PER_SCAN: Final = 4 * 1_048_576
JOBS_PER_PAGE: Final = 10_000  # how many a page looks at before it is given out, short as it may be
_ARCHIVE_PAGE: Final = 500
_UNESCAPED: Final = re.compile(r"[A-Za-z0-9_.:@-]+")


def _conditions(query: JobQuery) -> dict[str, Any]:
    """What the script can look at of the jobs that fit. Of texts only those that are written in a body as
    they are here: others have marks before some of their characters."""
    own = (query.idempotency_key, query.correlation_id, query.parent_id)
    texts = (*query.tags, *(text for text in own if text is not None))
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
    """A handle to look at one namespace."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._run = connection.run

    def _key(self, name: str) -> str:
        return f"{self._connection.address.tag}:{name}"

    def jobs(self, ids: Sequence[JobId], *, with_payload: bool = True) -> list[Job | None]:
        found: dict[JobId, Job] = {}
        for first in range(0, len(ids), JOBS_PER_SCAN):
            part = list(ids[first : first + JOBS_PER_SCAN])
            rows = self._run("jobs", {"ids": part, "is_bare": not with_payload})
            found |= {job.id: job for job in map(job_from_row, rows)}
        return [found.get(job_id) for job_id in ids]

    def job_states(self, ids: Sequence[JobId]) -> list[JobStateInfo | None]:
        found: dict[JobId, JobStateInfo] = {}
        for first in range(0, len(ids), JOBS_PER_SCAN):
            rows = self._run("job_states", {"ids": list(ids[first : first + JOBS_PER_SCAN])})
            found |= {fate.id: fate for fate in map(state_info_from_row, rows)}
        return [found.get(job_id) for job_id in ids]

    def search(self, query: JobQuery, *, limit: int = 100, after: str | None = None) -> Page:
        check_limit(limit)
        below: int | None = None if after is None else page_end(after)
        found: list[Job] = []
        reached: int | None = None
        ask = {"limit": JOBS_PER_SCAN, "max_bytes": BYTES_PER_SCAN, **_conditions(query)}
        for _ in range(0, JOBS_PER_PAGE, JOBS_PER_SCAN):
            below, created_at, rows = self._run("search", {**ask, "below": below})
            jobs = [job_from_row(row) for row in rows]
            reached = created_at or reached
            found += islice((job for job in jobs if matches(query, job)), limit + 1 - len(found))
            # One more than asked for tells whether there is a next page.
            if below is None or len(found) > limit:
                break
        page = tuple(map(summary_of, found[:limit]))
        if len(found) > limit:
            return Page(jobs=page, after=str(found[limit - 1].seq))
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
            LaneCount(queue=QueueName(queue.decode()), lane=gate.decode(), jobs=jobs)
            for queue, gate, jobs in self._run("lanes", {})
        ]

    def position(self, job_id: JobId) -> Position | None:
        found = self._run(
            "position", {"id": job_id, "exact_up_to": EXACT_UP_TO, "window_ms": THROUGHPUT_WINDOW_MS}
        )
        if found is None:
            return None
        ahead, done = found
        wait = Throughput(done, THROUGHPUT_WINDOW_MS).wait_ms(ahead)
        return Position(ahead=ahead, is_exact=ahead <= EXACT_UP_TO, starts_in_ms=wait)

    def throughputs(self, queues: Sequence[QueueName]) -> dict[QueueName, Throughput]:
        done = self._run("throughputs", {"queues": queues, "window_ms": THROUGHPUT_WINDOW_MS})
        return {
            queue: Throughput(jobs, THROUGHPUT_WINDOW_MS) for queue, jobs in zip(queues, done, strict=True)
        }

    def queues(self, names: Sequence[QueueName] = ()) -> list[Queue]:
        found = [queue for _, queue in sorted(self._load_queues().items())]
        if names:
            return [queue for queue in found if queue.name in names]
        return [queue for queue in found if queue.state is not QueueState.DROPPED]

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
            command_from_packed(one) for one in self._connection.execute("HMGET", self._key("commands"), *ids)
        ]

    def parents(self, ids: Sequence[JobId]) -> list[Edge]:
        order = {job_id: place for place, job_id in enumerate(ids)}
        edges = map(edge_from_stored, self._run("parents", {"ids": list(order)}))
        return sorted(edges, key=lambda edge: (order[edge.child], edge.position))

    def first_in_sequence(self, name: str) -> JobId | None:
        found = self._connection.execute("ZRANGE", self._key(f"sequence:{name}"), 0, 0)
        return JobId(found[0].decode()) if found else None

    def dependants(
        self, ids: Sequence[JobId], *, limit: int = 1_000, after: Edge | None = None
    ) -> list[Edge]:
        check_limit(limit)
        edges = map(edge_from_stored, self._run("dependants", {"ids": list(ids)}))
        rest = (edge for edge in edges if after is None or by_parent(edge) > by_parent(after))
        return nsmallest(limit, rest, key=by_parent)

    def progress(self, job_id: JobId) -> JobProgress:
        found = self._run("history", {"id": job_id})
        return JobProgress() if found is None else progress_from_stored(*found[3:])

    def history(self, job_id: JobId) -> Timeline | None:
        found = self._run("history", {"id": job_id})
        if found is None:
            return None
        row, attempts, events, *notes = found
        return Timeline(
            job=job_from_row(row),
            attempts=tuple(attempt_from_packed(job_id, packed) for packed in attempts),
            events=tuple(event_from_packed(packed) for packed in events if packed is not None),
            progress=progress_from_stored(*notes),
        )

    def archive(
        self, *, day: str | None = None, task: str | None = None, limit: int = 100
    ) -> list[ArchiveEntry]:
        check_limit(limit)
        span = _day_span(day)
        lines = merge(
            *(self._archive_entries(queue, span) for queue in self._load_queues()), key=_end_key, reverse=True
        )
        fitting = (line for _, _, line in lines if task is None or line.task == task)
        return list(islice(fitting, limit))

    def _archive_entries(
        self, queue: QueueName, span: dict[str, Any]
    ) -> Iterator[tuple[int, int, ArchiveEntry]]:
        """The lines of one queue, last ended first, read as somebody asks for them."""
        skip = 0
        while True:
            ask = {"queue": queue, **span, "skip": skip, "limit": _ARCHIVE_PAGE}
            numbers, times, lines = self._run("archive", ask)
            for number, ended_at, line in zip(numbers, times, lines, strict=True):
                if line is not None:
                    yield ended_at, int(number), archive_entry_from_stored(line)
            if len(numbers) < _ARCHIVE_PAGE:
                return
            skip += _ARCHIVE_PAGE

    def now(self) -> int:
        return int(self._run("now", {}))

    def server_usage(self) -> ServerUsage:
        return load_server_usage(self._connection)

    def health(self) -> StoreHealth:
        problems = memory_warnings(self._connection)
        problems += [line.decode() for line in self._run("check_totals", {"late_ms": LATE_MS})]
        problems += self._scan("check_jobs", {})
        for queue in self._load_queues():
            problems += self._scan("check_keys", {"queue": queue})
        return StoreHealth(engine="redis", schema=SCHEMA, problems=tuple(problems))

    def _scan(self, script: str, params: dict[str, Any]) -> Iterator[str]:
        cursor = b"0"
        while True:
            cursor, found = self._run(script, {**params, "cursor": cursor.decode(), "limit": JOBS_PER_SCAN})
            yield from (line.decode() for line in found)
            if cursor == b"0":
                return

    def close(self) -> None:
        self._connection.close()


def _end_key(entry: tuple[int, int, ArchiveEntry]) -> tuple[int, int]:
    return entry[:2]


def _day_span(day: str | None) -> dict[str, Any]:
    """The times between which jobs ended on this day; of no time at all if it is none."""
    if day is None:
        return {"from": None, "below": None}
    try:
        begin = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return {"from": 0, "below": 0}
    end = begin + timedelta(days=1)
    return {"from": round(begin.timestamp() * 1_000), "below": round(end.timestamp() * 1_000)}
