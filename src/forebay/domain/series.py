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
    KEPT_MS,
    MINUTE,
    TEN_SECONDS,
    Happened,
    MetricRow,
    Stock,
    Tally,
    merged,
)
from forebay.errors import ConfigError

MAX_POINTS: Final = 2_000
USUAL_POINTS: Final = 400
# Steps that are taken when nobody asks for one; the finest that makes no more than the usual points.
_STEPS: Final = (TEN_SECONDS, MINUTE, 5 * MINUTE, HOUR, 6 * HOUR, DAY_MS)


class Span(NamedTuple):
    """What is known of one step. `stock` is None where nobody has counted, or where it is about one task;
    `enqueued` and `grown`, by how many dead letters there are more, too, and where there was none before.
    `most_pending` is the most that waited whenever they were counted, each queue for itself."""

    tally: Tally
    stock: Mapping[QueueName, Stock] | None = None
    enqueued: int | None = None
    grown: int | None = None
    most_pending: int | None = None

    @property
    def error_rate(self) -> float | None:
        """The share of failures in all attempts that came to an end of their own."""
        failed, completed = self.count(Happened.FAILED), self.count(Happened.COMPLETED)
        return failed / (failed + completed) if failed + completed else None

    def count(self, what: str) -> int:
        return self.tally.counts.get(what, 0)

    def jobs(self, state: str) -> int | None:
        """How many jobs were in a state when they were last counted."""
        if self.stock is None:
            return None
        found: int = sum(getattr(stock.counts, state) for stock in self.stock.values())
        return found


class Metric(NamedTuple):
    """Something that can be drawn over time."""

    unit: str
    value: Callable[[Span], float | None]


def _count(what: str, span: Span) -> float:
    return span.count(what)


def _jobs(state: str, span: Span) -> float | None:
    return span.jobs(state)


def _percentile(which: str, percent: float, span: Span) -> float | None:
    return (span.tally.wait if which == "wait" else span.tally.run).percentile_ms(percent)


def _average(which: str, span: Span) -> float | None:
    return (span.tally.wait if which == "wait" else span.tally.run).average_ms


METRICS: Final[Mapping[str, Metric]] = {
    "enqueued": Metric("jobs", lambda span: span.enqueued),
    **{what.value: Metric("jobs", partial(_count, what.value)) for what in Happened},
    **{
        f"{which}_p{percent}_ms": Metric("ms", partial(_percentile, which, percent))
        for which in ("wait", "run")
        for percent in (50, 95, 99)
    },
    **{f"{which}_average_ms": Metric("ms", partial(_average, which)) for which in ("wait", "run")},
    "error_rate": Metric("share", lambda span: span.error_rate),
    **{
        state.value: Metric("jobs", partial(_jobs, state.value))
        for state in JobState
        if state not in (JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED)
    },
    "most_pending": Metric("jobs", lambda span: span.most_pending),
    "dead_letters": Metric("jobs", partial(_jobs, "dead")),
    "dead_letters_growth": Metric("jobs", lambda span: span.grown),
}


class Steps(NamedTuple):
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
    return max(tier for tier in KEPT_MS if length % tier == 0)


def _longest(length: int) -> int:
    """How long a time can be shown in such steps. Finer rows are many, and there are none that are older."""
    return KEPT_MS[_tier_of(length)]


def steps_between(start: int, end: int, length: int | None = None) -> Steps:
    """Whole steps that cover this time; raises ConfigError for what cannot be shown."""
    if start >= end:
        raise ConfigError("a time series has to end after it has begun")
    if length is None:
        usual = (step for step in _STEPS if (end - start) // step <= USUAL_POINTS)
        length = next((step for step in usual if end - start <= _longest(step)), DAY_MS)
    if length < TEN_SECONDS or length % TEN_SECONDS:
        raise ConfigError("the resolution of a time series is a multiple of ten seconds")
    if end - start > _longest(length):
        days = _longest(length) // DAY_MS
        raise ConfigError(
            f"with this resolution a time series is at most {days} days long; take a coarser one"
        )
    found = Steps(start - start % length, end + -end % length, length)
    if len(found.starts) > MAX_POINTS:
        raise ConfigError(f"a time series has at most {MAX_POINTS:,} points, not {len(found.starts):,}")
    return found


def spans(rows: Iterable[MetricRow], steps: Steps, task: str | None = None) -> list[Span]:
    """What these rows say of each step; of one task, or of all. Those before the first step count for what
    was enqueued in it."""
    by_step: defaultdict[int, list[MetricRow]] = defaultdict(list)
    for row in rows:
        by_step[row.start - row.start % steps.length].append(row)
    before = _last_stock(by_step.pop(steps.since, []))
    found = []
    for start in steps.starts:
        span = _span(by_step.get(start, []), task, before)
        found.append(span)
        before = {**(before or {}), **span.stock} if span.stock is not None else before
    return found


def span_between(rows: Sequence[MetricRow], start: int, task: str | None = None) -> Span:
    """What these rows say of the time from `start` on, as one. What was enqueued is told by the last count
    before that time; where there is none, by the first one in it."""
    before = _last_stock(row for row in rows if row.start < start)
    if before is None:
        counted = [row.start for row in rows if row.stock is not None]
        first = min(counted, default=0)
        if first != max(counted, default=0):
            before = _last_stock(row for row in rows if row.start == first)
    return _span([row for row in rows if row.start >= start], task, before)


def _span(rows: Sequence[MetricRow], task: str | None, before: Mapping[QueueName, Stock] | None) -> Span:
    tallies = [tally for row in rows for name, tally in row.tasks.items() if task is None or name == task]
    stock = _last_stock(rows) if task is None else None
    most = _most_pending(rows) if task is None else None
    return Span(merged(tallies), stock, _enqueued(before, stock), _grown(before, stock), most)


def _last_stock(rows: Iterable[MetricRow]) -> dict[QueueName, Stock] | None:
    found: dict[QueueName, Stock] = {}
    for row in rows:
        known = found.get(row.queue)
        if row.stock is not None and (known is None or known.at <= row.stock.at):
            found[row.queue] = row.stock
    return found or None


def _most_pending(rows: Iterable[MetricRow]) -> int | None:
    found: dict[QueueName, int] = {}
    for row in rows:
        if row.stock is not None:
            found[row.queue] = max(row.stock.most_pending, found.get(row.queue, 0))
    return sum(found.values()) if found else None


def _enqueued(before: Mapping[QueueName, Stock] | None, now: Mapping[QueueName, Stock] | None) -> int | None:
    """How many jobs have come between two counts. A queue that was not there before had none; jobs that were
    put into another queue are not taken away from what came."""
    if before is None or now is None:
        return None
    return sum(
        max(0, stock.accepted - (before[queue].accepted if queue in before else 0))
        for queue, stock in now.items()
    )


def _grown(before: Mapping[QueueName, Stock] | None, now: Mapping[QueueName, Stock] | None) -> int | None:
    """How many dead letters there are more than at the count before, or fewer."""
    if before is None or now is None:
        return None
    return sum(
        stock.counts.dead - (before[queue].counts.dead if queue in before else 0)
        for queue, stock in now.items()
    )


def values(found: Sequence[Span], name: str) -> list[float | None]:
    """One metric of each step; raises ConfigError for one that there is not."""
    if name not in METRICS:
        raise ConfigError(f"there is no metric {name!r:.60}; there are {', '.join(METRICS)}")
    return [METRICS[name].value(span) for span in found]
