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

from forebay.domain.histogram import NOTHING, Histogram, merge_histograms
from forebay.domain.job import DAY_MS, QueueName
from forebay.domain.lifecycle import JobState
from forebay.domain.query import Counts
from forebay.domain.settlement import OutcomeKind

TEN_SECONDS: Final = 10_000
MINUTE: Final = 60_000
HOUR: Final = 3_600_000
# The span of each tier in milliseconds, and how long its rows are kept.
RETENTION_MS: Final[Mapping[int, int]] = {
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
ALL_WORKERS: Final = ""


class MetricEvent(StrEnum):
    """What is counted."""

    CLAIMED = "claimed"
    COMPLETED = "completed"
    FAILED = "failed"  # attempts: failed, discarded, lost
    LOST = "lost"  # of these, because the worker died
    RETRIED = "retried"
    DEAD = "dead"
    CANCELLED = "cancelled"
    SNOOZED = "snoozed"


_FAILED: Final = frozenset({OutcomeKind.FAILED, OutcomeKind.DISCARDED, OutcomeKind.LOST})
_BY_OUTCOME: Final[Mapping[OutcomeKind, MetricEvent]] = {
    OutcomeKind.COMPLETED: MetricEvent.COMPLETED,
    OutcomeKind.CANCELLED: MetricEvent.CANCELLED,
    OutcomeKind.SNOOZED: MetricEvent.SNOOZED,
    OutcomeKind.LOST: MetricEvent.LOST,
}


def metric_events(outcome: OutcomeKind, state: JobState) -> list[MetricEvent]:
    """What is counted when an attempt ended like this and its job is now in this state."""
    found = [_BY_OUTCOME[outcome]] if outcome in _BY_OUTCOME else []
    if outcome in _FAILED:
        found += [MetricEvent.FAILED, MetricEvent.DEAD if state is JobState.DEAD else MetricEvent.RETRIED]
    return found


class TaskStats(msgspec.Struct, frozen=True, array_like=True):
    """Of one task: what happened how often, errors by their type, how long jobs waited and ran."""

    counts: dict[str, int] = {}  # by Happened; a later release may count more
    errors: dict[str, int] = {}
    wait: Histogram = NOTHING
    run: Histogram = NOTHING


class QueueSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The jobs of a queue at one moment. `accepted` is how many have ever come: nothing is counted for it
    when one does, since it is here or was removed. `pending_peak` is the most that a look at them found."""

    taken_at: int
    counts: Counts
    accepted: int
    pending_peak: int


class MetricRow(msgspec.Struct, frozen=True, kw_only=True):
    """What `worker` has seen of a queue from `start` on, for `tier` milliseconds. `consumers` counts active
    consumers that are no workers: loops of programs and clients of a server. Only the finest rows have it."""

    resolution_ms: int
    starts_at: int
    queue: QueueName
    worker: str
    tasks: dict[str, TaskStats] = {}
    snapshot: QueueSnapshot | None = None
    consumers: int = 0


class MetricPage(NamedTuple):
    """Rows by start, queue and worker; what is left begins at `then`, None at the end."""

    rows: Sequence[MetricRow]
    next_start: int | None


class _PackedSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """A stock as it is stored: jobs by state in the order of `JobState`, without its names."""

    taken_at: int
    jobs: list[int]
    accepted: int
    pending_peak: int


class _Body(msgspec.Struct, frozen=True, array_like=True):
    """What is stored of a row besides its key. Later releases may add to its end."""

    tasks: dict[str, TaskStats]
    snapshot: _PackedSnapshot | None
    consumers: int = 0


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Body).decode


def pack_row(row: MetricRow) -> bytes:
    """The figures of a row as they are stored."""
    stock = None if row.snapshot is None else _pack_snapshot(row.snapshot)
    return _encode(_Body(row.tasks, stock, row.consumers))


def _pack_snapshot(snapshot: QueueSnapshot) -> _PackedSnapshot:
    jobs = [getattr(snapshot.counts, state) for state in JobState]
    return _PackedSnapshot(snapshot.taken_at, jobs, snapshot.accepted, snapshot.pending_peak)


def _unpack_snapshot(found: _PackedSnapshot) -> QueueSnapshot:
    # Another release may know fewer states, or more.
    counts = Counts(**{state.value: jobs for state, jobs in zip(JobState, found.jobs, strict=False)})
    return QueueSnapshot(found.taken_at, counts, found.accepted, found.pending_peak)


def unpack_row(resolution_ms: int, starts_at: int, queue: str, worker: str, body: bytes) -> MetricRow:
    """A row from its key and what was stored with it."""
    found = _decode(body)
    return MetricRow(
        resolution_ms=resolution_ms,
        starts_at=starts_at,
        queue=QueueName(queue),
        worker=worker,
        tasks=found.tasks,
        snapshot=None if found.snapshot is None else _unpack_snapshot(found.snapshot),
        consumers=found.consumers,
    )


def active_consumers(rows: Iterable[MetricRow], now: int) -> Counter[QueueName]:
    """Consumers of each queue that are no workers, by the finest rows of the last 40 seconds: the most that
    each claimant has counted there, and those of all claimants together."""
    most: dict[tuple[QueueName, str], int] = {}
    for row in rows:
        if row.consumers and row.starts_at >= start_of(now - ACTIVE_MS, TEN_SECONDS):
            key = row.queue, row.worker
            most[key] = max(row.consumers, most.get(key, 0))
    found: Counter[QueueName] = Counter()
    for (queue, _), consumers in most.items():
        found[queue] += consumers
    return found


def start_of(at: int, resolution_ms: int) -> int:
    """When the span begins in which a moment lies."""
    return at - at % resolution_ms


def roll_up(rows: Iterable[MetricRow], resolution_ms: int) -> list[MetricRow]:
    """The rows of a coarser tier, or of the same with all workers together; in order."""
    groups: defaultdict[tuple[int, QueueName], list[MetricRow]] = defaultdict(list)
    for row in rows:
        groups[start_of(row.starts_at, resolution_ms), row.queue].append(row)
    return [
        MetricRow(
            resolution_ms=resolution_ms,
            starts_at=start,
            queue=queue,
            worker=ALL_WORKERS,
            tasks=merge_tasks([row.tasks for row in group]),
            snapshot=_merge_snapshots([row.snapshot for row in group if row.snapshot is not None]),
        )
        for (start, queue), group in sorted(groups.items())
    ]


def merge_tasks(many: Iterable[Mapping[str, TaskStats]]) -> dict[str, TaskStats]:
    """Tallies by task, those of the same task put together; of too many tasks the least busy ones are
    one."""
    groups: defaultdict[str, list[TaskStats]] = defaultdict(list)
    for tasks in many:
        for task, tally in tasks.items():
            groups[task].append(tally)
    if len(groups) > MAX_SERIES:
        groups = _bound_tasks(groups)
    return {task: merge_stats(group) for task, group in groups.items()}


def _bound_tasks(groups: Mapping[str, list[TaskStats]]) -> defaultdict[str, list[TaskStats]]:
    busiest = sorted(groups, key=lambda task: (-sum(map(_weight, groups[task])), task))
    named = set(busiest[: MAX_SERIES - 1])
    kept: defaultdict[str, list[TaskStats]] = defaultdict(list)
    for task, group in groups.items():
        kept[task if task in named else OTHER] += group
    return kept


def _weight(stats: TaskStats) -> int:
    return sum(stats.counts.values())


def merge_stats(stats: Collection[TaskStats]) -> TaskStats:
    """All of these as one."""
    if len(stats) <= 1:
        return next(iter(stats), TaskStats())
    return TaskStats(
        _add_counts(tally.counts for tally in stats),
        bound_errors(_add_counts(tally.errors for tally in stats)),
        merge_histograms(tally.wait for tally in stats),
        merge_histograms(tally.run for tally in stats),
    )


def bound_errors(errors: dict[str, int]) -> dict[str, int]:
    """Counts by type of error, the rare ones of too many as one."""
    if len(errors) <= MAX_ERRORS:
        return errors
    common = sorted(errors, key=lambda name: (name == OTHER, -errors[name], name))[: MAX_ERRORS - 1]
    rest = sum(errors.values()) - sum(errors[name] for name in common)
    return {name: errors[name] for name in common} | {OTHER: rest}


def _add_counts(many: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in many:
        for key, count in one.items():
            total[key] = total.get(key, 0) + count
    return total


def _merge_snapshots(snapshots: Sequence[QueueSnapshot]) -> QueueSnapshot | None:
    if not snapshots:
        return None
    last = max(snapshots, key=lambda stock: stock.taken_at)
    return replace(last, pending_peak=max(stock.pending_peak for stock in snapshots))
