"""Snapshot of the metrics that alert rules use: read from the store once for all rules, on demand."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Final

from forebay.clock import Clock
from forebay.domain.alert import AlertRule, AlertScope
from forebay.domain.alert_condition import MetricLookup
from forebay.domain.job import ALERT_QUEUE, DAY_MS, QueueName
from forebay.domain.metrics import (
    ACTIVE_MS,
    HOUR,
    MINUTE,
    TEN_SECONDS,
    MetricEvent,
    MetricRow,
    TaskStats,
    active_consumers,
    merge_tasks,
    start_of,
)
from forebay.domain.queue import Queue
from forebay.domain.queue_counts import Counts
from forebay.domain.store_health import ServerUsage, used_ratio
from forebay.domain.time_series import METRICS, SeriesSpan, span_between
from forebay.domain.worker import HeartbeatStatus, WorkerInfo
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.shared.metric_rows import iter_rows

# Longest windows that are read from the finest rows, and from rows of minutes.
FINE_MS: Final = 10 * MINUTE
MIDDLE_MS: Final = 3 * HOUR
LATE_SCHEDULE_MS: Final = MINUTE
MAX_SCHEDULES: Final = 100
# Each worker writes its own finest rows: a hundred of them on a hundred queues write this many in twenty
# seconds. Beyond that, rows of minutes are read instead, which are merged over all workers.
MAX_FINE_ROWS: Final = 20_000
TIMEOUT: Final = "Timeout"  # error type of an attempt that took too long


_Rows = Mapping[QueueName, Sequence[MetricRow]]
_Value = Callable[["MetricSnapshot", int, str | None, str | None], float | None]


def _resolution_for(window_ms: int) -> int:
    return TEN_SECONDS if window_ms <= FINE_MS else MINUTE if window_ms <= MIDDLE_MS else HOUR


class MetricSnapshot:
    """Metrics of one moment. Each is read once, so that all rules are evaluated for the same moment."""

    def __init__(
        self,
        store: Store,
        reader: Reader,
        clock: Clock,
        rules: Sequence[AlertRule],
        evicted: int | None = None,
    ) -> None:
        self._store = store
        self._reader = reader
        before = clock.now_ms()
        self.now: int = reader.now()
        self._evicted_before = evicted
        # The clock is read twice, so that the round trip is not counted as skew.
        self._skew_ms = max(0, before - self.now, self.now - clock.now_ms())
        self._loaded_rows: dict[int, tuple[int, _Rows]] = {}
        self._spans: dict[tuple[int, str | None], SeriesSpan] = {}
        self._task_stats: dict[tuple[int, str | None], dict[str, TaskStats]] = {}
        # A rule about present values only reads no rows, however long its window is.
        self._longest_windows: defaultdict[int, int] = defaultdict(int, {HOUR: DAY_MS})
        for rule in rules:
            if rule.enabled and (
                rule.per is AlertScope.TASK or not rule.parsed_condition.metrics() <= _PRESENT.keys()
            ):
                resolution = _resolution_for(rule.window_ms)
                self._longest_windows[resolution] = max(self._longest_windows[resolution], rule.window_ms)

    def scopes(self, rule: AlertRule) -> Sequence[str | None]:
        """Return the scopes of a rule; a single None for a rule without scopes."""
        if rule.per is AlertScope.QUEUE:
            return sorted(self.counts)
        if rule.per is AlertScope.TASK:
            return sorted(self._tasks(rule.window_ms, rule.queue))
        return [None]

    def metric_lookup(self, rule: AlertRule, scope: str | None) -> MetricLookup:
        """Return the lookup of metric values for a rule, or for one of its scopes."""
        queue = scope if rule.per is AlertScope.QUEUE else rule.queue
        task = scope if rule.per is AlertScope.TASK else rule.task
        return lambda metric: self._value(metric, rule.window_ms, queue, task)

    def condition_values(self, rule: AlertRule, scope: str | None) -> dict[str, float]:
        """Return the known values of the metrics in the rule's condition."""
        lookup = self.metric_lookup(rule, scope)
        values = {metric: lookup(metric) for metric in rule.parsed_condition.metrics()}
        return {metric: value for metric, value in values.items() if value is not None}

    @property
    def has_notices(self) -> bool:
        """True if deliveries of alerts are in the queue."""
        counts = self._all_counts.get(ALERT_QUEUE)
        return counts is not None and counts.live > 0

    def _value(self, metric: str, window_ms: int, queue: str | None, task: str | None) -> float | None:
        load = _PRESENT.get(metric) or _RECENT.get(metric)
        if load is not None:
            return load(self, window_ms, queue, task)
        return METRICS[metric].value(self._span(window_ms, queue, task))

    # Present values

    @cached_property
    def _all_counts(self) -> dict[QueueName, Counts]:
        return self._reader.counts()

    # Without the queue of deliveries: alerts about those would have to be delivered too.
    @cached_property
    def counts(self) -> dict[QueueName, Counts]:
        return {name: counts for name, counts in self._all_counts.items() if name != ALERT_QUEUE}

    def _jobs(self, state: str, queue: str | None) -> int:
        if queue is not None:
            return int(getattr(self.counts.get(QueueName(queue), Counts()), state))
        return sum(int(getattr(counts, state)) for counts in self.counts.values())

    @cached_property
    def _queues(self) -> list[Queue]:
        return self._reader.queues()

    def _used_ratio(self, queue: str | None) -> float | None:
        return (
            max(self._used_ratios.values(), default=None) if queue is None else self._used_ratios.get(queue)
        )

    @cached_property
    def _used_ratios(self) -> dict[str, float]:
        return {
            queue.name: self.counts[queue.name].pending / queue.settings.max_length
            for queue in self._queues
            if queue.settings.max_length is not None and queue.name in self.counts
        }

    @cached_property
    def _workers(self) -> list[WorkerInfo]:
        return self._reader.workers()

    @cached_property
    def _workers_by_queue(self) -> Mapping[str, Sequence[WorkerInfo]]:
        by_queue: defaultdict[str, list[WorkerInfo]] = defaultdict(list)
        for worker in self._workers:
            for queue in worker.queues:
                by_queue[queue].append(worker)
        return dict(by_queue)

    def _workers_of(self, queue: str | None) -> Sequence[WorkerInfo]:
        return self._workers if queue is None else self._workers_by_queue.get(queue, ())

    def _workers_alive(self, queue: str | None) -> int:
        return sum(
            worker.heartbeat_status(self.now) is not HeartbeatStatus.DEAD
            for worker in self._workers_of(queue)
        )

    def _consumers(self, queue: str | None) -> int:
        consumers = self._active_consumers
        active = consumers.total() if queue is None else consumers[QueueName(queue)]
        return self._workers_alive(queue) + active

    @cached_property
    def _active_consumers(self) -> Counter[QueueName]:
        """Active consumers that are no workers. They need rows of their own, so this is read on demand."""
        rows = iter_rows(self._reader, TEN_SECONDS, self.now - 2 * ACTIVE_MS, self.now + TEN_SECONDS)
        return active_consumers((row for row in rows if row.queue != ALERT_QUEUE), self.now)

    def _workers_healthy(self, queue: str | None) -> float | None:
        workers = self._workers_of(queue)
        healthy = sum(
            worker.heartbeat_status(self.now) is HeartbeatStatus.ALIVE
            and not worker.stuck
            and not worker.is_worn
            and not worker.is_overdue
            for worker in workers
        )
        return healthy / len(workers) if workers else None

    @cached_property
    def _late_schedules(self) -> int:
        due = self._store.due_schedules(MAX_SCHEDULES)
        return sum((schedule.check_at or due.now) <= due.now - LATE_SCHEDULE_MS for schedule in due.schedules)

    @cached_property
    def _server_usage(self) -> ServerUsage:
        return self._reader.server_usage()

    @property
    def evicted(self) -> int | None:
        """All-time evictions of the server, for the next evaluation to compare with."""
        return self._server_usage.evicted if "_server_usage" in self.__dict__ else self._evicted_before

    @property
    def _evictions(self) -> int | None:
        now, before = self._server_usage.evicted, self._evicted_before
        if now is None or before is None:
            return None
        return now - before if now >= before else now  # a restarted server counts from 0

    # Recent values

    def _rows(self, window_ms: int, queue: str | None) -> tuple[list[MetricRow], int]:
        """Return the rows of a window and of the span before it, and the start of the window."""
        resolution, by_queue = self._rows_by_queue(_resolution_for(window_ms))
        start = start_of(self.now - window_ms, resolution)
        rows = chain(*by_queue.values()) if queue is None else by_queue.get(QueueName(queue), ())
        return [row for row in rows if row.starts_at >= start - resolution], start

    def _rows_by_queue(self, resolution: int) -> tuple[int, _Rows]:
        """Return all rows of a resolution that some rule needs, by queue; rows of minutes if the finest are
        too many."""
        if resolution not in self._loaded_rows:
            since = start_of(self.now - self._longest_windows[resolution], resolution) - resolution
            rows = iter_rows(self._reader, resolution, since, self.now + resolution)
            if resolution == TEN_SECONDS:
                rows = islice(rows, MAX_FINE_ROWS + 1)
            by_queue: defaultdict[QueueName, list[MetricRow]] = defaultdict(list)
            read = 0
            for row in rows:
                read += 1
                if row.queue != ALERT_QUEUE:
                    by_queue[row.queue].append(row)
            if resolution == TEN_SECONDS and read > MAX_FINE_ROWS:
                self._longest_windows[MINUTE] = max(
                    self._longest_windows[MINUTE], self._longest_windows[resolution]
                )
                self._loaded_rows[resolution] = self._rows_by_queue(MINUTE)
            else:
                self._loaded_rows[resolution] = resolution, dict(by_queue)
        return self._loaded_rows[resolution]

    def _span(self, window_ms: int, queue: str | None, task: str | None) -> SeriesSpan:
        if task is not None:
            return SeriesSpan(self._tasks(window_ms, queue).get(task, TaskStats()))
        if (window_ms, queue) not in self._spans:
            self._spans[window_ms, queue] = span_between(*self._rows(window_ms, queue))
        return self._spans[window_ms, queue]

    def _tasks(self, window_ms: int, queue: str | None) -> dict[str, TaskStats]:
        if (window_ms, queue) not in self._task_stats:
            rows, start = self._rows(window_ms, queue)
            tasks = merge_tasks(row.tasks for row in rows if row.starts_at >= start)
            self._task_stats[window_ms, queue] = tasks
        return self._task_stats[window_ms, queue]

    def _per_second(self, window_ms: int, queue: str | None, task: str | None) -> float:
        resolution, _ = self._rows_by_queue(_resolution_for(window_ms))
        length_ms = self.now - start_of(self.now - window_ms, resolution)
        return self._span(window_ms, queue, task).count(MetricEvent.COMPLETED) * 1_000 / length_ms

    def _baseline_per_second(self, queue: str | None, task: str | None) -> float | None:
        rows, start = self._rows(DAY_MS, queue)
        # From the first row on: the rate of a queue that is an hour old is not diluted by the day before.
        first = min((max(row.starts_at, start) for row in rows), default=None)
        if first is None or first >= self.now:
            return None
        completed = self._span(DAY_MS, queue, task).count(MetricEvent.COMPLETED)
        return completed * 1_000 / (self.now - first)


def _count(state: str) -> _Value:
    return lambda snapshot, _, queue, __: snapshot._jobs(state, queue)


# Functions of the snapshot. Bound to it and kept by it they would be a reference cycle, with the store.
_PRESENT: Final[Mapping[str, _Value]] = {
    "queue_depth": _count("pending"),
    "dead_letters": _count("dead"),
    **{name: _count(name) for name in ("scheduled", "blocked", "pending", "running", "retrying")},
    "queue_used_ratio": lambda snapshot, _, queue, __: snapshot._used_ratio(queue),
    "workers": lambda snapshot, _, queue, __: snapshot._workers_alive(queue),
    "consumers": lambda snapshot, _, queue, __: snapshot._consumers(queue),
    "workers_healthy_ratio": lambda snapshot, _, queue, __: snapshot._workers_healthy(queue),
    "late_schedules": lambda snapshot, *_: snapshot._late_schedules,
    "clock_skew_ms": lambda snapshot, *_: snapshot._skew_ms,
    "store_memory": lambda snapshot, *_: snapshot._server_usage.memory,
    "store_memory_used_ratio": lambda snapshot, *_: used_ratio(
        snapshot._server_usage.memory, snapshot._server_usage.memory_limit
    ),
    "store_evictions": lambda snapshot, *_: snapshot._evictions,
    "store_connections_used_ratio": lambda snapshot, *_: used_ratio(
        snapshot._server_usage.connections, snapshot._server_usage.connection_limit
    ),
}
_RECENT: Final[Mapping[str, _Value]] = {
    "timeouts": lambda snapshot, *scope: snapshot._span(*scope).stats.errors.get(TIMEOUT, 0),
    "completed_per_second": MetricSnapshot._per_second,
    "baseline_completed_per_second": lambda snapshot, _, *scope: snapshot._baseline_per_second(*scope),
    "baseline_run_p99_ms": lambda snapshot, _, queue, task: snapshot._span(
        DAY_MS, queue, task
    ).stats.run.percentile_ms(99),
}
