"""Metrics collector: the stats of one worker's jobs, in memory, in spans of ten seconds.

A claim and an end of a job append two numbers to lists. All else is done once for thousands of jobs, or at
the end of the span.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from forebay.domain.histogram import NOTHING, histogram_of, merge_histograms
from forebay.domain.job import Job, QueueName
from forebay.domain.metrics import (
    MAX_SERIES,
    OTHER,
    TEN_SECONDS,
    MetricEvent,
    MetricRow,
    TaskStats,
    bound_errors,
    metric_events,
    start_of,
)
from forebay.domain.settlement import OutcomeKind, Settlement

# The rollup reads rows of the last two minutes, and merges those of all workers after five. A row that came
# later would not be rolled up. One that was written, and is offered again later because its answer was lost,
# would count twice.
LATE_MS: Final = 90_000
# So many durations are kept as single values before they become a histogram.
RAW: Final = 20_000
MAX_ERROR_NAME: Final = 100
_COMPLETED: Final = OutcomeKind.COMPLETED


class _TaskSeries:
    """The stats of one task in one queue."""

    __slots__ = ("claimed", "completed", "counts", "errors", "run", "runs", "wait", "waits")

    def __init__(self) -> None:
        self.waits: list[int] = []  # milliseconds
        self.runs: list[float] = []  # seconds
        self.wait = self.run = NOTHING
        self.claimed = self.completed = 0
        self.counts: defaultdict[str, int] = defaultdict(int)
        self.errors: defaultdict[str, int] = defaultdict(int)

    def fold(self) -> None:
        """Add the values since the last fold to the histograms."""
        self.claimed += len(self.waits)
        self.wait = merge_histograms((self.wait, histogram_of([ms * 1_000 for ms in self.waits])))
        self.run = merge_histograms((self.run, histogram_of([int(s * 1_000_000) for s in self.runs])))
        self.waits, self.runs = [], []

    def add_failure(self, end: Settlement) -> None:
        """Count an attempt that has not completed."""
        what = metric_events(end.outcome, end.state)
        for one in what:
            self.counts[one.value] += 1
        if end.error is not None and MetricEvent.FAILED in what:
            self.errors[end.error.type[:MAX_ERROR_NAME]] += 1

    def build_stats(self) -> TaskStats:
        self.fold()
        own = {MetricEvent.CLAIMED.value: self.claimed, MetricEvent.COMPLETED.value: self.completed}
        counts = {what: count for what, count in (own | self.counts).items() if count}
        return TaskStats(counts, bound_errors(dict(self.errors)), self.wait, self.run)


class MetricsCollector:
    """The stats of one worker; not thread-safe. Times are the store's: the time of a claim is taken for the
    present, so that clocks of workers need not agree."""

    def __init__(self, worker: str, max_series: int = MAX_SERIES) -> None:
        self._worker = worker
        self._max_series = max_series
        self._offset_ms: float | None = None
        self._start = 0
        self._jumps = 0
        self._raw = 0
        self._series: dict[tuple[QueueName, str], _TaskSeries] = {}
        self._consumers: dict[QueueName, int] = {}
        self._closed: list[MetricRow] = []

    def on_claimed(self, jobs: Sequence[Job], now: float, *, is_new: bool = True) -> None:
        """Record claimed jobs. `now` is the monotonic time of the claim; without `is_new` they were claimed
        earlier and are known since now."""
        if not jobs:
            return
        if is_new or self._offset_ms is None:
            self._offset_ms = (jobs[0].started_at or 0) - now * 1_000
        self._advance_span(now, len(jobs))
        series = self._series
        for job in jobs:
            one = series.get((job.queue, job.task)) or self._get_or_create(job)
            due_at = job.run_at if job.run_at > job.ready_at else job.ready_at
            one.waits.append((job.started_at or due_at) - due_at)

    def on_settled(self, ends: Iterable[tuple[Job, Settlement, float | None]], now: float) -> None:
        """Record settled attempts, with the seconds they ran, or None for those that have not run."""
        self._advance_span(now, 0)
        series = self._series
        for job, end, seconds in ends:
            one = series.get((job.queue, job.task)) or self._get_or_create(job)
            if end.outcome is _COMPLETED:
                one.completed += 1
            else:
                one.add_failure(end)
            if seconds is not None:
                one.runs.append(seconds)
                self._raw += 1

    def set_consumers(self, consumers: Mapping[QueueName, int], now: float) -> None:
        """Record the active consumers of queues; the maximum of a span counts. Beyond the maximum of series
        queues are left out: a row for each name that clients invent would fill the store."""
        self._advance_span(now, 0)
        for queue, active in consumers.items():
            if queue in self._consumers or len(self._consumers) < self._max_series:
                self._consumers[queue] = max(active, self._consumers.get(queue, 0))

    def set_store_time(self, store_ms: int, now: float) -> None:
        """Record the store's time of a moment ago, for a worker that has claimed nothing yet."""
        if self._offset_ms is None:
            self._offset_ms = store_ms - now * 1_000

    def store_ms(self, now: float) -> int:
        """Return the store's time, as far as claims have told it."""
        return int(now * 1_000 + (self._offset_ms or 0))

    def take_rows(self, now: float) -> list[MetricRow]:
        """Return the rows of all finished spans, once."""
        self._advance_span(now, 0)
        closed, self._closed = self._closed, []
        return closed

    def take_all_rows(self) -> list[MetricRow]:
        """Return all rows, also those of the present span, at the end of the worker."""
        self._close_span()
        closed, self._closed = self._closed, []
        return closed

    def _get_or_create(self, job: Job) -> _TaskSeries:
        """Return the job's series of this span; one series for all tasks beyond the maximum."""
        key = (job.queue, job.task if len(self._series) < self._max_series else OTHER)
        return self._series.setdefault(key, _TaskSeries())

    def _advance_span(self, now: float, jobs: int) -> None:
        """Begin another span if it is time, and fold the values if there are many."""
        start = start_of(self.store_ms(now), TEN_SECONDS)
        # A claim tells a time that is over by as long as its answer took, so ends may have been ahead of it.
        # A span that is closed is not begun again for that: its row would take the place of the first one.
        if start > self._start + LATE_MS:
            # The rows of that span would come too late to be rolled up. They were never offered to the store,
            # so their counts belong to the present span as well: a consumer may look once in ten minutes.
            self._consumers = {}
            self._start = start
        elif start > self._start or start < self._start - TEN_SECONDS:
            self._close_span()
            if start < self._start:
                self._jumps += 1  # the store's clock was set back: from here on rows have another name
            self._start = start
        self._raw += jobs
        if self._raw > RAW:
            self._raw = 0
            for one in self._series.values():
                one.fold()

    def _close_span(self) -> None:
        by_queue: defaultdict[QueueName, dict[str, TaskStats]] = defaultdict(dict)
        for (queue, task), one in self._series.items():
            by_queue[queue][task] = one.build_stats()
        worker = f"{self._worker}.{self._jumps}" if self._jumps else self._worker
        self._closed += [
            MetricRow(
                resolution_ms=TEN_SECONDS,
                starts_at=self._start,
                queue=queue,
                worker=worker,
                tasks=by_queue.get(queue, {}),
                consumers=self._consumers.get(queue, 0),
            )
            for queue in {**by_queue, **self._consumers}
        ]
        self._series, self._consumers = {}, {}
        self._raw = 0
