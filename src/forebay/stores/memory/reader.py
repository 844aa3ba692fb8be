"""Read handle of the in-memory engine: copies what it needs under the lock, and computes after releasing
it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from heapq import nlargest, nsmallest
from math import inf
from typing import Any, Final

from msgspec.structs import replace

from forebay.domain.audit_hash_chain import ChainLine
from forebay.domain.concurrency_and_rate_limits import Limit, LimitUsage
from forebay.domain.dependencies import Edge, by_parent
from forebay.domain.job import Job, JobId, QueueName, WorkerId
from forebay.domain.job_history import Event, Timeline
from forebay.domain.job_query import EXACT_UP_TO, JobQuery, Page, check_limit, page_end
from forebay.domain.job_states import JobState
from forebay.domain.job_views import ArchiveEntry, JobStateInfo, JobSummary, state_info_of
from forebay.domain.metrics import MetricPage
from forebay.domain.progress import JobProgress
from forebay.domain.queue import Queue, QueueState
from forebay.domain.queue_counts import Counts, LaneCount, Position
from forebay.domain.schedule import Schedule, ScheduleRun
from forebay.domain.store_health import ServerUsage, StoreHealth
from forebay.domain.stored_document import Document
from forebay.domain.throughput import Throughput
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import Command
from forebay.errors import StoreError
from forebay.stores.contract.metrics import MAX_ROWS
from forebay.stores.memory import audit_log, metrics
from forebay.stores.memory.concurrency_and_rate_limits import limit_usages
from forebay.stores.memory.insert import copy_for_caller, load_throughput
from forebay.stores.memory.invariants import find_problems
from forebay.stores.memory.job_heap import claim_order, is_in_time
from forebay.stores.memory.state import State
from forebay.stores.shared.job_export import JobExportMixin
from forebay.stores.shared.query_filter import matches, summary_of

_NO_PAYLOAD: Final[dict[str, Any]] = {"payload": b"", "result": None, "errors": ()}


class MemoryReader(JobExportMixin):
    def __init__(self, open_state: Callable[[], AbstractContextManager[State]]) -> None:
        self._open_state = open_state
        self._closed = False

    def jobs(self, ids: Sequence[JobId], *, with_payload: bool = True) -> list[Job | None]:
        with self._open_snapshot() as state:
            records = [state.jobs.get(job_id) for job_id in ids]
        jobs = [None if record is None else copy_for_caller(record.job) for record in records]
        return jobs if with_payload else [job and replace(job, **_NO_PAYLOAD) for job in jobs]

    def job_states(self, ids: Sequence[JobId]) -> list[JobStateInfo | None]:
        return [None if job is None else state_info_of(job) for job in self.jobs(ids)]

    def search(self, query: JobQuery, *, limit: int = 100, after: str | None = None) -> Page:
        check_limit(limit)
        with self._open_snapshot() as state:
            jobs = [record.job for record in state.jobs.values()]
        below = inf if after is None else page_end(after)
        matching = (job for job in jobs if job.seq < below and matches(query, job))
        # One more than `limit` shows whether there is a next page.
        newest = nlargest(limit + 1, matching, key=lambda job: job.seq)
        page = newest[:limit]
        return Page(
            jobs=tuple(map(summary_of, page)), after=str(page[-1].seq) if len(newest) > limit else None
        )

    def counts(self, queues: Sequence[QueueName] = ()) -> dict[QueueName, Counts]:
        with self._open_snapshot() as state:
            names = queues or sorted(state.queues)
            return {name: Counts(**{each: state.count(name, each) for each in JobState}) for name in names}

    def peek(self, queue: QueueName, limit: int = 10) -> list[JobSummary]:
        check_limit(limit)
        with self._open_snapshot() as state:
            if queue not in state.queues:
                return []
            scoring, now = state.queues[queue].settings.scoring, state.now
            jobs = [job for job in _ready_jobs(state, queue) if is_in_time(job, now)]
        return [
            summary_of(job) for job in nsmallest(limit, jobs, key=lambda job: claim_order(scoring, job, now))
        ]

    def lanes(self) -> list[LaneCount]:
        with self._open_snapshot() as state:
            pending = [record.job for record in state.jobs.values() if record.job.state is JobState.PENDING]
        counted = Counter((job.queue, job.lane) for job in pending if job.lane is not None)
        return [
            LaneCount(queue=queue, lane=lane, jobs=jobs) for (queue, lane), jobs in sorted(counted.items())
        ]

    def position(self, job_id: JobId) -> Position | None:
        with self._open_snapshot() as state:
            record = state.jobs.get(job_id)
            if record is None or record.job.state is not JobState.PENDING or record.job.lane is not None:
                return None
            job, scoring, now = record.job, state.queues[record.job.queue].settings.scoring, state.now
            ready = _ready_jobs(state, job.queue)
            wait_ms = load_throughput(state, job.queue).wait_ms
        own_order = claim_order(scoring, job, now)
        ahead = sum(claim_order(scoring, other, now) < own_order for other in ready)
        is_exact = ahead <= EXACT_UP_TO
        ahead = ahead if is_exact else _estimate_ahead(job, ready)
        return Position(ahead=ahead, is_exact=is_exact, starts_in_ms=wait_ms(ahead))

    def throughputs(self, queues: Sequence[QueueName]) -> dict[QueueName, Throughput]:
        with self._open_snapshot() as state:
            return {queue: load_throughput(state, queue) for queue in queues}

    def queues(self, names: Sequence[QueueName] = ()) -> list[Queue]:
        with self._open_snapshot() as state:
            queues = [state.queues[name] for name in sorted(state.queues)]
        if names:
            return [queue for queue in queues if queue.name in names]
        return [queue for queue in queues if queue.state is not QueueState.DROPPED]

    def limits(self) -> list[Limit]:
        with self._open_snapshot() as state:
            return [state.limits[scope].limit for scope in sorted(state.limits)]

    def limit_usages(self) -> list[LimitUsage]:
        with self._open_snapshot() as state:
            return limit_usages(state)

    def schedules(
        self, names: Sequence[str] | None = None, *, limit: int = 1_000, after: str | None = None
    ) -> list[Schedule]:
        check_limit(limit)
        with self._open_snapshot() as state:
            allowed = state.schedules if names is None else set(names)
            matching = [
                name for name in state.schedules if name in allowed and (after is None or name > after)
            ]
            return [state.schedules[name] for name in sorted(matching)[:limit]]

    def schedule_runs(self, name: str, *, limit: int = 100) -> list[ScheduleRun]:
        check_limit(limit)
        with self._open_snapshot() as state:
            return list(state.schedule_runs.get(name, ())[::-1][:limit])

    def documents(
        self,
        kind: str,
        names: Sequence[str] | None = None,
        *,
        limit: int = 1_000,
        after: str | None = None,
    ) -> list[Document]:
        check_limit(limit)
        with self._open_snapshot() as state:
            all_names = sorted(name for document_kind, name in state.documents if document_kind == kind)
            wanted = all_names if names is None else [name for name in all_names if name in names]
            later = [name for name in wanted if after is None or name > after]
            return [state.documents[kind, name] for name in later[:limit]]

    def workers(self, ids: Sequence[WorkerId] | None = None) -> list[WorkerInfo]:
        with self._open_snapshot() as state:
            named = state.workers if ids is None else dict.fromkeys(ids)
            workers = [state.workers[worker] for worker in named if worker in state.workers]
        return sorted(workers, key=lambda worker: (worker.started_at, worker.id))

    def commands(self, ids: Sequence[str]) -> list[Command | None]:
        with self._open_snapshot() as state:
            return [state.commands.get(command_id) for command_id in ids]

    def parents(self, ids: Sequence[JobId]) -> list[Edge]:
        with self._open_snapshot() as state:
            return [edge for child in ids for _, edge in sorted(state.edges.get(child, {}).items())]

    def first_in_sequence(self, name: str) -> JobId | None:
        with self._open_snapshot() as state:
            positions = state.sequences.get(name)
            return positions[min(positions)] if positions else None

    def dependants(
        self, ids: Sequence[JobId], *, limit: int = 1_000, after: Edge | None = None
    ) -> list[Edge]:
        check_limit(limit)
        with self._open_snapshot() as state:
            edges = [
                state.edges[child][position]
                for parent in ids
                for child, position in state.children.get(parent, {})
            ]
        rest = [edge for edge in edges if after is None or by_parent(edge) > by_parent(after)]
        return nsmallest(limit, rest, key=by_parent)

    def progress(self, job_id: JobId) -> JobProgress:
        with self._open_snapshot() as state:
            return state.progress.get(job_id, JobProgress())

    def history(self, job_id: JobId) -> Timeline | None:
        with self._open_snapshot() as state:
            record = state.jobs.get(job_id)
            if record is None:
                return None
            return Timeline(
                job=copy_for_caller(record.job),
                attempts=tuple(attempt for attempt, _ in state.attempts.get(job_id, ())),
                events=tuple(state.events[number] for number in state.job_events.get(job_id, ())),
                progress=state.progress.get(job_id, JobProgress()),
            )

    def _idempotency_until(self, job: Job) -> int | None:
        with self._open_snapshot() as state:
            holder, until = state.idempotency_keys.get((job.queue, job.idempotency_key or ""), (None, 0))
        return until if holder == job.id else None

    def audit(self, *, limit: int = 100, after: int | None = None) -> list[tuple[int, Event]]:
        check_limit(limit)
        with self._open_snapshot() as state:
            return audit_log.load_newest(state, limit, after)

    def audit_chain(self, *, limit: int = 100, after: int = 0) -> list[ChainLine]:
        check_limit(limit)
        with self._open_snapshot() as state:
            return audit_log.load_chain(state, limit, after)

    def count_unchained(self) -> int:
        with self._open_snapshot() as state:
            return audit_log.count_unchained(state)

    def archive(
        self, *, day: str | None = None, task: str | None = None, limit: int = 100
    ) -> list[ArchiveEntry]:
        check_limit(limit)
        with self._open_snapshot() as state:
            lines = list(state.archive.items())
        matching = [
            (line.finished_at, number, line)
            for number, line in lines
            if (day is None or line.day == day) and (task is None or line.task == task)
        ]
        return [line for *_, line in nlargest(limit, matching, key=lambda entry: entry[:2])]

    def metrics(self, resolution_ms: int, since: int, before: int, *, limit: int = MAX_ROWS) -> MetricPage:
        with self._open_snapshot() as state:
            return metrics.load_page(state, resolution_ms, since, before, limit)

    def last_metrics(self, resolution_ms: int) -> int | None:
        with self._open_snapshot() as state:
            return metrics.load_last_start(state, resolution_ms)

    def now(self) -> int:
        with self._open_snapshot() as state:
            return state.now

    def server_usage(self) -> ServerUsage:
        return ServerUsage()

    def health(self) -> StoreHealth:
        with self._open_snapshot() as state:
            return StoreHealth(engine="memory", schema=1, problems=tuple(find_problems(state)))

    def close(self) -> None:
        self._closed = True

    def _open_snapshot(self) -> AbstractContextManager[State]:
        if self._closed:
            raise StoreError("this handle is closed")
        return self._open_state()


def _ready_jobs(state: State, queue: QueueName) -> list[Job]:
    pending = state.jobs_in_states(queue, [JobState.PENDING])
    return [record.job for record in pending if record.job.lane is None]


def _estimate_ahead(job: Job, ready: list[Job]) -> int:
    ranks = [other.rank for other in ready if other.age_capped is job.age_capped]
    span = max(ranks) - min(ranks)
    return len(ready) * (job.rank - min(ranks)) // span if span else len(ready)
