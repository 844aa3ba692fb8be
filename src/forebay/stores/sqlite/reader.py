"""Read handle of the SQLite engine: snapshots of a database file that block no writer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from forebay.clock import Clock
from forebay.domain.dependencies import Edge, EdgeState
from forebay.domain.job import Job, JobId, QueueName, WorkerId
from forebay.domain.job_history import Timeline
from forebay.domain.job_query import EXACT_UP_TO, JobQuery, Page, check_limit, page_end
from forebay.domain.job_states import LIVE, JobState
from forebay.domain.job_views import ArchiveEntry, JobStateInfo, JobSummary, state_info_of
from forebay.domain.progress import JobProgress
from forebay.domain.queue import Queue, QueueState
from forebay.domain.queue_counts import Counts, LaneCount, Position
from forebay.domain.store_health import ServerUsage, StoreHealth
from forebay.domain.throughput import Throughput
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import Command
from forebay.errors import StoreError
from forebay.stores.id_generator import seq_in_id
from forebay.stores.shared.audit_log import SqlAuditLogReader
from forebay.stores.shared.rows import (
    Row,
    archive_entry_from_row,
    attempt_from_row,
    command_from_row,
    edge_cursor_params,
    edge_from_row,
    event_from_row,
    is_unknown_command,
    json_text,
    progress_from_rows,
    queue_from_row,
    summary_from_row,
    worker_from_row,
)
from forebay.stores.shared.throughput_query import throughput_from_row, throughput_params
from forebay.stores.sqlite.concurrency_and_rate_limits import SqliteLimitReader
from forebay.stores.sqlite.connection import Connection
from forebay.stores.sqlite.dependency_edges import find_met_edges
from forebay.stores.sqlite.documents import SqliteDocumentReader
from forebay.stores.sqlite.errors import DRIVER_ERRORS, translate_error
from forebay.stores.sqlite.job_import_and_export import SqliteJobExport
from forebay.stores.sqlite.metrics import SqliteMetricReader
from forebay.stores.sqlite.rows import job_from_row
from forebay.stores.sqlite.schedules import SqliteScheduleReader
from forebay.stores.sqlite.schema_setup_and_check import SchemaGuard, load_sqlite_statements, schema_number
from forebay.stores.sqlite.transaction import ReadContext

LATE_MS: Final = 60_000
ROWS_PER_SCAN: Final = 10_000
CACHE_KIB: Final = -8_192  # 8 MiB; negative means kibibytes and not pages
_FINISHED: Final = (JobState.COMPLETED, JobState.CANCELLED)


class SqliteReader(
    SqliteScheduleReader,
    SqliteLimitReader,
    SqliteDocumentReader,
    SqliteMetricReader,
    SqliteJobExport,
    SqlAuditLogReader,
):
    """Handle to read one database file."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        connection.execute("pragma query_only = 1")
        connection.execute("pragma busy_timeout = 5000")
        # Each commit of another handle empties the cache, so a large one would mostly hold payloads.
        connection.execute(f"pragma cache_size = {CACHE_KIB:d}")
        self._connection = connection
        self._clock = clock
        self._statements = load_sqlite_statements()
        self._guard = SchemaGuard(connection.path, self._statements)
        self._is_closed = False

    @contextmanager
    def _open_snapshot(self) -> Iterator[None]:
        if self._is_closed:
            raise StoreError("this handle is closed; open another one")
        try:
            with self._connection.read_transaction() as raw:
                self._guard.check_if_changed(raw)
                yield
        except DRIVER_ERRORS as exc:
            raise translate_error(self._connection.path, exc) from exc

    def _all(self, name: str, values: Mapping[str, object] | None = None) -> list[Row]:
        return self._connection.execute(self._statements[name], values or {}).fetchall()

    def _query(self, name: str, values: dict[str, object]) -> list[Row]:
        with self._open_snapshot():
            return self._all(name, values)

    def _one(self, name: str, values: Mapping[str, object]) -> Row | None:
        row: Row | None = self._connection.execute(self._statements[name], values).fetchone()
        return row

    def _find_job(self, statement: str, job_id: JobId) -> Job | None:
        location = self._one("locate", {"seq": seq_in_id(job_id), "job_id": job_id})
        if location is None:
            return None
        row = self._one(statement, {"seq": location[0], "job_id": job_id})
        return None if row is None else job_from_row(row)

    def jobs(self, ids: Sequence[JobId], *, with_payload: bool = True) -> list[Job | None]:
        with self._open_snapshot():
            return [
                self._find_job("job" if with_payload else "job_without_payload", job_id) for job_id in ids
            ]

    def job_states(self, ids: Sequence[JobId]) -> list[JobStateInfo | None]:
        with self._open_snapshot():
            jobs = [self._find_job("job_state", job_id) for job_id in ids]
        return [None if job is None else state_info_of(job) for job in jobs]

    def search(self, query: JobQuery, *, limit: int = 100, after: str | None = None) -> Page:
        check_limit(limit)
        locations = json_text(_locations(query.states))
        with self._open_snapshot():
            range_params = {"locations": locations, "after": None if after is None else page_end(after)}
            window = self._one("search_window", {**range_params, "rows": ROWS_PER_SCAN - 1})
            until, scanned_back_to = (None, None) if window is None else window
            rows = self._all("search", {**_conditions(query), **range_params, "until": until, "limit": limit})
        jobs = tuple(summary_from_row(row) for row in rows)
        if len(rows) == limit:
            return Page(jobs=jobs, after=str(rows[-1][-1]))
        return Page(jobs=jobs, after=None if until is None else str(until), scanned_back_to=scanned_back_to)

    def counts(self, queues: Sequence[QueueName] = ()) -> dict[QueueName, Counts]:
        with self._open_snapshot():
            names = list(queues) or [row[0] for row in self._all("queues")]
            rows = self._all("counts")
        by_queue: dict[QueueName, dict[str, int]] = {name: {} for name in names}
        for queue, state, jobs in rows:
            if queue in by_queue:
                by_queue[queue][state] = jobs
        return {name: Counts(**states) for name, states in by_queue.items()}

    def lanes(self) -> list[LaneCount]:
        with self._open_snapshot():
            rows = self._all("lane_counts")
        return [LaneCount(queue=queue, lane=lane, jobs=jobs) for queue, lane, jobs in rows]

    def peek(self, queue: QueueName, limit: int = 10) -> list[JobSummary]:
        check_limit(limit)
        with self._open_snapshot():
            known = self._find_queue(queue)
            if known is None:
                return []
            cap_ms = known.settings.scoring.cap_ms
            values = {"queue": queue, "now": self.now(), "cap_ms": cap_ms, "limit": limit}
            return [summary_from_row(row) for row in self._all("peek", values)]

    def position(self, job_id: JobId) -> Position | None:
        with self._open_snapshot():
            job = self._find_job("job", job_id)
            if job is None or job.state is not JobState.PENDING or job.lane is not None:
                return None
            ahead = self._count_ahead(job)
            is_exact = ahead <= EXACT_UP_TO
            if not is_exact:
                ahead = self._estimate_ahead(job)
            wait_ms = self._load_throughput(job.queue).wait_ms
        return Position(ahead=ahead, is_exact=is_exact, starts_in_ms=wait_ms(ahead))

    def throughputs(self, queues: Sequence[QueueName]) -> dict[QueueName, Throughput]:
        with self._open_snapshot():
            return {queue: self._load_throughput(queue) for queue in queues}

    def _load_throughput(self, queue: QueueName) -> Throughput:
        now = self.now()
        return throughput_from_row(self._one("throughput", throughput_params(queue, now)), now)

    def _count_ahead(self, job: Job) -> int:
        """Count the jobs with a greater effective priority, or the same one and a lower seq, capped or
        not."""
        queue = self._find_queue(job.queue)
        cap_ms = 0 if queue is None else queue.settings.scoring.cap_ms
        # A job of the other class goes first if its rank is below this.
        other = job.rank + (self.now() - cap_ms if job.age_capped else cap_ms - self.now())
        ahead = 0
        for age_capped, rank in ((job.age_capped, job.rank), (not job.age_capped, other)):
            values = {"queue": job.queue, "age_capped": age_capped, "rank": rank, "seq": job.seq}
            row = self._one("position_ahead", {**values, "limit": EXACT_UP_TO + 1})
            ahead += row[0] if row else 0
        return ahead

    def _estimate_ahead(self, job: Job) -> int:
        """Estimate how many jobs are ahead from the job's rank between the queue's lowest and highest."""
        bounds = self._one("rank_span", {"queue": job.queue})
        pending: int = next((row[2] for row in self._all("counts") if row[:2] == (job.queue, "pending")), 0)
        lowest, highest = bounds or (None, None)
        if lowest is None or highest is None or highest == lowest or job.age_capped:
            return max(pending - 1, EXACT_UP_TO)
        fraction: float = (job.rank - lowest) / (highest - lowest)
        return min(max(round(pending * fraction), EXACT_UP_TO), max(pending - 1, EXACT_UP_TO))

    def _find_queue(self, name: QueueName) -> Queue | None:
        row = self._one("queue", {"name": name})
        return None if row is None else queue_from_row(row)

    def queues(self, names: Sequence[QueueName] = ()) -> list[Queue]:
        with self._open_snapshot():
            queues = [queue_from_row(row) for row in self._all("queues")]
        if names:
            return [queue for queue in queues if queue.name in names]
        return [queue for queue in queues if queue.state is not QueueState.DROPPED]

    def workers(self, ids: Sequence[WorkerId] | None = None) -> list[WorkerInfo]:
        with self._open_snapshot():
            rows = (
                self._all("workers") if ids is None else self._all("workers_named", {"ids": json_text(ids)})
            )
            return [worker_from_row(row) for row in rows]

    def commands(self, ids: Sequence[str]) -> list[Command | None]:
        with self._open_snapshot():
            rows = [self._one("command", {"id": command_id}) for command_id in ids]
        return [None if row is None or is_unknown_command(row) else command_from_row(row) for row in rows]

    def parents(self, ids: Sequence[JobId]) -> list[Edge]:
        with self._open_snapshot():
            return self._resolve_edge_states(self._all("parents", {"ids": json_text(ids)}))

    def _resolve_edge_states(self, rows: list[Row]) -> list[Edge]:
        """Build edges from rows, and mark open edges of completed parents as met."""
        edges = [edge_from_row(row) for row in rows]
        open_edges = [
            (edge.child, edge.position, edge.parent) for edge in edges if edge.state is EdgeState.OPEN
        ]
        met = find_met_edges(ReadContext(self._all), open_edges)
        return [
            replace(edge, state=EdgeState.MET) if (edge.child, edge.position) in met else edge
            for edge in edges
        ]

    def first_in_sequence(self, name: str) -> JobId | None:
        with self._open_snapshot():
            rows = self._all("sequence_current", {"name": name})
        return rows[0][0] if rows else None

    def dependants(
        self, ids: Sequence[JobId], *, limit: int = 1_000, after: Edge | None = None
    ) -> list[Edge]:
        check_limit(limit)
        values = {"ids": json_text(ids), "limit": limit, **edge_cursor_params(after)}
        with self._open_snapshot():
            return self._resolve_edge_states(self._all("dependants", values))

    def progress(self, job_id: JobId) -> JobProgress:
        with self._open_snapshot():
            location = self._one("locate", {"seq": seq_in_id(job_id), "job_id": job_id})
            return JobProgress() if location is None else self._load_progress(location[0])

    def _load_progress(self, seq: int) -> JobProgress:
        return progress_from_rows(self._all("progress", {"seq": seq}))

    def history(self, job_id: JobId) -> Timeline | None:
        with self._open_snapshot():
            job = self._find_job("job", job_id)
            if job is None:
                return None
            attempts = tuple(
                attempt_from_row(job_id, row) for row in self._all("failed_attempts", {"job_id": job_id})
            )
            events = tuple(event_from_row(row) for row in self._all("events", {"job_id": job_id}))
            progress = self._load_progress(job.seq)
        return Timeline(job=job, attempts=attempts, events=events, progress=progress)

    def archive(
        self, *, day: str | None = None, task: str | None = None, limit: int = 100
    ) -> list[ArchiveEntry]:
        check_limit(limit)
        with self._open_snapshot():
            rows = self._all("archive", {"day": day, "task": task, "limit": limit})
        return [archive_entry_from_row(row) for row in rows]

    def now(self) -> int:
        return self._clock.now_ms()

    def server_usage(self) -> ServerUsage:
        return ServerUsage()

    def health(self) -> StoreHealth:
        problems: list[str] = []
        with self._open_snapshot():
            for (line,) in self._connection.execute("pragma quick_check(10)").fetchall():
                if line != "ok":
                    problems.append(f"the file is damaged: {line}")
            problems += self._find_miscounts()
            for name in ("check_jobs", "check_indexes", "check_keys", "check_edges"):
                rows = self._all(name, {"late_ms": LATE_MS})
                problems += [f"{subject} {trouble}" for subject, trouble in rows]
            number = schema_number(self._connection, self._statements)
        return StoreHealth(engine="sqlite", schema=number, problems=tuple(problems))

    def _find_miscounts(self) -> Iterator[str]:
        actual = {(queue, state): jobs for queue, state, jobs in self._all("check_counts")}
        counted = {(queue, state): jobs for queue, state, jobs in self._all("counts")}
        for queue, state in sorted(actual.keys() | counted.keys()):
            counted_jobs, actual_jobs = counted.get((queue, state), 0), actual.get((queue, state), 0)
            if counted_jobs != actual_jobs:
                yield f"queue {queue} counts {counted_jobs} {state} jobs and has {actual_jobs}"

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._connection.close()


def _locations(states: Sequence[JobState]) -> list[str]:
    """Return the tables in which jobs of these states can be."""
    wanted = set(states or JobState)
    tables = (("live", LIVE), ("finished", frozenset(_FINISHED)), ("dead", frozenset({JobState.DEAD})))
    return [table for table, table_states in tables if wanted & table_states]


def _conditions(query: JobQuery) -> dict[str, object]:
    return {
        "states": json_text(query.states) if query.states else None,
        "queues": json_text(query.queues) if query.queues else None,
        "tasks": json_text(query.tasks) if query.tasks else None,
        "priority_from": query.priority_from,
        "priority_to": query.priority_to,
        "created_from": query.created_from,
        "created_before": query.created_before,
        "finished_before": query.finished_before,
        "unique_key": query.unique_key,
        "idempotency_key": query.idempotency_key,
        "correlation_id": query.correlation_id,
        "parent_id": query.parent_id,
        "tags": json_text(query.tags) if query.tags else None,
        "metadata": json_text(dict(query.metadata)) if query.metadata else None,
        "text": query.text,
    }
