"""`forebay stats`: jobs by queue and state, recent rates and durations, and the workers."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import Any, Final

import click
import msgspec

from forebay.cli.commands.queues import print_counts
from forebay.cli.commands.worker_admin import print_workers
from forebay.cli.json_format import counts_json, iso_instant, queue_json, worker_json
from forebay.cli.options import with_store
from forebay.cli.output import Output, format_duration, print_table
from forebay.cli.store_session import StoreSession
from forebay.domain.job_states import JobState
from forebay.domain.metrics import MetricEvent
from forebay.domain.queue_counts import Counts
from forebay.operations.queue_stats import DEFAULT_WINDOW_MS, MAX_WINDOW_MS, QueueStats, queue_stats
from forebay.service.schema.metrics import queue_metrics

# Shown elsewhere, known only to a server, or counted only for a queue that is named in the request.
_HIDDEN_FIELDS: Final = (
    *("counts", "rate_limited_requests"),
    *("pending_by_priority", "oldest_pending_age_seconds"),
)
_STATS_COLUMNS: Final = (
    *("queue", "new/s", "jobs/s", "done", "failed", "dead"),
    *("wait p50", "wait p95", "run p50", "run p95", "run p99"),
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
