"""What became of jobs over time: figures by queue and task in spans of ten seconds, a minute, an hour, a day.

A row says what one worker has seen of one queue in one span. Rows of workers, and of spans, can be put
together in any order. Everything is worked out again from finer rows whenever it is wanted, so doing it twice
changes nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from forebay.domain.histogram import NOTHING, Histogram, merged_histogram
from forebay.domain.job import DAY_MS, QueueName
from forebay.domain.lifecycle import JobState
from forebay.domain.query import Counts
from forebay.domain.settlement import Ending

TEN_SECONDS: Final = 10_000
MINUTE: Final = 60_000
HOUR: Final = 3_600_000
# The span of each tier in milliseconds, and how long its rows are kept.
KEPT_MS: Final[Mapping[int, int]] = {
    TEN_SECONDS: 7 * DAY_MS,
    MINUTE: 30 * DAY_MS,
    HOUR: 90 * DAY_MS,
    DAY_MS: 1_100 * DAY_MS,
}
# What a tier is rolled up from.
FINER: Final[Mapping[int, int]] = {MINUTE: TEN_SECONDS, HOUR: MINUTE, DAY_MS: HOUR}
# How long ago a consumer may have been seen and count as active. Rows are written up to 12 seconds after
# their span, and a consumer may ask for jobs once in half a minute.
ACTIVE_MS: Final = 4 * TEN_SECONDS
MAX_SERIES: Final = 1_000
MAX_ERRORS: Final = 20
OTHER: Final = "other"
# In the place of a worker: whoever has counted the jobs, and all workers together.
SAMPLE: Final = "~sample"
TOGETHER: Final = ""


class Happened(StrEnum):
    """What is counted."""

    CLAIMED = "claimed"
    COMPLETED = "completed"
    FAILED = "failed"  # attempts: failed, discarded, lost
    LOST = "lost"  # of these, because the worker died
    RETRIED = "retried"
    DEAD = "dead"
    CANCELLED = "cancelled"
    SNOOZED = "snoozed"


_FAILED: Final = frozenset({Ending.FAILED, Ending.DISCARDED, Ending.LOST})
_BY_ENDING: Final[Mapping[Ending, Happened]] = {
    Ending.COMPLETED: Happened.COMPLETED,
    Ending.CANCELLED: Happened.CANCELLED,
    Ending.SNOOZED: Happened.SNOOZED,
    Ending.LOST: Happened.LOST,
}


def happened(ending: Ending, state: JobState) -> list[Happened]:
    """What is counted when an attempt ended like this and its job is now in this state."""
    found = [_BY_ENDING[ending]] if ending in _BY_ENDING else []
    if ending in _FAILED:
        found += [Happened.FAILED, Happened.DEAD if state is JobState.DEAD else Happened.RETRIED]
    return found


class Tally(msgspec.Struct, frozen=True, array_like=True):
    """Of one task: what happened how often, errors by their type, how long jobs waited and ran."""

    counts: dict[str, int] = {}  # by Happened; a later release may count more
    errors: dict[str, int] = {}
    wait: Histogram = NOTHING
    run: Histogram = NOTHING


class Stock(msgspec.Struct, frozen=True, array_like=True):
    """The jobs of a queue at one moment. `accepted` is how many have ever come: nothing is counted for it
    when one does, since it is here or was removed. `most_pending` is the most that a look at them found."""

    at: int
    counts: Counts
    accepted: int
    most_pending: int


class MetricRow(msgspec.Struct, frozen=True, kw_only=True):
    """What `worker` has seen of a queue from `start` on, for `tier` milliseconds. `consumers` counts active
    consumers that are no workers: loops of programs and clients of a server. Only the finest rows have it."""

    tier: int
    start: int
    queue: QueueName
    worker: str
    tasks: dict[str, Tally] = {}
    stock: Stock | None = None
    consumers: int = 0


class MetricPage(NamedTuple):
    """Rows by start, queue and worker; what is left begins at `then`, None at the end."""

    rows: Sequence[MetricRow]
    then: int | None


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    """A stock as it is stored: jobs by state in the order of `JobState`, without its names."""

    at: int
    jobs: list[int]
    accepted: int
    most_pending: int


class _Body(msgspec.Struct, frozen=True, array_like=True):
    """What is stored of a row besides its key. Later releases may add to its end."""

    tasks: dict[str, Tally]
    stock: _Packed | None
    consumers: int = 0


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Body).decode


def packed(row: MetricRow) -> bytes:
    """The figures of a row as they are stored."""
    stock = None if row.stock is None else _packed_stock(row.stock)
    return _encode(_Body(row.tasks, stock, row.consumers))


def _packed_stock(stock: Stock) -> _Packed:
    jobs = [getattr(stock.counts, state) for state in JobState]
    return _Packed(stock.at, jobs, stock.accepted, stock.most_pending)


def _unpacked_stock(found: _Packed) -> Stock:
    # Another release may know fewer states, or more.
    counts = Counts(**{state.value: jobs for state, jobs in zip(JobState, found.jobs, strict=False)})
    return Stock(found.at, counts, found.accepted, found.most_pending)


def unpacked(tier: int, start: int, queue: str, worker: str, body: bytes) -> MetricRow:
    """A row from its key and what was stored with it."""
    found = _decode(body)
    return MetricRow(
        tier=tier,
        start=start,
        queue=QueueName(queue),
        worker=worker,
        tasks=found.tasks,
        stock=None if found.stock is None else _unpacked_stock(found.stock),
        consumers=found.consumers,
    )


def active_consumers(rows: Iterable[MetricRow], now: int) -> Counter[QueueName]:
    """Consumers of each queue that are no workers, by the finest rows of the last 40 seconds: the most that
    each claimant has counted there, and those of all claimants together."""
    most: dict[tuple[QueueName, str], int] = {}
    for row in rows:
        if row.consumers and row.start >= start_of(now - ACTIVE_MS, TEN_SECONDS):
            key = row.queue, row.worker
            most[key] = max(row.consumers, most.get(key, 0))
    found: Counter[QueueName] = Counter()
    for (queue, _), consumers in most.items():
        found[queue] += consumers
    return found


def start_of(at: int, tier: int) -> int:
    """When the span begins in which a moment lies."""
    return at - at % tier


def rolled(rows: Iterable[MetricRow], tier: int) -> list[MetricRow]:
    """The rows of a coarser tier, or of the same with all workers together; in order."""
    groups: defaultdict[tuple[int, QueueName], list[MetricRow]] = defaultdict(list)
    for row in rows:
        groups[start_of(row.start, tier), row.queue].append(row)
    return [
        MetricRow(
            tier=tier,
            start=start,
            queue=queue,
            worker=TOGETHER,
            tasks=merged_tasks([row.tasks for row in group]),
            stock=_merged_stock([row.stock for row in group if row.stock is not None]),
        )
        for (start, queue), group in sorted(groups.items())
    ]


def merged_tasks(many: Iterable[Mapping[str, Tally]]) -> dict[str, Tally]:
    """Tallies by task, those of the same task put together; of too many tasks the least busy ones are
    one."""
    groups: defaultdict[str, list[Tally]] = defaultdict(list)
    for tasks in many:
        for task, tally in tasks.items():
            groups[task].append(tally)
    if len(groups) > MAX_SERIES:
        groups = _bounded(groups)
    return {task: merged(group) for task, group in groups.items()}


def _bounded(groups: Mapping[str, list[Tally]]) -> defaultdict[str, list[Tally]]:
    busiest = sorted(groups, key=lambda task: (-sum(map(_weight, groups[task])), task))
    named = set(busiest[: MAX_SERIES - 1])
    kept: defaultdict[str, list[Tally]] = defaultdict(list)
    for task, group in groups.items():
        kept[task if task in named else OTHER] += group
    return kept


def _weight(tally: Tally) -> int:
    return sum(tally.counts.values())


def merged(tallies: Collection[Tally]) -> Tally:
    """All of these as one."""
    if len(tallies) <= 1:
        return next(iter(tallies), Tally())
    return Tally(
        _added(tally.counts for tally in tallies),
        bounded_errors(_added(tally.errors for tally in tallies)),
        merged_histogram(tally.wait for tally in tallies),
        merged_histogram(tally.run for tally in tallies),
    )


def bounded_errors(errors: dict[str, int]) -> dict[str, int]:
    """Counts by type of error, the rare ones of too many as one."""
    if len(errors) <= MAX_ERRORS:
        return errors
    common = sorted(errors, key=lambda name: (name == OTHER, -errors[name], name))[: MAX_ERRORS - 1]
    rest = sum(errors.values()) - sum(errors[name] for name in common)
    return {name: errors[name] for name in common} | {OTHER: rest}


def _added(many: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in many:
        for key, count in one.items():
            total[key] = total.get(key, 0) + count
    return total


def _merged_stock(stocks: Sequence[Stock]) -> Stock | None:
    if not stocks:
        return None
    last = max(stocks, key=lambda stock: stock.at)
    return replace(last, most_pending=max(stock.most_pending for stock in stocks))
