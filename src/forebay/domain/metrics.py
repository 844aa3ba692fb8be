"""Metrics of jobs by queue and task, in spans of ten seconds, a minute, an hour, a day.

A row has what one worker has counted of one queue in one span. Rows of workers, and of spans, can be merged
in any order. Coarser rows are always computed from finer ones, so a repeated computation changes nothing.
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
from forebay.domain.job_states import JobState
from forebay.domain.queue_counts import Counts
from forebay.domain.settlement import OutcomeKind

TEN_SECONDS: Final = 10_000
MINUTE: Final = 60_000
HOUR: Final = 3_600_000
# Retention of rows by resolution, in milliseconds.
RETENTION_MS: Final[Mapping[int, int]] = {
    TEN_SECONDS: 7 * DAY_MS,
    MINUTE: 30 * DAY_MS,
    HOUR: 90 * DAY_MS,
    DAY_MS: 1_100 * DAY_MS,
}
# The finer resolution that each one is rolled up from.
FINER: Final[Mapping[int, int]] = {MINUTE: TEN_SECONDS, HOUR: MINUTE, DAY_MS: HOUR}
# A consumer counts as active for this long. Rows are written up to 12 seconds after their span, and a
# consumer may claim jobs once in half a minute.
ACTIVE_MS: Final = 4 * TEN_SECONDS
MAX_SERIES: Final = 1_000
MAX_ERRORS: Final = 20
OTHER: Final = "other"
# In place of a worker: the process that took the snapshots, and all workers together.
SAMPLE: Final = "~sample"
ALL_WORKERS: Final = ""


class MetricEvent(StrEnum):
    """Counted event."""

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
    """Return the events to count when an attempt ended with this outcome and its job is now in this state."""
    events = [_BY_OUTCOME[outcome]] if outcome in _BY_OUTCOME else []
    if outcome in _FAILED:
        events += [MetricEvent.FAILED, MetricEvent.DEAD if state is JobState.DEAD else MetricEvent.RETRIED]
    return events


class TaskStats(msgspec.Struct, frozen=True, array_like=True):
    """Stats of one task: events, errors by type, wait and run times of jobs."""

    counts: dict[str, int] = {}  # by MetricEvent; a later release may count more
    errors: dict[str, int] = {}
    wait: Histogram = NOTHING
    run: Histogram = NOTHING


class QueueSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """Jobs of a queue at one moment. `accepted` is how many were ever inserted: present and removed ones,
    so that inserts need no counter. `pending_peak` is the most pending jobs of all merged snapshots."""

    taken_at: int
    counts: Counts
    accepted: int
    pending_peak: int


class MetricRow(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of `worker` for a queue in `resolution_ms` milliseconds from `starts_at` on. `consumers`
    counts active consumers other than workers: loops of programs and clients of a server. Only the finest
    rows have it."""

    resolution_ms: int
    starts_at: int
    queue: QueueName
    worker: str
    tasks: dict[str, TaskStats] = {}
    snapshot: QueueSnapshot | None = None
    consumers: int = 0


class MetricPage(NamedTuple):
    """Rows by start, queue and worker; the rest begins at `next_start`, None at the end."""

    rows: Sequence[MetricRow]
    next_start: int | None


class _PackedSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """Snapshot as it is stored: jobs by state in the order of `JobState`, without names."""

    taken_at: int
    jobs: list[int]
    accepted: int
    pending_peak: int


class _Body(msgspec.Struct, frozen=True, array_like=True):
    """Stored values of a row besides its key. Later releases may add to its end."""

    tasks: dict[str, TaskStats]
    snapshot: _PackedSnapshot | None
    consumers: int = 0


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Body).decode


def pack_row(row: MetricRow) -> bytes:
    """Return the values of a row as they are stored."""
    snapshot = None if row.snapshot is None else _pack_snapshot(row.snapshot)
    return _encode(_Body(row.tasks, snapshot, row.consumers))


def _pack_snapshot(snapshot: QueueSnapshot) -> _PackedSnapshot:
    jobs = [getattr(snapshot.counts, state) for state in JobState]
    return _PackedSnapshot(snapshot.taken_at, jobs, snapshot.accepted, snapshot.pending_peak)


def _unpack_snapshot(packed: _PackedSnapshot) -> QueueSnapshot:
    # Another release may know fewer states, or more.
    counts = Counts(**{state.value: jobs for state, jobs in zip(JobState, packed.jobs, strict=False)})
    return QueueSnapshot(packed.taken_at, counts, packed.accepted, packed.pending_peak)


def unpack_row(resolution_ms: int, starts_at: int, queue: str, worker: str, body: bytes) -> MetricRow:
    """Return a row from its key and its stored values."""
    stored = _decode(body)
    return MetricRow(
        resolution_ms=resolution_ms,
        starts_at=starts_at,
        queue=QueueName(queue),
        worker=worker,
        tasks=stored.tasks,
        snapshot=None if stored.snapshot is None else _unpack_snapshot(stored.snapshot),
        consumers=stored.consumers,
    )


def active_consumers(rows: Iterable[MetricRow], now: int) -> Counter[QueueName]:
    """Count active consumers of each queue other than workers, by the finest rows of the last 40 seconds:
    the most that each process has counted there, summed over all processes."""
    peaks: dict[tuple[QueueName, str], int] = {}
    for row in rows:
        if row.consumers and row.starts_at >= start_of(now - ACTIVE_MS, TEN_SECONDS):
            key = row.queue, row.worker
            peaks[key] = max(row.consumers, peaks.get(key, 0))
    total: Counter[QueueName] = Counter()
    for (queue, _), consumers in peaks.items():
        total[queue] += consumers
    return total


def start_of(at: int, resolution_ms: int) -> int:
    """Return the start of the span that contains a moment."""
    return at - at % resolution_ms


def roll_up(rows: Iterable[MetricRow], resolution_ms: int) -> list[MetricRow]:
    """Return the rows of a coarser resolution, or of the same with all workers together; in order."""
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
    """Merge stats by task; the least busy ones of too many tasks become one."""
    groups: defaultdict[str, list[TaskStats]] = defaultdict(list)
    for tasks in many:
        for task, stats in tasks.items():
            groups[task].append(stats)
    if len(groups) > MAX_SERIES:
        groups = _bound_tasks(groups)
    return {task: merge_stats(group) for task, group in groups.items()}


def _bound_tasks(groups: Mapping[str, list[TaskStats]]) -> defaultdict[str, list[TaskStats]]:
    busiest = sorted(groups, key=lambda task: (-sum(map(_weight, groups[task])), task))
    named = set(busiest[: MAX_SERIES - 1])
    bounded: defaultdict[str, list[TaskStats]] = defaultdict(list)
    for task, group in groups.items():
        bounded[task if task in named else OTHER] += group
    return bounded


def _weight(stats: TaskStats) -> int:
    return sum(stats.counts.values())


def merge_stats(stats: Collection[TaskStats]) -> TaskStats:
    """Merge stats."""
    if len(stats) <= 1:
        return next(iter(stats), TaskStats())
    return TaskStats(
        _add_counts(each.counts for each in stats),
        bound_errors(_add_counts(each.errors for each in stats)),
        merge_histograms(each.wait for each in stats),
        merge_histograms(each.run for each in stats),
    )


def bound_errors(errors: dict[str, int]) -> dict[str, int]:
    """Return counts by type of error, with the rare ones of too many as one."""
    if len(errors) <= MAX_ERRORS:
        return errors
    common = sorted(errors, key=lambda name: (name == OTHER, -errors[name], name))[: MAX_ERRORS - 1]
    rest = sum(errors.values()) - sum(errors[name] for name in common)
    return {name: errors[name] for name in common} | {OTHER: rest}


def _add_counts(many: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for counts in many:
        for key, count in counts.items():
            total[key] = total.get(key, 0) + count
    return total


def _merge_snapshots(snapshots: Sequence[QueueSnapshot]) -> QueueSnapshot | None:
    if not snapshots:
        return None
    last = max(snapshots, key=lambda snapshot: snapshot.taken_at)
    return replace(last, pending_peak=max(snapshot.pending_peak for snapshot in snapshots))
