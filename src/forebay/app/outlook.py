"""What rules of alerts ask for, read from the store once for all of them, and only what is asked for."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain, islice
from typing import Final

from forebay.clock import Clock
from forebay.domain.alert import Each, Rule
from forebay.domain.condition import Look
from forebay.domain.job import DAY_MS, NOTICES, QueueName
from forebay.domain.metrics import (
    ACTIVE_MS,
    HOUR,
    MINUTE,
    TEN_SECONDS,
    Happened,
    MetricRow,
    Tally,
    active_consumers,
    merged_tasks,
    start_of,
)
from forebay.domain.query import Counts, Vitals, share
from forebay.domain.queue import Queue
from forebay.domain.series import METRICS, Span, span_between
from forebay.domain.worker import Pulse, WorkerInfo
from forebay.stores.measuring import every_row
from forebay.stores.protocol import Reader, Store

# Up to this length a window is read from the finest rows, and up to three hours from those of minutes.
FINE_MS: Final = 10 * MINUTE
MIDDLE_MS: Final = 3 * HOUR
LATE_SCHEDULE_MS: Final = MINUTE
MOST_SCHEDULES: Final = 100
# Workers write the finest rows each for itself, so a hundred of them on a hundred queues write so many in
# twenty seconds. Where there are more, rows of minutes are read instead, which have all workers together.
MOST_FINE_ROWS: Final = 20_000
TIMEOUT: Final = "Timeout"  # what workers call the error of an attempt that took too long


_Rows = Mapping[QueueName, Sequence[MetricRow]]
_Value = Callable[[int, str | None, str | None], float | None]


def _tier_of(window_ms: int) -> int:
    return TEN_SECONDS if window_ms <= FINE_MS else MINUTE if window_ms <= MIDDLE_MS else HOUR


class Outlook:
    """One look at the store. What is read stays as it is, so that all rules judge the same moment."""

    def __init__(
        self, store: Store, reader: Reader, clock: Clock, rules: Sequence[Rule], evicted: int | None = None
    ) -> None:
        self._store = store
        self._reader = reader
        before = clock.now_ms()
        self.now: int = reader.now()
        self._evicted_before = evicted
        # Not what the answer took.
        self._skew_ms = max(0, before - self.now, self.now - clock.now_ms())
        self._read: dict[int, tuple[int, _Rows]] = {}
        self._spans: dict[tuple[int, str | None], Span] = {}
        self._tallies: dict[tuple[int, str | None], dict[str, Tally]] = {}
        now: Mapping[str, _Value] = {
            "queue_depth": lambda _, queue, __: self._jobs("pending", queue),
            "dead_letters": lambda _, queue, __: self._jobs("dead", queue),
            **{
                name: partial(lambda state, _, queue, __: self._jobs(state, queue), name)
                for name in ("scheduled", "blocked", "pending", "running", "retrying")
            },
            "queue_fill": lambda _, queue, __: self._fill(queue),
            "workers": lambda _, queue, __: self._workers_alive(queue),
            "consumers": lambda _, queue, __: self._consumers(queue),
            "workers_healthy": lambda _, queue, __: self._workers_healthy(queue),
            "late_schedules": lambda *_: self._late_schedules,
            "clock_skew_ms": lambda *_: self._skew_ms,
            "store_memory": lambda *_: self._vitals.memory,
            "store_memory_share": lambda *_: share(self._vitals.memory, self._vitals.memory_limit),
            "store_evictions": lambda *_: self._evictions,
            "store_connections_share": lambda *_: share(
                self._vitals.connections, self._vitals.connection_limit
            ),
        }
        lately: Mapping[str, _Value] = {
            "timeouts": lambda *scope: self._span(*scope).tally.errors.get(TIMEOUT, 0),
            "completed_per_second": self._per_second,
            "usual_completed_per_second": lambda _, queue, task: self._usual_per_second(queue, task),
            "usual_run_p99_ms": lambda _, queue, task: self._span(
                DAY_MS, queue, task
            ).tally.run.percentile_ms(99),
        }
        self._values: Mapping[str, _Value] = {**now, **lately}
        # A rule about nothing but now reads no rows, however long its window is.
        self._longest: defaultdict[int, int] = defaultdict(int, {HOUR: DAY_MS})
        for rule in rules:
            if rule.enabled and (rule.each is Each.TASK or not rule.parsed.metrics() <= now.keys()):
                tier = _tier_of(rule.window_ms)
                self._longest[tier] = max(self._longest[tier], rule.window_ms)

    def scopes(self, rule: Rule) -> Sequence[str | None]:
        """What a rule looks at one by one; one None if it does not."""
        if rule.each is Each.QUEUE:
            return sorted(self.counts)
        if rule.each is Each.TASK:
            return sorted(self._tasks(rule.window_ms, rule.queue))
        return [None]

    def of(self, rule: Rule, scope: str | None) -> Look:
        """What metrics are for a rule, and for one of what it looks at."""
        queue = scope if rule.each is Each.QUEUE else rule.queue
        task = scope if rule.each is Each.TASK else rule.task
        return lambda metric: self._value(metric, rule.window_ms, queue, task)

    def seen(self, rule: Rule, scope: str | None) -> dict[str, float]:
        """The metrics of its condition, as far as they are known."""
        look = self.of(rule, scope)
        found = {metric: look(metric) for metric in rule.parsed.metrics()}
        return {metric: value for metric, value in found.items() if value is not None}

    @property
    def has_notices(self) -> bool:
        """Whether there is news of alerts on the way."""
        counts = self._all_counts.get(NOTICES)
        return counts is not None and counts.live > 0

    def _value(self, metric: str, window_ms: int, queue: str | None, task: str | None) -> float | None:
        known = self._values.get(metric)
        if known is not None:
            return known(window_ms, queue, task)
        return METRICS[metric].value(self._span(window_ms, queue, task))

    # Now

    @cached_property
    def _all_counts(self) -> dict[QueueName, Counts]:
        return self._reader.counts()

    # Without the queue of deliveries, like all else that rules see: alerts about those would have to be
    # delivered too.
    @cached_property
    def counts(self) -> dict[QueueName, Counts]:
        return {name: counts for name, counts in self._all_counts.items() if name != NOTICES}

    def _jobs(self, state: str, queue: str | None) -> int:
        if queue is not None:
            return int(getattr(self.counts.get(QueueName(queue), Counts()), state))
        return sum(int(getattr(counts, state)) for counts in self.counts.values())

    @cached_property
    def _queues(self) -> list[Queue]:
        return self._reader.queues()

    def _fill(self, queue: str | None) -> float | None:
        return max(self._fills.values(), default=None) if queue is None else self._fills.get(queue)

    @cached_property
    def _fills(self) -> dict[str, float]:
        return {
            one.name: self.counts[one.name].pending / one.settings.max_length
            for one in self._queues
            if one.settings.max_length is not None and one.name in self.counts
        }

    @cached_property
    def _workers(self) -> list[WorkerInfo]:
        return self._reader.workers()

    @cached_property
    def _workers_by_queue(self) -> Mapping[str, Sequence[WorkerInfo]]:
        found: defaultdict[str, list[WorkerInfo]] = defaultdict(list)
        for one in self._workers:
            for queue in one.queues:
                found[queue].append(one)
        return dict(found)

    def _serving(self, queue: str | None) -> Sequence[WorkerInfo]:
        return self._workers if queue is None else self._workers_by_queue.get(queue, ())

    def _workers_alive(self, queue: str | None) -> int:
        return sum(one.pulse(self.now) is not Pulse.DEAD for one in self._serving(queue))

    def _consumers(self, queue: str | None) -> int:
        others = self._active_consumers
        found = others.total() if queue is None else others[QueueName(queue)]
        return self._workers_alive(queue) + found

    @cached_property
    def _active_consumers(self) -> Counter[QueueName]:
        """Those that are no workers. Rows of their own are read for it, so rules ask for it last."""
        rows = every_row(self._reader, TEN_SECONDS, self.now - 2 * ACTIVE_MS, self.now + TEN_SECONDS)
        return active_consumers((row for row in rows if row.queue != NOTICES), self.now)

    def _workers_healthy(self, queue: str | None) -> float | None:
        workers = self._serving(queue)
        well = sum(
            one.pulse(self.now) is Pulse.ALIVE and not one.stuck and not one.is_worn and not one.is_overdue
            for one in workers
        )
        return well / len(workers) if workers else None

    @cached_property
    def _late_schedules(self) -> int:
        due = self._store.due_schedules(MOST_SCHEDULES)
        return sum((one.due_at or due.now) <= due.now - LATE_SCHEDULE_MS for one in due.schedules)

    @cached_property
    def _vitals(self) -> Vitals:
        return self._reader.vitals()

    @property
    def evicted(self) -> int | None:
        """How many keys the server has ever thrown away, for the next look to compare with."""
        return self._vitals.evicted if "_vitals" in self.__dict__ else self._evicted_before

    @property
    def _evictions(self) -> int | None:
        now, before = self._vitals.evicted, self._evicted_before
        if now is None or before is None:
            return None
        return now - before if now >= before else now  # a server that was started anew counts from 0

    # Lately

    def _rows(self, window_ms: int, queue: str | None) -> tuple[list[MetricRow], int]:
        """The rows of a window, and of the span before it; and when the window begins."""
        tier, chosen = self._of_tier(_tier_of(window_ms))
        start = start_of(self.now - window_ms, tier)
        rows = chain(*chosen.values()) if queue is None else chosen.get(QueueName(queue), ())
        return [row for row in rows if row.start >= start - tier], start

    def _of_tier(self, tier: int) -> tuple[int, _Rows]:
        """All rows of a tier that some rule needs, by queue; or of minutes where the finest are too many."""
        if tier not in self._read:
            since = start_of(self.now - self._longest[tier], tier) - tier
            rows = every_row(self._reader, tier, since, self.now + tier)
            if tier == TEN_SECONDS:
                rows = islice(rows, MOST_FINE_ROWS + 1)
            by_queue: defaultdict[QueueName, list[MetricRow]] = defaultdict(list)
            read = 0
            for row in rows:
                read += 1
                if row.queue != NOTICES:
                    by_queue[row.queue].append(row)
            if tier == TEN_SECONDS and read > MOST_FINE_ROWS:
                self._longest[MINUTE] = max(self._longest[MINUTE], self._longest[tier])
                self._read[tier] = self._of_tier(MINUTE)
            else:
                self._read[tier] = tier, dict(by_queue)
        return self._read[tier]

    def _span(self, window_ms: int, queue: str | None, task: str | None) -> Span:
        if task is not None:
            return Span(self._tasks(window_ms, queue).get(task, Tally()))
        if (window_ms, queue) not in self._spans:
            self._spans[window_ms, queue] = span_between(*self._rows(window_ms, queue))
        return self._spans[window_ms, queue]

    def _tasks(self, window_ms: int, queue: str | None) -> dict[str, Tally]:
        if (window_ms, queue) not in self._tallies:
            rows, start = self._rows(window_ms, queue)
            found = merged_tasks(row.tasks for row in rows if row.start >= start)
            self._tallies[window_ms, queue] = found
        return self._tallies[window_ms, queue]

    def _per_second(self, window_ms: int, queue: str | None, task: str | None) -> float:
        tier, _ = self._of_tier(_tier_of(window_ms))
        length_ms = self.now - start_of(self.now - window_ms, tier)
        return self._span(window_ms, queue, task).count(Happened.COMPLETED) * 1_000 / length_ms

    def _usual_per_second(self, queue: str | None, task: str | None) -> float | None:
        rows, start = self._rows(DAY_MS, queue)
        # What has run for an hour is not slow because there was nothing on the day before.
        first = min((max(row.start, start) for row in rows), default=None)
        if first is None or first >= self.now:
            return None
        completed = self._span(DAY_MS, queue, task).count(Happened.COMPLETED)
        return completed * 1_000 / (self.now - first)
