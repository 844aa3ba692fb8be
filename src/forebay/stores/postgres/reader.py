"""Read side of the PostgreSQL engine; it takes no locks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from forebay.domain.dependencies import Edge
from forebay.domain.job import Job, JobId, QueueName, WorkerId
from forebay.domain.job_history import Timeline
from forebay.domain.job_query import EXACT_UP_TO, JobQuery, Page, check_limit, page_end
from forebay.domain.job_states import JobState
from forebay.domain.job_views import ArchiveEntry, JobStateInfo, JobSummary, state_info_of
from forebay.domain.progress import JobProgress
from forebay.domain.queue import Queue, QueueState
from forebay.domain.queue_counts import Counts, LaneCount, Position
from forebay.domain.store_health import ServerUsage, StoreHealth
from forebay.domain.throughput import Throughput
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import Command
from forebay.errors import StoreError
from forebay.stores.postgres.concurrency_and_rate_limits import PostgresLimitReader
from forebay.stores.postgres.connection import Connection, Raw, Statements, Values
from forebay.stores.postgres.dependency_edges import resolve_edge_states
from forebay.stores.postgres.documents import PostgresDocumentReader
from forebay.stores.postgres.errors import DRIVER_ERRORS, translate_error
from forebay.stores.postgres.job_import_and_export import PostgresJobExport
from forebay.stores.postgres.metrics import PostgresMetricReader
from forebay.stores.postgres.rows import job_from_row
from forebay.stores.postgres.schedules import PostgresScheduleReader
from forebay.stores.postgres.schema_setup_and_check import schema_number
from forebay.stores.postgres.search import search
from forebay.stores.shared.audit_log import SqlAuditLogReader
from forebay.stores.shared.rows import (
    Row,
    archive_entry_from_row,
    attempt_from_row,
    command_from_row,
    edge_cursor_params,
    event_from_row,
    is_unknown_command,
    progress_from_rows,
    queue_from_row,
    summary_from_row,
    worker_from_row,
)
from forebay.stores.shared.throughput_query import throughput_from_row, throughput_params

LATE_MS: Final = 60_000


class ReadSnapshot:
    """MVCC snapshot of the store: all reads in it are of the same moment."""

    def __init__(self, raw: Raw, statements: Statements) -> None:
        self.raw = raw
        self._statements = statements

    def all(self, name: str, values: Values | None = None) -> list[Row]:
        return self.raw.execute(self._statements[name], values, binary=True).fetchall()

    def one(self, name: str, values: Values | None = None) -> Row | None:
        return self.raw.execute(self._statements[name], values, binary=True).fetchone()

    def now(self) -> int:
        row = self.one("now")
        return 0 if row is None else row[0]

    def job(self, job_id: JobId) -> Job | None:
        row = self.one("job", {"ids": [job_id]})
        return None if row is None else job_from_row(row)

    def queue(self, name: QueueName) -> Queue | None:
        row = self.one("queues_named", {"names": [name]})
        return None if row is None else queue_from_row(row)

    def counts(self) -> dict[tuple[str, str], int]:
        return {(queue, state): jobs for queue, state, jobs in self.all("counts")}


class PostgresReader(
    PostgresScheduleReader,
    PostgresLimitReader,
    PostgresDocumentReader,
    PostgresMetricReader,
    PostgresJobExport,
    SqlAuditLogReader,
):
    """Read handle of one store."""

    def __init__(self, connection: Connection, statements: Statements) -> None:
        self._connection = connection
        self._statements = statements
        self._is_closed = False

    @contextmanager
    def _open_snapshot(self) -> Iterator[ReadSnapshot]:
        if self._is_closed:
            raise StoreError("this handle is closed; open another one")
        try:
            with self._connection.transaction() as raw:
                yield ReadSnapshot(raw, self._statements)
        except DRIVER_ERRORS as exc:
            raise translate_error(self._connection.location, exc) from exc

    def jobs(self, ids: Sequence[JobId], *, with_payload: bool = True) -> list[Job | None]:
        return self._load_jobs("job" if with_payload else "jobs_without_payload", ids)

    def job_states(self, ids: Sequence[JobId]) -> list[JobStateInfo | None]:
        return [None if job is None else state_info_of(job) for job in self._load_jobs("job_states", ids)]

    def _load_jobs(self, statement: str, ids: Sequence[JobId]) -> list[Job | None]:
        with self._open_snapshot() as snapshot:
            rows = snapshot.all(statement, {"ids": sorted(set(ids))})
        found = {row[0]: row for row in rows}
        return [job_from_row(found[job_id]) if job_id in found else None for job_id in ids]

    def search(self, query: JobQuery, *, limit: int = 100, after: str | None = None) -> Page:
        check_limit(limit)
        with self._open_snapshot() as snapshot:
            return search(snapshot, query, limit, None if after is None else page_end(after))

    def counts(self, queues: Sequence[QueueName] = ()) -> dict[QueueName, Counts]:
        with self._open_snapshot() as snapshot:
            names = list(queues) or [row[0] for row in snapshot.all("queues")]
            counted = snapshot.counts()
        by_queue: dict[QueueName, dict[str, int]] = {name: {} for name in names}
        for (queue, state), jobs in counted.items():
            if queue in by_queue:
                by_queue[QueueName(queue)][state] = jobs
        return {name: Counts(**states) for name, states in by_queue.items()}

    def lanes(self) -> list[LaneCount]:
        with self._open_snapshot() as snapshot:
            rows = snapshot.all("lane_counts")
        return [LaneCount(queue=queue, lane=lane, jobs=jobs) for queue, lane, jobs in rows]

    def peek(self, queue: QueueName, limit: int = 10) -> list[JobSummary]:
        check_limit(limit)
        with self._open_snapshot() as snapshot:
            found = snapshot.queue(queue)
            if found is None:
                return []
            cap_ms = found.settings.scoring.cap_ms
            values = {"queue": queue, "now": snapshot.now(), "cap_ms": cap_ms, "limit": limit}
            return [summary_from_row(row) for row in snapshot.all("peek", values)]

    def position(self, job_id: JobId) -> Position | None:
        with self._open_snapshot() as snapshot:
            job = snapshot.job(job_id)
            if job is None or job.state is not JobState.PENDING or job.lane is not None:
                return None
            now = snapshot.now()
            ahead = _count_ahead(snapshot, job, now)
            is_exact = ahead <= EXACT_UP_TO
            if not is_exact:
                ahead = _estimate_ahead(snapshot, job)
            wait_ms = _load_throughput(snapshot, job.queue, now).wait_ms
        return Position(ahead=ahead, is_exact=is_exact, starts_in_ms=wait_ms(ahead))

    def throughputs(self, queues: Sequence[QueueName]) -> dict[QueueName, Throughput]:
        with self._open_snapshot() as snapshot:
            now = snapshot.now()
            return {queue: _load_throughput(snapshot, queue, now) for queue in queues}

    def queues(self, names: Sequence[QueueName] = ()) -> list[Queue]:
        with self._open_snapshot() as snapshot:
            found = [queue_from_row(row) for row in snapshot.all("queues")]
        if names:
            return [queue for queue in found if queue.name in names]
        return [queue for queue in found if queue.state is not QueueState.DROPPED]

    def workers(self, ids: Sequence[WorkerId] | None = None) -> list[WorkerInfo]:
        with self._open_snapshot() as snapshot:
            rows = (
                snapshot.all("workers")
                if ids is None
                else snapshot.all("workers_named", {"workers": list(ids)})
            )
            return [worker_from_row(row) for row in rows]

    def commands(self, ids: Sequence[str]) -> list[Command | None]:
        with self._open_snapshot() as snapshot:
            rows = {
                row[0]: row
                for row in snapshot.all("command", {"ids": list(ids)})
                if not is_unknown_command(row)
            }
        return [command_from_row(rows[each]) if each in rows else None for each in ids]

    def parents(self, ids: Sequence[JobId]) -> list[Edge]:
        with self._open_snapshot() as snapshot:
            return resolve_edge_states(snapshot, snapshot.all("parents", {"ids": list(ids)}))

    def first_in_sequence(self, name: str) -> JobId | None:
        with self._open_snapshot() as snapshot:
            return next((job_id for _, _, job_id in snapshot.all("sequences_first", {"names": [name]})), None)

    def dependants(
        self, ids: Sequence[JobId], *, limit: int = 1_000, after: Edge | None = None
    ) -> list[Edge]:
        check_limit(limit)
        values = {"ids": list(ids), "limit": limit, **edge_cursor_params(after)}
        with self._open_snapshot() as snapshot:
            return resolve_edge_states(snapshot, snapshot.all("dependants", values))

    def progress(self, job_id: JobId) -> JobProgress:
        with self._open_snapshot() as snapshot:
            return progress_from_rows(snapshot.all("progress", {"job_id": job_id}))

    def history(self, job_id: JobId) -> Timeline | None:
        of_job = {"job_id": job_id}
        with self._open_snapshot() as snapshot:
            job = snapshot.job(job_id)
            if job is None:
                return None
            return Timeline(
                job=job,
                attempts=tuple(
                    attempt_from_row(job_id, row) for row in snapshot.all("failed_attempts", of_job)
                ),
                events=tuple(event_from_row(row) for row in snapshot.all("events", of_job)),
                progress=progress_from_rows(snapshot.all("progress", of_job)),
            )

    def archive(
        self, *, day: str | None = None, task: str | None = None, limit: int = 100
    ) -> list[ArchiveEntry]:
        check_limit(limit)
        with self._open_snapshot() as snapshot:
            rows = snapshot.all("archive", {"day": day, "task": task, "limit": limit})
        return [archive_entry_from_row(row) for row in rows]

    def now(self) -> int:
        with self._open_snapshot() as snapshot:
            return snapshot.now()

    def server_usage(self) -> ServerUsage:
        with self._open_snapshot() as snapshot:
            [(connections, limit)] = snapshot.all("server_usage")
        return ServerUsage(connections=connections, connection_limit=limit)

    def health(self) -> StoreHealth:
        with self._open_snapshot() as snapshot, snapshot.raw.long_timeout():
            snapshot.all("check_planning")
            problems = list(_find_miscounts(snapshot))
            for name in ("check_jobs", "check_keys", "check_edges"):
                problems += [
                    f"{what} {trouble}" for what, trouble in snapshot.all(name, {"late_ms": LATE_MS})
                ]
            number = schema_number(snapshot.raw, self._statements)
        return StoreHealth(engine="postgresql", schema=number, problems=tuple(problems))

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._connection.close()


def _load_throughput(snapshot: ReadSnapshot, queue: QueueName, now: int) -> Throughput:
    return throughput_from_row(snapshot.one("throughput", throughput_params(queue, now)), now)


def _count_ahead(snapshot: ReadSnapshot, job: Job, now: int) -> int:
    """Count the jobs with a greater effective priority, or the same one and a lower seq, in both classes."""
    queue = snapshot.queue(job.queue)
    cap_ms = 0 if queue is None else queue.settings.scoring.cap_ms
    # The rank that a job of the other class must stay below to go first.
    other = job.rank + (now - cap_ms if job.age_capped else cap_ms - now)
    ahead = 0
    for capped, rank in ((job.age_capped, job.rank), (not job.age_capped, other)):
        values = {"queue": job.queue, "age_capped": capped, "rank": rank, "seq": job.seq}
        row = snapshot.one("position_ahead", {**values, "limit": EXACT_UP_TO + 1})
        ahead += row[0] if row else 0
    return ahead


def _estimate_ahead(snapshot: ReadSnapshot, job: Job) -> int:
    """Estimate the jobs ahead by linear interpolation of the rank between the queue's lowest and highest."""
    lowest, highest = snapshot.one("rank_span", {"queue": job.queue}) or (None, None)
    pending = snapshot.counts().get((job.queue, "pending"), 0)
    if lowest is None or highest is None or highest == lowest or job.age_capped:
        return max(pending - 1, EXACT_UP_TO)
    fraction: float = (job.rank - lowest) / (highest - lowest)
    return min(max(round(pending * fraction), EXACT_UP_TO), max(pending - 1, EXACT_UP_TO))


def _find_miscounts(snapshot: ReadSnapshot) -> Iterator[str]:
    real = {(queue, state): jobs for queue, state, jobs in snapshot.all("check_counts")}
    counted = snapshot.counts()
    for queue, state in sorted(real.keys() | counted.keys()):
        here, there = counted.get((queue, state), 0), real.get((queue, state), 0)
        if here != there:
            yield f"queue {queue} counts {here} {state} jobs and has {there}"
