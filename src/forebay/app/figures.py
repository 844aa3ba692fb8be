"""How queues do: what has happened lately and over time, put together from what the store keeps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from forebay.domain.bands import by_band
from forebay.domain.histogram import Histogram
from forebay.domain.job import DAY_MS, JobSummary, QueueName
from forebay.domain.metrics import (
    ACTIVE_MS,
    HOUR,
    KEPT_MS,
    MINUTE,
    TEN_SECONDS,
    Happened,
    MetricRow,
    Tally,
    active_consumers,
    merged,
    merged_tasks,
    start_of,
)
from forebay.domain.query import Counts
from forebay.domain.series import Span, Steps, span_between, spans, values
from forebay.domain.worker import Pulse
from forebay.errors import ConfigError
from forebay.stores.measuring import every_row
from forebay.stores.protocol import Reader

USUAL_WINDOW_MS: Final = 5 * MINUTE
LONGEST_WINDOW_MS: Final = 90 * DAY_MS
Sees = Callable[[QueueName], bool]


class QueueFigures(NamedTuple):
    """What a queue has and what it has done in so many milliseconds."""

    queue: QueueName
    window_ms: int
    counts: Counts
    span: Span
    tasks: dict[str, Tally]
    waits_ms: int | None  # how long the job has waited that is the next; None if none does
    consumers: int
    now: int
    next: Sequence[JobSummary] = ()  # those that come next, as many as were looked at

    def per_second(self, jobs: int | None) -> float | None:
        return None if jobs is None else jobs * 1_000 / self.window_ms

    @property
    def throughput(self) -> float:
        """Completed jobs a second."""
        return self.span.count(Happened.COMPLETED) * 1_000 / self.window_ms

    @property
    def bands(self) -> dict[str, int]:
        """How many of those that come next are in each band of priorities."""
        return by_band(job.priority for job in self.next)

    @property
    def oldest_ms(self) -> int | None:
        """How long the oldest of them has waited."""
        return max((max(0, self.now - job.run_at) for job in self.next), default=None)

    @property
    def wait(self) -> Histogram:
        return self.span.tally.wait

    @property
    def run(self) -> Histogram:
        return self.span.tally.run


def queue_figures(
    reader: Reader,
    queues: Sequence[QueueName] = (),
    window_ms: int = USUAL_WINDOW_MS,
    *,
    peeks: int = 1,
) -> list[QueueFigures]:
    """The figures of these queues, or of all; by name. Those of the last seconds are not there yet: workers
    write every ten seconds. So many of the jobs that come next are looked at."""
    if not TEN_SECONDS <= window_ms <= LONGEST_WINDOW_MS:
        raise ConfigError("a window is from 10 seconds to 90 days long")
    now = reader.now()
    counts = reader.counts(queues)
    tier = TEN_SECONDS if window_ms <= HOUR else MINUTE if window_ms <= DAY_MS else HOUR
    start = start_of(now - window_ms, tier)
    by_queue: defaultdict[QueueName, list[MetricRow]] = defaultdict(list)
    for row in every_row(reader, tier, start - tier, now + tier):
        by_queue[row.queue].append(row)
    consumers = _consumers(reader, now)
    return [
        _figures(reader, name, counts[name], by_queue[name], consumers[name], (now, start, window_ms, peeks))
        for name in sorted(counts)
    ]


def _consumers(reader: Reader, now: int) -> Counter[QueueName]:
    """How many consumers of each queue are active: workers that are alive, and others by their metrics."""
    found = active_consumers(every_row(reader, TEN_SECONDS, now - 2 * ACTIVE_MS, now + TEN_SECONDS), now)
    for one in reader.workers():
        if one.pulse(now) is not Pulse.DEAD:
            found.update(one.queues)
    return found


def _figures(
    reader: Reader,
    name: QueueName,
    counts: Counts,
    rows: Sequence[MetricRow],
    consumers: int,
    times: tuple[int, int, int, int],
) -> QueueFigures:
    now, start, window_ms, peeks = times
    first = reader.peek(name, peeks) if counts.pending else []
    return QueueFigures(
        queue=name,
        window_ms=window_ms,
        counts=counts,
        span=span_between(rows, start),
        tasks=merged_tasks(row.tasks for row in rows if row.start >= start),
        waits_ms=max(0, now - first[0].run_at) if first else None,
        consumers=consumers,
        now=now,
        next=first,
    )


def series(
    reader: Reader,
    names: Sequence[str],
    steps: Steps,
    *,
    queue: QueueName | None = None,
    task: str | None = None,
    sees: Sees | None = None,
) -> list[list[float | None]]:
    """The values of each of these metrics in each step: of a queue, or of all that `sees` allows. None where
    it was forgotten."""
    rows = [
        row
        for row in every_row(reader, steps.tier, steps.since, steps.end)
        if (queue is None or row.queue == queue) and (sees is None or sees(row.queue))
    ]
    found = spans(rows, steps, task)
    kept_since = reader.now() - KEPT_MS[steps.tier]
    return [
        [None if start < kept_since else one for start, one in zip(steps.starts, known, strict=True)]
        for known in (values(found, name) for name in names)
    ]


class Totals(NamedTuple):
    """All that was ever counted of a queue; `accepted` is None until somebody has counted its jobs."""

    tally: Tally
    accepted: int | None

    def count(self, what: str) -> int:
        return self.tally.counts.get(what, 0)


def totals(reader: Reader) -> dict[QueueName, Totals]:
    """All that was ever counted, by queue. The rows of days make it up, so it only grows, until the first of
    them are forgotten after three years."""
    rows: defaultdict[QueueName, list[MetricRow]] = defaultdict(list)
    for row in every_row(reader, DAY_MS, 0, reader.now() + DAY_MS):
        rows[row.queue].append(row)
    return {queue: _totals(of_queue) for queue, of_queue in sorted(rows.items())}


def _totals(rows: Sequence[MetricRow]) -> Totals:
    stocks = [row.stock for row in rows if row.stock is not None]
    accepted = max((stock.accepted for stock in stocks), default=None)
    return Totals(merged([tally for row in rows for tally in row.tasks.values()]), accepted)
