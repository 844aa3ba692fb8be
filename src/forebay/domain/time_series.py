"""What rows of metrics show: a value for each step of a time series, and the figures of one span."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from forebay.domain.job import DAY_MS, QueueName
from forebay.domain.lifecycle import JobState
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
# Steps that are taken when nobody asks for one; the finest that makes no more than the usual points.
_STEPS: Final = (TEN_SECONDS, MINUTE, 5 * MINUTE, HOUR, 6 * HOUR, DAY_MS)


class SeriesSpan(NamedTuple):
    """What is known of one step. `stock` is None where nobody has counted, or where it is about one task;
    `enqueued` and `grown`, by how many dead letters there are more, too, and where there was none before.
    `pending_peak` is the most that waited whenever they were counted, each queue for itself."""

    stats: TaskStats
    snapshots: Mapping[QueueName, QueueSnapshot] | None = None
    enqueued: int | None = None
    dead_letters_growth: int | None = None
    pending_peak: int | None = None

    @property
    def error_rate(self) -> float | None:
        """The share of failures in all attempts that came to an end of their own."""
        failed, completed = self.count(MetricEvent.FAILED), self.count(MetricEvent.COMPLETED)
        return failed / (failed + completed) if failed + completed else None

    def count(self, kind: str) -> int:
        return self.stats.counts.get(kind, 0)

    def jobs(self, state: str) -> int | None:
        """How many jobs were in a state when they were last counted."""
        if self.snapshots is None:
            return None
        found: int = sum(getattr(stock.counts, state) for stock in self.snapshots.values())
        return found


class SeriesMetric(NamedTuple):
    """Something that can be drawn over time."""

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
    **{what.value: SeriesMetric("jobs", partial(_count, what.value)) for what in MetricEvent},
    **{
        f"{which}_p{percent}_ms": SeriesMetric("ms", partial(_percentile, which, percent))
        for which in ("wait", "run")
        for percent in (50, 95, 99)
    },
    **{f"{which}_average_ms": SeriesMetric("ms", partial(_average, which)) for which in ("wait", "run")},
    "error_rate": SeriesMetric("share", lambda span: span.error_rate),
    **{
        state.value: SeriesMetric("jobs", partial(_jobs, state.value))
        for state in JobState
        if state not in (JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED)
    },
    "most_pending": SeriesMetric("jobs", lambda span: span.pending_peak),
    "dead_letters": SeriesMetric("jobs", partial(_jobs, "dead")),
    "dead_letters_growth": SeriesMetric("jobs", lambda span: span.dead_letters_growth),
}


class SeriesSteps(NamedTuple):
    """Steps of one length from `start` on, in milliseconds, and the tier whose rows they are made of."""

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
        """From where on rows are needed: what was counted before the first step says what came in it."""
        return self.start - self.length


def _tier_of(length: int) -> int:
    return max(tier for tier in RETENTION_MS if length % tier == 0)


def _longest(length: int) -> int:
    """How long a time can be shown in such steps. Finer rows are many, and there are none that are older."""
    return RETENTION_MS[_tier_of(length)]


def steps_between(start: int, end: int, length: int | None = None) -> SeriesSteps:
    """Whole steps that cover this time; raises ConfigError for what cannot be shown."""
    if start >= end:
        raise ConfigError("a time series has to end after it has begun")
    if length is None:
        usual = (step for step in _STEPS if (end - start) // step <= DEFAULT_POINTS)
        length = next((step for step in usual if end - start <= _longest(step)), DAY_MS)
    if length < TEN_SECONDS or length % TEN_SECONDS:
        raise ConfigError("the resolution of a time series is a multiple of ten seconds")
    if end - start > _longest(length):
        days = _longest(length) // DAY_MS
        raise ConfigError(
            f"with this resolution a time series is at most {days} days long; take a coarser one"
        )
    found = SeriesSteps(start - start % length, end + -end % length, length)
    if len(found.starts) > MAX_POINTS:
        raise ConfigError(f"a time series has at most {MAX_POINTS:,} points, not {len(found.starts):,}")
    return found


def series_spans(rows: Iterable[MetricRow], steps: SeriesSteps, task: str | None = None) -> list[SeriesSpan]:
    """What these rows say of each step; of one task, or of all. Those before the first step count for what
    was enqueued in it."""
    by_step: defaultdict[int, list[MetricRow]] = defaultdict(list)
    for row in rows:
        by_step[row.starts_at - row.starts_at % steps.length].append(row)
    before = _last_snapshots(by_step.pop(steps.since, []))
    found = []
    for start in steps.starts:
        span = _span(by_step.get(start, []), task, before)
        found.append(span)
        before = {**(before or {}), **span.snapshots} if span.snapshots is not None else before
    return found


def span_between(rows: Sequence[MetricRow], start: int, task: str | None = None) -> SeriesSpan:
    """What these rows say of the time from `start` on, as one. What was enqueued is told by the last count
    before that time; where there is none, by the first one in it."""
    before = _last_snapshots(row for row in rows if row.starts_at < start)
    if before is None:
        counted = [row.starts_at for row in rows if row.snapshot is not None]
        first = min(counted, default=0)
        if first != max(counted, default=0):
            before = _last_snapshots(row for row in rows if row.starts_at == first)
    return _span([row for row in rows if row.starts_at >= start], task, before)


def _span(
    rows: Sequence[MetricRow], task: str | None, before: Mapping[QueueName, QueueSnapshot] | None
) -> SeriesSpan:
    tallies = [tally for row in rows for name, tally in row.tasks.items() if task is None or name == task]
    stock = _last_snapshots(rows) if task is None else None
    most = _pending_peak(rows) if task is None else None
    return SeriesSpan(
        merge_stats(tallies), stock, _count_enqueued(before, stock), _count_growth(before, stock), most
    )


def _last_snapshots(rows: Iterable[MetricRow]) -> dict[QueueName, QueueSnapshot] | None:
    found: dict[QueueName, QueueSnapshot] = {}
    for row in rows:
        known = found.get(row.queue)
        if row.snapshot is not None and (known is None or known.taken_at <= row.snapshot.taken_at):
            found[row.queue] = row.snapshot
    return found or None


def _pending_peak(rows: Iterable[MetricRow]) -> int | None:
    found: dict[QueueName, int] = {}
    for row in rows:
        if row.snapshot is not None:
            found[row.queue] = max(row.snapshot.pending_peak, found.get(row.queue, 0))
    return sum(found.values()) if found else None


def _count_enqueued(
    before: Mapping[QueueName, QueueSnapshot] | None, now: Mapping[QueueName, QueueSnapshot] | None
) -> int | None:
    """How many jobs have come between two counts. A queue that was not there before had none; jobs that were
    put into another queue are not taken away from what came."""
    if before is None or now is None:
        return None
    return sum(
        max(0, stock.accepted - (before[queue].accepted if queue in before else 0))
        for queue, stock in now.items()
    )


def _count_growth(
    before: Mapping[QueueName, QueueSnapshot] | None, now: Mapping[QueueName, QueueSnapshot] | None
) -> int | None:
    """How many dead letters there are more than at the count before, or fewer."""
    if before is None or now is None:
        return None
    return sum(
        stock.counts.dead - (before[queue].counts.dead if queue in before else 0)
        for queue, stock in now.items()
    )


def metric_values(spans: Sequence[SeriesSpan], name: str) -> list[float | None]:
    """One metric of each step; raises ConfigError for one that there is not."""
    if name not in METRICS:
        raise ConfigError(f"there is no metric {name!r:.60}; there are {', '.join(METRICS)}")
    return [METRICS[name].value(span) for span in spans]
