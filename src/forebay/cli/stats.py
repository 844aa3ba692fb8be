"""`forebay stats` and `forebay stuck`: how it goes, at a glance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from threading import Event
from typing import Any, Final

import click
import msgspec

from forebay.app.figures import LONGEST_WINDOW_MS, USUAL_WINDOW_MS, QueueFigures, queue_figures
from forebay.cli.opening import Desk
from forebay.cli.options import at_store
from forebay.cli.output import Output, length, table
from forebay.cli.queues import count_table
from forebay.cli.shapes import counts_json, iso, queue_json, summary_json, worker_json
from forebay.domain.job import JobSummary
from forebay.domain.lifecycle import JobState
from forebay.domain.metrics import Happened
from forebay.domain.query import MAX_PAGE, Counts, JobQuery
from forebay.domain.worker import SHOWN_JOBS, WorkerInfo
from forebay.service.schema.metrics import queue_metrics
from forebay.stores.protocol import Reader

HOUR_MS: Final = 3_600_000
# Shown beside it, or known to a server alone, or only of a queue that was asked for by its name.
_NOT_HERE: Final = (
    *("counts", "rate_limited_requests"),
    *("pending_by_priority", "oldest_pending_age_seconds"),
)
_FIGURE_COLUMNS: Final = (
    *("queue", "came/s", "done/s", "done", "failed", "died"),
    *("wait p50", "wait p95", "run p50", "run p95", "run p99"),
)
_WORKER_COLUMNS: Final = (
    *("worker", "host", "pid", "is", "pulse", "queues"),
    *("runs", "done", "failed", "memory", "up", "last beat"),
)


@click.command()
@click.option("--watch", is_flag=True, help="Show it again and again until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(0.1, 3_600),
    default=2.0,
    show_default=True,
    help="How many seconds between two looks.",
)
@click.option(
    "--window",
    type=click.IntRange(10, LONGEST_WINDOW_MS // 1_000),
    default=USUAL_WINDOW_MS // 1_000,
    show_default=True,
    help="What happened in so many seconds.",
)
@at_store()
def stats(desk: Desk, out: Output, watch: bool, every: float, window: int) -> None:
    """Jobs by queue and state, what became of them lately, and who works on them."""
    if not watch:
        return _look(desk, out, window * 1_000)
    pause = Event()
    try:
        while True:
            click.clear()
            _look(desk, out, window * 1_000)
            pause.wait(every)
    except KeyboardInterrupt:
        return None


def _look(desk: Desk, out: Output, window_ms: int) -> None:
    reader = desk.reader
    now, workers = reader.now(), reader.workers()
    # Dropped queues have jobs too, and a total without them would not add up.
    counts = reader.counts()
    queues = reader.queues(list(counts)) if counts else []
    figures = queue_figures(reader, list(counts), window_ms) if counts else []
    total = added(list(counts.values()))
    answer = {
        "store": desk.name,
        "at": iso(now),
        "total": counts_json(total),
        "queues": [queue_json(queue, counts[queue.name]) for queue in queues],
        "metrics": [figures_json(one) for one in figures],
        "workers": [worker_json(worker, now) for worker in workers],
    }

    def people() -> None:
        count_table((queue, counts[queue.name]) for queue in queues)
        click.echo(f"{total.live:,} live, {total.total:,} in all")
        figure_table(figures)
        worker_table(workers, now)

    out.answer(answer, people)


def figures_json(one: QueueFigures) -> dict[str, Any]:
    """What became of the jobs of a queue, as the service tells it."""
    told: dict[str, Any] = msgspec.to_builtins(queue_metrics(one))
    return {name: value for name, value in told.items() if name not in _NOT_HERE}


def figure_table(figures: Sequence[QueueFigures]) -> None:
    """What became of jobs lately, of queues where something happened."""
    busy = [one for one in figures if one.span.tally.counts or one.span.enqueued]
    if busy:
        title = f"In the last {length(busy[0].window_ms)}"
        table(_FIGURE_COLUMNS, [_figure_row(one) for one in busy], title=title)


def _figure_row(one: QueueFigures) -> tuple[object, ...]:
    came = one.per_second(one.span.enqueued)
    lengths = [*map(one.wait.percentile_ms, (50, 95)), *map(one.run.percentile_ms, (50, 95, 99))]
    counts = (one.span.count(what) for what in (Happened.COMPLETED, Happened.FAILED, Happened.DEAD))
    rates = ("" if came is None else f"{came:.1f}", f"{one.throughput:.1f}")
    return (one.queue, *rates, *counts, *("" if ms is None else _in_ms(ms) for ms in lengths))


def _in_ms(ms: float) -> str:
    """With three digits, or all that stand before the point; never as a power of ten."""
    return f"{ms:.3g} ms" if ms < 100 else f"{ms:,.0f} ms"  # noqa: PLR2004 - from here on all three are there


def added(counts: list[Counts]) -> Counts:
    """The sum of some counts."""
    return Counts(**{state: sum(getattr(one, state) for one in counts) for state in JobState})


def worker_table(workers: list[WorkerInfo], now: int) -> None:
    """Workers, with what they do and how long ago each has said that it is alive."""
    rows = [_worker_row(one, now) for one in workers]
    table(_WORKER_COLUMNS, rows, title="Workers")


def _worker_row(one: WorkerInfo, now: int) -> tuple[object, ...]:
    queues = ", ".join(f"{name} (paused)" if name in one.paused else name for name in one.queues)
    running = f"{len(one.running)}+" if len(one.running) == SHOWN_JOBS else len(one.running)
    memory = "" if one.memory is None else f"{one.memory // 1_048_576} MB"
    up, beat = length(max(0, now - one.started_at)), f"{length(max(0, now - one.beat_at))} ago"
    labels = (one.id, one.host, one.pid, one.state, one.pulse(now), queues)
    return (*labels, running, one.completed, one.failed, memory, up, beat)


@click.command()
@click.option(
    "--age-hours",
    type=click.FloatRange(0, 1_000_000),
    default=1.0,
    show_default=True,
    help="Running for longer.",
)
@at_store()
def stuck(desk: Desk, out: Output, age_hours: float) -> None:
    """List jobs that have been running for too long."""
    if math.isnan(age_hours):
        raise click.BadParameter("nan is not a number of hours")
    now = desk.reader.now()
    found = running_longer(desk.reader, now, round(age_hours * HOUR_MS))
    rows = [
        (job.id, job.queue, job.task, job.attempt, job.worker, length(now - (job.started_at or now)))
        for job in found
    ]
    out.answer(
        {"jobs": [summary_json(job) for job in found]},
        lambda: table(("id", "queue", "task", "try", "worker", "runs for"), rows),
    )


def running_longer(reader: Reader, now: int, age_ms: int) -> list[JobSummary]:
    """Running jobs whose attempt began longer ago than this, oldest first."""
    found = [job for job in running(reader) if job.started_at is not None and now - job.started_at > age_ms]
    return sorted(found, key=lambda job: job.started_at or 0)


def running(reader: Reader) -> Iterator[JobSummary]:
    """All running jobs."""
    after, is_over = None, False
    while not is_over:
        page = reader.search(JobQuery(states=(JobState.RUNNING,)), limit=MAX_PAGE, after=after)
        yield from page.jobs
        after, is_over = page.after, page.after is None
