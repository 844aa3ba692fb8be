"""`forebay stats` and `forebay stuck`: overview of a store, and long-running jobs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from threading import Event
from typing import Any, Final

import click
import msgspec

from forebay.cli.commands.queues import print_counts
from forebay.cli.json_format import counts_json, iso_instant, queue_json, summary_json, worker_json
from forebay.cli.options import with_store
from forebay.cli.output import Output, format_duration, print_table
from forebay.cli.store_session import StoreSession
from forebay.domain.job import JobSummary
from forebay.domain.job_states import JobState
from forebay.domain.metrics import MetricEvent
from forebay.domain.query import MAX_PAGE, Counts, JobQuery
from forebay.domain.worker import SHOWN_JOBS, WorkerInfo
from forebay.operations.queue_stats import DEFAULT_WINDOW_MS, MAX_WINDOW_MS, QueueStats, queue_stats
from forebay.service.schema.metrics import queue_metrics
from forebay.stores.contract.reader import Reader

HOUR_MS: Final = 3_600_000
# Shown elsewhere, known only to a server, or counted only for a queue that is named in the request.
_HIDDEN_FIELDS: Final = (
    *("counts", "rate_limited_requests"),
    *("pending_by_priority", "oldest_pending_age_seconds"),
)
_STATS_COLUMNS: Final = (
    *("queue", "new/s", "jobs/s", "done", "failed", "dead"),
    *("wait p50", "wait p95", "run p50", "run p95", "run p99"),
)
_WORKER_COLUMNS: Final = (
    *("worker", "host", "pid", "state", "heartbeat", "queues"),
    *("running", "done", "failed", "memory", "up", "last heartbeat"),
)


@click.command()
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(0.1, 3_600),
    default=2.0,
    show_default=True,
    help="Seconds between two refreshes.",
)
@click.option(
    "--window",
    type=click.IntRange(10, MAX_WINDOW_MS // 1_000),
    default=DEFAULT_WINDOW_MS // 1_000,
    show_default=True,
    help="Length of the window for rates, in seconds.",
)
@with_store()
def stats(session: StoreSession, out: Output, watch: bool, every: float, window: int) -> None:
    """Show jobs by queue and state, recent rates, and the workers."""
    if not watch:
        return _print_stats(session, out, window * 1_000)
    pause = Event()
    try:
        while True:
            click.clear()
            _print_stats(session, out, window * 1_000)
            pause.wait(every)
    except KeyboardInterrupt:
        return None


def _print_stats(session: StoreSession, out: Output, window_ms: int) -> None:
    reader = session.reader
    now, workers = reader.now(), reader.workers()
    # Dropped queues can have jobs too; without them the total would not add up.
    counts = reader.counts()
    queues = reader.queues(list(counts)) if counts else []
    stats_by_queue = queue_stats(reader, list(counts), window_ms) if counts else []
    total = sum_counts(list(counts.values()))
    answer = {
        "store": session.name,
        "at": iso_instant(now),
        "total": counts_json(total),
        "queues": [queue_json(queue, counts[queue.name]) for queue in queues],
        "metrics": [stats_json(item) for item in stats_by_queue],
        "workers": [worker_json(worker, now) for worker in workers],
    }

    def print_text() -> None:
        print_counts((queue, counts[queue.name]) for queue in queues)
        click.echo(f"{total.live:,} live, {total.total:,} in all")
        print_queue_stats(stats_by_queue)
        print_workers(workers, now)

    out.print_result(answer, print_text)


def stats_json(item: QueueStats) -> dict[str, Any]:
    """Return the statistics of a queue, in the form that the service returns."""
    metrics: dict[str, Any] = msgspec.to_builtins(queue_metrics(item))
    return {name: value for name, value in metrics.items() if name not in _HIDDEN_FIELDS}


def print_queue_stats(items: Sequence[QueueStats]) -> None:
    """Print recent rates and durations of the queues that had any activity."""
    busy = [item for item in items if item.span.stats.counts or item.span.enqueued]
    if busy:
        title = f"In the last {format_duration(busy[0].window_ms)}"
        print_table(_STATS_COLUMNS, [_stats_row(item) for item in busy], title=title)


def _stats_row(item: QueueStats) -> tuple[object, ...]:
    enqueue_rate = item.per_second(item.span.enqueued)
    durations = [*map(item.wait.percentile_ms, (50, 95)), *map(item.run.percentile_ms, (50, 95, 99))]
    counts = (
        item.span.count(event) for event in (MetricEvent.COMPLETED, MetricEvent.FAILED, MetricEvent.DEAD)
    )
    rates = ("" if enqueue_rate is None else f"{enqueue_rate:.1f}", f"{item.throughput:.1f}")
    return (item.queue, *rates, *counts, *("" if ms is None else _format_ms(ms) for ms in durations))


def _format_ms(ms: float) -> str:
    """Format with three digits, or with all digits before the point; never as a power of ten."""
    return f"{ms:.3g} ms" if ms < 100 else f"{ms:,.0f} ms"  # noqa: PLR2004 - from here on all three are there


def sum_counts(counts: list[Counts]) -> Counts:
    """Return the sum of counts."""
    return Counts(**{state: sum(getattr(item, state) for item in counts) for state in JobState})


def print_workers(workers: list[WorkerInfo], now: int) -> None:
    """Print workers with their state and the time since their last heartbeat."""
    rows = [_worker_row(worker, now) for worker in workers]
    print_table(_WORKER_COLUMNS, rows, title="Workers")


def _worker_row(worker: WorkerInfo, now: int) -> tuple[object, ...]:
    queues = ", ".join(f"{name} (paused)" if name in worker.paused else name for name in worker.queues)
    running = f"{len(worker.running)}+" if len(worker.running) == SHOWN_JOBS else len(worker.running)
    memory = "" if worker.memory is None else f"{worker.memory // 1_048_576} MB"
    uptime, last_heartbeat = (
        format_duration(max(0, now - worker.started_at)),
        f"{format_duration(max(0, now - worker.heartbeat_at))} ago",
    )
    labels = (worker.id, worker.host, worker.pid, worker.state, worker.heartbeat_status(now), queues)
    return (*labels, running, worker.completed, worker.failed, memory, uptime, last_heartbeat)


@click.command()
@click.option(
    "--age-hours",
    type=click.FloatRange(0, 1_000_000),
    default=1.0,
    show_default=True,
    help="Running for longer than this.",
)
@with_store()
def stuck(session: StoreSession, out: Output, age_hours: float) -> None:
    """List jobs that have been running for too long."""
    if math.isnan(age_hours):
        raise click.BadParameter("nan is not a number of hours")
    now = session.reader.now()
    found = find_running_longer(session.reader, now, round(age_hours * HOUR_MS))
    rows = [
        (job.id, job.queue, job.task, job.attempt, job.worker, format_duration(now - (job.started_at or now)))
        for job in found
    ]
    out.print_result(
        {"jobs": [summary_json(job) for job in found]},
        lambda: print_table(("id", "queue", "task", "try", "worker", "running for"), rows),
    )


def find_running_longer(reader: Reader, now: int, age_ms: int) -> list[JobSummary]:
    """Return running jobs whose attempt started more than `age_ms` ago, oldest first."""
    found = [
        job for job in iter_running(reader) if job.started_at is not None and now - job.started_at > age_ms
    ]
    return sorted(found, key=lambda job: job.started_at or 0)


def iter_running(reader: Reader) -> Iterator[JobSummary]:
    """Iterate over all running jobs."""
    after, is_over = None, False
    while not is_over:
        page = reader.search(JobQuery(states=(JobState.RUNNING,)), limit=MAX_PAGE, after=after)
        yield from page.jobs
        after, is_over = page.after, page.after is None
