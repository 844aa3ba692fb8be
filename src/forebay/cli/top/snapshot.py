"""Snapshot of a store, and its rows in `forebay top`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from forebay.cli.commands.stats import stats_json, sum_counts
from forebay.cli.json_format import counts_json, iso_instant, queue_json, summary_json, worker_json
from forebay.cli.output import cell, format_duration, format_instant
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.job_views import JobStateInfo, JobSummary
from forebay.domain.metrics import MetricEvent
from forebay.domain.queue import Queue, QueueState
from forebay.domain.queue_counts import Counts
from forebay.domain.worker import SHOWN_JOBS, WorkerInfo
from forebay.operations.queue_stats import QueueStats, queue_stats
from forebay.stores.contract.reader import Reader

MAX_SCANNED: Final = 100  # newest running jobs, and newest failed jobs
QUEUE_HEADS: Final = (
    *("queue", "state", "pending", "run", "sched", "retry", "dead"),
    *("new/s", "jobs/s", "failed", "wait p95", "oldest"),
)
WORKER_HEADS: Final = (
    "worker",
    "host",
    "state",
    "heartbeat",
    "queues",
    "running",
    "slots",
    "done",
    "failed",
    "cpu",
    "memory",
)
RUNNING_HEADS: Final = ("id", "queue", "task", "try", "worker", "running for")
FAILURE_HEADS: Final = ("id", "queue", "task", "state", "ago", "reason")


class QueueRow(NamedTuple):
    """Queue with its job counts and recent rates."""

    queue: Queue
    stats: QueueStats

    @property
    def counts(self) -> Counts:
        return self.stats.counts

    @property
    def cells(self) -> tuple[object, ...]:
        stats, counts = self.stats, self.counts
        enqueue_rate, waited = stats.per_second(stats.span.enqueued), stats.wait.percentile_ms(95)
        return (
            *(self.queue.name, self.queue.state, counts.pending, counts.running, counts.scheduled),
            *(
                counts.retrying,
                counts.dead,
                "" if enqueue_rate is None else f"{enqueue_rate:.1f}",
                f"{stats.throughput:.1f}",
            ),
            *(stats.span.count(MetricEvent.FAILED), "" if waited is None else format_duration(round(waited))),
            format_duration(stats.waits_ms),
        )


# Sort orders of queues; the queues of most interest come first.
SORTS: Final[dict[str, Callable[[QueueRow], Any]]] = {
    "queue": lambda row: row.queue.name,
    "pending": lambda row: -row.counts.pending,
    "running": lambda row: -row.counts.running,
    "dead": lambda row: -row.counts.dead,
    "done": lambda row: -row.stats.throughput,
    "oldest": lambda row: -(row.stats.waits_ms or 0),
}


class StoreSnapshot(NamedTuple):
    """Contents of a store at one moment."""

    at: int
    queue_rows: Sequence[QueueRow]
    workers: Sequence[WorkerInfo]
    running: Sequence[JobSummary]  # of the newest jobs, the longest running first
    failures: Sequence[JobStateInfo]  # newest failed attempts, latest first
    window_ms: int

    @property
    def total(self) -> Counts:
        return sum_counts([row.counts for row in self.queue_rows])

    def sort_rows(self, name: str, *, is_reversed: bool = False) -> list[QueueRow]:
        by_name = sorted(self.queue_rows, key=SORTS["queue"])
        return sorted(by_name, key=SORTS[name], reverse=is_reversed)

    def worker_rows(self) -> list[tuple[object, ...]]:
        return [_worker_row(worker, self.at) for worker in self.workers]

    def running_rows(self) -> list[tuple[object, ...]]:
        return [
            (
                job.id,
                job.queue,
                job.task,
                job.attempt,
                job.worker,
                format_duration(self.at - (job.started_at or self.at)),
            )
            for job in self.running
        ]

    def failure_rows(self) -> list[tuple[object, ...]]:
        return [
            (
                info.id,
                info.queue,
                info.task,
                info.state,
                format_duration(max(0, self.at - _failure_time(info))),
                _failure_reason(info),
            )
            for info in self.failures
        ]


def take_snapshot(reader: Reader, window_ms: int) -> StoreSnapshot:
    """Read the store; deleted queues without jobs are left out."""
    counts = reader.counts()
    queues = {queue.name: queue for queue in reader.queues(list(counts))} if counts else {}
    stats = queue_stats(reader, list(counts), window_ms) if counts else []
    rows = [QueueRow(queues[item.queue], item) for item in stats if item.queue in queues]
    running = reader.search(JobQuery(states=(JobState.RUNNING,)), limit=MAX_SCANNED).jobs
    failed = reader.search(JobQuery(states=(JobState.DEAD, JobState.RETRYING)), limit=MAX_SCANNED).jobs
    states = reader.job_states([job.id for job in failed]) if failed else []
    return StoreSnapshot(
        at=reader.now(),
        queue_rows=[row for row in rows if row.queue.state is not QueueState.DROPPED or row.counts.total],
        workers=reader.workers(),
        running=sorted(running, key=lambda job: job.started_at or 0),
        failures=sorted((info for info in states if info is not None), key=_failure_time, reverse=True),
        window_ms=window_ms,
    )


def format_summary(store: str, snapshot: StoreSnapshot) -> str:
    """Return the first line of the screen."""
    total = snapshot.total
    alive = f"{len(snapshot.workers)} worker{'' if len(snapshot.workers) == 1 else 's'}"
    states = (JobState.PENDING, JobState.RUNNING, JobState.RETRYING, JobState.DEAD)
    jobs = ", ".join(f"{getattr(total, state):,} {state}" for state in states)
    return f"{store}  {format_instant(snapshot.at)}  {jobs}  {alive}"


def snapshot_json(store: str, snapshot: StoreSnapshot, sort: str, *, is_reversed: bool) -> dict[str, Any]:
    """Return the snapshot as JSON."""
    rows = snapshot.sort_rows(sort, is_reversed=is_reversed)
    return {
        "store": store,
        "at": iso_instant(snapshot.at),
        "window_ms": snapshot.window_ms,
        "total": counts_json(snapshot.total),
        "queues": [{**queue_json(row.queue, row.counts), "metrics": stats_json(row.stats)} for row in rows],
        "workers": [worker_json(worker, snapshot.at) for worker in snapshot.workers],
        "running": [summary_json(job) for job in snapshot.running],
        "failures": [_job_state_json(info) for info in snapshot.failures],
    }


def _job_state_json(state_info: JobStateInfo) -> dict[str, Any]:
    return {
        "id": state_info.id,
        "queue": state_info.queue,
        "task": state_info.task,
        "state": state_info.state,
        "failed_at": iso_instant(_failure_time(state_info)),
        "reason": _failure_reason(state_info),
    }


def _failure_time(state_info: JobStateInfo) -> int:
    if state_info.error is not None:
        return state_info.error.at
    return state_info.finished_at or 0


def _failure_reason(state_info: JobStateInfo) -> str:
    if state_info.error is None:
        return state_info.reason or ""
    return (
        f"{state_info.error.type}: {state_info.error.message}"
        if state_info.error.message
        else state_info.error.type
    )


def _worker_row(worker: WorkerInfo, now: int) -> tuple[object, ...]:
    running = f"{len(worker.running)}+" if len(worker.running) == SHOWN_JOBS else len(worker.running)
    memory = "" if worker.memory is None else f"{worker.memory // 1_048_576} MB"
    cpu = "" if worker.cpu is None else f"{worker.cpu:.0%}"
    queues = cell(", ".join(f"{name} (paused)" if name in worker.paused else name for name in worker.queues))
    return (
        *(worker.id, worker.host, worker.state, worker.heartbeat_status(now), queues, running, worker.slots),
        *(worker.completed, worker.failed, cpu, memory),
    )
