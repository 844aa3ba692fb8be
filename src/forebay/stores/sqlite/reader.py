"""Looking at a database file without holding anybody up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from forebay.clock import Clock
from forebay.domain.history import Timeline
from forebay.domain.job import Job, JobId, JobSummary, QueueName, WorkerId
from forebay.domain.lifecycle import LIVE, JobState
from forebay.domain.note import Notes
from forebay.domain.pressure import Pace
from forebay.domain.query import (
    EXACT_UP_TO,
    Archived,
    Counts,
    Fate,
    Health,
    HeldJobs,
    JobQuery,
    Page,
    Position,
    Vitals,
    check_limit,
    fate_of,
    page_end,
)
from forebay.domain.queue import Queue, QueueState
from forebay.domain.worker import Command, WorkerInfo
from forebay.domain.workflow import Edge, EdgeState
from forebay.errors import StoreError
from forebay.stores.audit_log import LooksAtAuditRows
from forebay.stores.ids import seq_in_id
from forebay.stores.pressure import pace_from_row, pace_values
from forebay.stores.rows import (
    Row,
    archived_from_row,
    attempt_from_row,
    command_from_row,
    edge_from_row,
    event_from_row,
    is_strange,
    json_text,
    notes_from_rows,
    queue_from_row,
    start_after,
    summary_from_row,
    worker_from_row,
)
from forebay.stores.sqlite.adopting import ShowsSqliteWholes
from forebay.stores.sqlite.connection import DRIVER_ERRORS, Connection, translated
from forebay.stores.sqlite.documents import LooksAtSqliteDocuments
from forebay.stores.sqlite.edges import met_since
from forebay.stores.sqlite.limiting import LooksAtSqliteLimits
from forebay.stores.sqlite.measuring import LooksAtSqliteMetrics
from forebay.stores.sqlite.rows import job_from_row
from forebay.stores.sqlite.scheduling import LooksAtSqliteSchedules
from forebay.stores.sqlite.schema import PACKAGE, SchemaGuard, schema_number
from forebay.stores.sqlite.transaction import Asking
from forebay.stores.statements import load_statements

LATE_MS: Final = 60_000
ROWS_PER_LOOK: Final = 10_000
CACHE_KIB: Final = -8_192  # 8 MiB; negative means kibibytes and not pages
_FINISHED: Final = (JobState.COMPLETED, JobState.CANCELLED)


class SqliteReader(
    LooksAtSqliteSchedules,
    LooksAtSqliteLimits,
    LooksAtSqliteDocuments,
    LooksAtSqliteMetrics,
    ShowsSqliteWholes,
    LooksAtAuditRows,
):
    """A handle to look at one database file."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        connection.execute("pragma query_only = 1")
        connection.execute("pragma busy_timeout = 5000")
        # Each commit of another handle empties the cache, so a large one would hold payloads and little else.
        connection.execute(f"pragma cache_size = {CACHE_KIB:d}")
        self._connection = connection
        self._clock = clock
        self._statements = load_statements(PACKAGE)
        self._guard = SchemaGuard(connection.path, self._statements)
        self._is_closed = False

    @contextmanager
    def _looking(self) -> Iterator[None]:
        if self._is_closed:
            raise StoreError("this handle is closed; open another one")
        try:
            with self._connection.reading() as raw:
                self._guard.check_if_moved(raw)
                yield
        except DRIVER_ERRORS as exc:
            raise translated(self._connection.path, exc) from exc

    def _all(self, name: str, values: Mapping[str, object] | None = None) -> list[Row]:
        return self._connection.execute(self._statements[name], values or {}).fetchall()

    def _looked(self, name: str, values: dict[str, object]) -> list[Row]:
        with self._looking():
            return self._all(name, values)

    def _one(self, name: str, values: Mapping[str, object]) -> Row | None:
        row: Row | None = self._connection.execute(self._statements[name], values).fetchone()
        return row

    def _job(self, statement: str, job_id: JobId) -> Job | None:
        found = self._one("locate", {"seq": seq_in_id(job_id), "job_id": job_id})
        if found is None:
            return None
        row = self._one(statement, {"seq": found[0], "job_id": job_id})
        return None if row is None else job_from_row(row)

    def jobs(self, ids: Sequence[JobId], *, with_payload: bool = True) -> list[Job | None]:
        with self._looking():
            return [self._job("job" if with_payload else "job_without_payload", job_id) for job_id in ids]

    def fates(self, ids: Sequence[JobId]) -> list[Fate | None]:
        with self._looking():
            jobs = [self._job("fate", job_id) for job_id in ids]
        return [None if job is None else fate_of(job) for job in jobs]

    def search(self, query: JobQuery, *, limit: int = 100, after: str | None = None) -> Page:
        check_limit(limit)
        places = json_text(_places(query.states))
        with self._looking():
            span = {"places": places, "after": None if after is None else page_end(after)}
            window = self._one("search_window", {**span, "rows": ROWS_PER_LOOK - 1})
            until, reached = (None, None) if window is None else window
            rows = self._all("search", {**_conditions(query), **span, "until": until, "limit": limit})
        jobs = tuple(summary_from_row(row) for row in rows)
        if len(rows) == limit:
            return Page(jobs=jobs, after=str(rows[-1][-1]))
        return Page(jobs=jobs, after=None if until is None else str(until), stopped_at=reached)

    def counts(self, queues: Sequence[QueueName] = ()) -> dict[QueueName, Counts]:
        with self._looking():
            names = list(queues) or [row[0] for row in self._all("queues")]
            rows = self._all("counts")
        by_queue: dict[QueueName, dict[str, int]] = {name: {} for name in names}
        for queue, state, jobs in rows:
            if queue in by_queue:
                by_queue[queue][state] = jobs
        return {name: Counts(**states) for name, states in by_queue.items()}

    def held(self) -> list[HeldJobs]:
        with self._looking():
            rows = self._all("held_jobs")
        return [HeldJobs(queue=queue, gate=gate, jobs=jobs) for queue, gate, jobs in rows]

    def peek(self, queue: QueueName, limit: int = 10) -> list[JobSummary]:
        check_limit(limit)
        with self._looking():
            found = self._queue(queue)
            if found is None:
                return []
            cap_ms = found.settings.scoring.cap_ms
            values = {"queue": queue, "now": self.now(), "cap_ms": cap_ms, "limit": limit}
            return [summary_from_row(row) for row in self._all("peek", values)]

    def position(self, job_id: JobId) -> Position | None:
        with self._looking():
            job = self._job("job", job_id)
            if job is None or job.state is not JobState.PENDING or job.gate is not None:
                return None
            ahead = self._ahead(job)
            is_exact = ahead <= EXACT_UP_TO
            if not is_exact:
                ahead = self._estimate(job)
            wait_ms = self._pace(job.queue).wait_ms
        return Position(ahead=ahead, is_exact=is_exact, starts_in_ms=wait_ms(ahead))

    def paces(self, queues: Sequence[QueueName]) -> dict[QueueName, Pace]:
        with self._looking():
            return {queue: self._pace(queue) for queue in queues}

    def _pace(self, queue: QueueName) -> Pace:
        now = self.now()
        return pace_from_row(self._one("pace", pace_values(queue, now)), now)

    def _ahead(self, job: Job) -> int:
        """Jobs with a greater lead, or the same one and a lower seq, in both classes."""
        queue = self._queue(job.queue)
        cap_ms = 0 if queue is None else queue.settings.scoring.cap_ms
        # The rank that a job of the other class must stay below to go first.
        other = job.rank + (self.now() - cap_ms if job.capped else cap_ms - self.now())
        ahead = 0
        for capped, rank in ((job.capped, job.rank), (not job.capped, other)):
            values = {"queue": job.queue, "capped": capped, "rank": rank, "seq": job.seq}
            row = self._one("ahead", {**values, "most": EXACT_UP_TO + 1})
            ahead += row[0] if row else 0
        return ahead

    def _estimate(self, job: Job) -> int:
        """Where the job's rank lies between the queue's lowest and highest, as a share of its jobs."""
        span = self._one("rank_span", {"queue": job.queue})
        pending: int = next((row[2] for row in self._all("counts") if row[:2] == (job.queue, "pending")), 0)
        lowest, highest = span or (None, None)
        if lowest is None or highest is None or highest == lowest or job.capped:
            return max(pending - 1, EXACT_UP_TO)
        share: float = (job.rank - lowest) / (highest - lowest)
        return min(max(round(pending * share), EXACT_UP_TO), max(pending - 1, EXACT_UP_TO))

    def _queue(self, name: QueueName) -> Queue | None:
        row = self._one("queue", {"name": name})
        return None if row is None else queue_from_row(row)

    def queues(self, names: Sequence[QueueName] = ()) -> list[Queue]:
        with self._looking():
            found = [queue_from_row(row) for row in self._all("queues")]
        if names:
            return [queue for queue in found if queue.name in names]
        return [queue for queue in found if queue.state is not QueueState.DROPPED]

    def workers(self, ids: Sequence[WorkerId] | None = None) -> list[WorkerInfo]:
        with self._looking():
            rows = (
                self._all("workers") if ids is None else self._all("workers_named", {"ids": json_text(ids)})
            )
            return [worker_from_row(row) for row in rows]

    def commands(self, ids: Sequence[str]) -> list[Command | None]:
        with self._looking():
            rows = [self._one("command", {"id": command_id}) for command_id in ids]
        return [None if row is None or is_strange(row) else command_from_row(row) for row in rows]

    def parents(self, ids: Sequence[JobId]) -> list[Edge]:
        with self._looking():
            return self._as_they_stand(self._all("parents", {"ids": json_text(ids)}))

    def _as_they_stand(self, rows: list[Row]) -> list[Edge]:
        """Edges from rows, where those of parents that have completed are as they were before."""
        edges = [edge_from_row(row) for row in rows]
        still = [(edge.child, edge.number, edge.parent) for edge in edges if edge.state is EdgeState.OPEN]
        met = met_since(Asking(self._all), still)
        return [
            replace(edge, state=EdgeState.MET) if (edge.child, edge.number) in met else edge for edge in edges
        ]

    def first_in_sequence(self, name: str) -> JobId | None:
        with self._looking():
            rows = self._all("sequence_turn", {"name": name})
        return rows[0][0] if rows else None

    def dependants(
        self, ids: Sequence[JobId], *, limit: int = 1_000, after: Edge | None = None
    ) -> list[Edge]:
        check_limit(limit)
        values = {"ids": json_text(ids), "limit": limit, **start_after(after)}
        with self._looking():
            return self._as_they_stand(self._all("dependants", values))

    def notes(self, job_id: JobId) -> Notes:
        with self._looking():
            found = self._one("locate", {"seq": seq_in_id(job_id), "job_id": job_id})
            return Notes() if found is None else self._notes(found[0])

    def _notes(self, seq: int) -> Notes:
        return notes_from_rows(self._all("notes", {"seq": seq}))

    def history(self, job_id: JobId) -> Timeline | None:
        with self._looking():
            job = self._job("job", job_id)
            if job is None:
                return None
            attempts = tuple(
                attempt_from_row(job_id, row) for row in self._all("attempts", {"job_id": job_id})
            )
            events = tuple(event_from_row(row) for row in self._all("events", {"job_id": job_id}))
            notes = self._notes(job.seq)
        return Timeline(job=job, attempts=attempts, events=events, notes=notes)

    def archive(self, *, day: str | None = None, task: str | None = None, limit: int = 100) -> list[Archived]:
        check_limit(limit)
        with self._looking():
            rows = self._all("archive", {"day": day, "task": task, "limit": limit})
        return [archived_from_row(row) for row in rows]

    def now(self) -> int:
        return self._clock.now_ms()

    def vitals(self) -> Vitals:
        return Vitals()

    def health(self) -> Health:
        problems: list[str] = []
        with self._looking():
            for (line,) in self._connection.execute("pragma quick_check(10)").fetchall():
                if line != "ok":
                    problems.append(f"the file is damaged: {line}")
            problems += self._miscounted()
            for name in ("check_jobs", "check_orders", "check_keys", "check_edges"):
                found = self._all(name, {"late_ms": LATE_MS})
                problems += [f"{what} {trouble}" for what, trouble in found]
            number = schema_number(self._connection, self._statements)
        return Health(engine="sqlite", schema=number, problems=tuple(problems))

    def _miscounted(self) -> Iterator[str]:
        real = {(queue, state): jobs for queue, state, jobs in self._all("check_counts")}
        counted = {(queue, state): jobs for queue, state, jobs in self._all("counts")}
        for queue, state in sorted(real.keys() | counted.keys()):
            here, there = counted.get((queue, state), 0), real.get((queue, state), 0)
            if here != there:
                yield f"queue {queue} counts {here} {state} jobs and has {there}"

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._connection.close()


def _places(states: Sequence[JobState]) -> list[str]:
    """The tables in which jobs of these states can be."""
    wanted = set(states or JobState)
    places = (("live", LIVE), ("finished", frozenset(_FINISHED)), ("dead", frozenset({JobState.DEAD})))
    return [place for place, inside in places if wanted & inside]


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
        "once_key": query.once_key,
        "correlation_id": query.correlation_id,
        "parent_id": query.parent_id,
        "tags": json_text(query.tags) if query.tags else None,
        "metadata": json_text(dict(query.metadata)) if query.metadata else None,
        "text": query.text,
    }
