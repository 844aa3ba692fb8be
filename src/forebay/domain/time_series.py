"""Time series of metric rows: a value for each step, and the stats of one span."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from forebay.domain.job import DAY_MS, QueueName
from forebay.domain.job_states import JobState
from forebay.domain.metrics import (
    HOUR,
    MINUTE,
    RETENTION_MS,
    TEN_SECONDS,
    MetricEvent,
    MetricRow,
    QueueSnapshot,
    TaskStats,
    merge_stats,
)
from forebay.errors import ConfigError

MAX_POINTS: Final = 2_000
DEFAULT_POINTS: Final = 400
# Default steps; the finest one is used that gives no more than the default number of points.
_STEPS: Final = (TEN_SECONDS, MINUTE, 5 * MINUTE, HOUR, 6 * HOUR, DAY_MS)


class SeriesSpan(NamedTuple):
    """Values of one step. `snapshots` is None where no snapshot was taken, or for a single task.
    `enqueued` and `dead_letters_growth` are None too, also without an earlier snapshot. `pending_peak` is
    the highest number of pending jobs, summed over the peaks of queues."""

    stats: TaskStats
    snapshots: Mapping[QueueName, QueueSnapshot] | None = None
    enqueued: int | None = None
    dead_letters_growth: int | None = None
    pending_peak: int | None = None

    @property
    def error_rate(self) -> float | None:
        """Return the ratio of failures among all attempts that failed or completed."""
        failed, completed = self.count(MetricEvent.FAILED), self.count(MetricEvent.COMPLETED)
        return failed / (failed + completed) if failed + completed else None

    def count(self, kind: str) -> int:
        return self.stats.counts.get(kind, 0)

    def jobs(self, state: str) -> int | None:
        """Return how many jobs were in a state at the last snapshot."""
        if self.snapshots is None:
            return None
        jobs: int = sum(getattr(snapshot.counts, state) for snapshot in self.snapshots.values())
        return jobs


class SeriesMetric(NamedTuple):
    """Metric of a time series."""

    unit: str
    value: Callable[[SeriesSpan], float | None]


def _count(kind: str, span: SeriesSpan) -> float:
    return span.count(kind)


def _jobs(state: str, span: SeriesSpan) -> float | None:
    return span.jobs(state)


def _percentile(which: str, percent: float, span: SeriesSpan) -> float | None:
    return (span.stats.wait if which == "wait" else span.stats.run).percentile_ms(percent)


def _average(which: str, span: SeriesSpan) -> float | None:
    return (span.stats.wait if which == "wait" else span.stats.run).average_ms


METRICS: Final[Mapping[str, SeriesMetric]] = {
    "enqueued": SeriesMetric("jobs", lambda span: span.enqueued),
    **{event.value: SeriesMetric("jobs", partial(_count, event.value)) for event in MetricEvent},
    **{
        f"{which}_p{percent}_ms": SeriesMetric("ms", partial(_percentile, which, percent))
        for which in ("wait", "run")
        for percent in (50, 95, 99)
    },
    **{f"{which}_average_ms": SeriesMetric("ms", partial(_average, which)) for which in ("wait", "run")},
    "error_rate": SeriesMetric("ratio", lambda span: span.error_rate),
    **{
        state.value: SeriesMetric("jobs", partial(_jobs, state.value))
        for state in JobState
        if state not in (JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED)
    },
    "pending_peak": SeriesMetric("jobs", lambda span: span.pending_peak),
    "dead_letters": SeriesMetric("jobs", partial(_jobs, "dead")),
    "dead_letters_growth": SeriesMetric("jobs", lambda span: span.dead_letters_growth),
}


class SeriesSteps(NamedTuple):
    """Steps of one length from `start` on, in milliseconds."""

    start: int
    end: int
    length: int

    @property
    def tier(self) -> int:
        return _tier_of(self.length)

    @property
    def starts(self) -> range:
        return range(self.start, self.end, self.length)

    @property
    def since(self) -> int:
        """Return the start of the needed rows: the snapshot before the first step shows how many jobs came
        in it."""
        return self.start - self.length


def _tier_of(length: int) -> int:
    return max(tier for tier in RETENTION_MS if length % tier == 0)


def _longest(length: int) -> int:
    """Return the longest time that such steps can show. Finer rows are many, and older ones are removed."""
    return RETENTION_MS[_tier_of(length)]


def steps_between(start: int, end: int, length: int | None = None) -> SeriesSteps:
    """Return whole steps that cover this time; raise ConfigError if it cannot be shown."""
    if start >= end:
        raise ConfigError("a time series has to end after it has begun")
    if length is None:
        suitable = (step for step in _STEPS if (end - start) // step <= DEFAULT_POINTS)
        length = next((step for step in suitable if end - start <= _longest(step)), DAY_MS)
    if length < TEN_SECONDS or length % TEN_SECONDS:
        raise ConfigError("the resolution of a time series is a multiple of ten seconds")
    if end - start > _longest(length):
        days = _longest(length) // DAY_MS
        raise ConfigError(
            f"with this resolution a time series is at most {days} days long; take a coarser one"
        )
    steps = SeriesSteps(start - start % length, end + -end % length, length)
    if len(steps.starts) > MAX_POINTS:
        raise ConfigError(f"a time series has at most {MAX_POINTS:,} points, not {len(steps.starts):,}")
    return steps


def series_spans(rows: Iterable[MetricRow], steps: SeriesSteps, task: str | None = None) -> list[SeriesSpan]:
    """Return the values of each step, for one task or all. Rows before the first step are used for its
    enqueued jobs."""
    by_step: defaultdict[int, list[MetricRow]] = defaultdict(list)
    for row in rows:
        by_step[row.starts_at - row.starts_at % steps.length].append(row)
    before = _last_snapshots(by_step.pop(steps.since, []))
    spans = []
    for start in steps.starts:
        span = _span(by_step.get(start, []), task, before)
        spans.append(span)
        before = {**(before or {}), **span.snapshots} if span.snapshots is not None else before
    return spans


def span_between(rows: Sequence[MetricRow], start: int, task: str | None = None) -> SeriesSpan:
    """Return the values of the time from `start` on, as one span. Enqueued jobs are counted from the last
    snapshot before that time, or else from the first one in it."""
    before = _last_snapshots(row for row in rows if row.starts_at < start)
    if before is None:
        snapshot_starts = [row.starts_at for row in rows if row.snapshot is not None]
        first = min(snapshot_starts, default=0)
        if first != max(snapshot_starts, default=0):
            before = _last_snapshots(row for row in rows if row.starts_at == first)
    return _span([row for row in rows if row.starts_at >= start], task, before)


def _span(
    rows: Sequence[MetricRow], task: str | None, before: Mapping[QueueName, QueueSnapshot] | None
) -> SeriesSpan:
    stats = [
        task_stats for row in rows for name, task_stats in row.tasks.items() if task is None or name == task
    ]
    snapshots = _last_snapshots(rows) if task is None else None
    peak = _pending_peak(rows) if task is None else None
    return SeriesSpan(
        merge_stats(stats),
        snapshots,
        _count_enqueued(before, snapshots),
        _count_growth(before, snapshots),
        peak,
    )


def _last_snapshots(rows: Iterable[MetricRow]) -> dict[QueueName, QueueSnapshot] | None:
    latest: dict[QueueName, QueueSnapshot] = {}
    for row in rows:
        known = latest.get(row.queue)
        if row.snapshot is not None and (known is None or known.taken_at <= row.snapshot.taken_at):
            latest[row.queue] = row.snapshot
    return latest or None


def _pending_peak(rows: Iterable[MetricRow]) -> int | None:
    peaks: dict[QueueName, int] = {}
    for row in rows:
        if row.snapshot is not None:
            peaks[row.queue] = max(row.snapshot.pending_peak, peaks.get(row.queue, 0))
    return sum(peaks.values()) if peaks else None


def _count_enqueued(
    before: Mapping[QueueName, QueueSnapshot] | None, now: Mapping[QueueName, QueueSnapshot] | None
) -> int | None:
    """Count the jobs that came between two snapshots. A queue without an earlier snapshot had none; jobs
    that were moved to another queue are not subtracted."""
    if before is None or now is None:
        return None
    return sum(
        max(0, snapshot.accepted - (before[queue].accepted if queue in before else 0))
        for queue, snapshot in now.items()
    )


def _count_growth(
    before: Mapping[QueueName, QueueSnapshot] | None, now: Mapping[QueueName, QueueSnapshot] | None
) -> int | None:
    """Return by how many dead letters the number has grown since the earlier snapshot; negative if it has
    shrunk."""
    if before is None or now is None:
        return None
    return sum(
        snapshot.counts.dead - (before[queue].counts.dead if queue in before else 0)
        for queue, snapshot in now.items()
    )


def metric_values(spans: Sequence[SeriesSpan], name: str) -> list[float | None]:
    """Return one metric of each step; raise ConfigError for an unknown one."""
    if name not in METRICS:
        raise ConfigError(f"there is no metric {name!r:.60}; there are {', '.join(METRICS)}")
    return [METRICS[name].value(span) for span in spans]
