"""Metrics rollup: maintenance task that counts jobs, rolls metrics up and prunes old ones."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from forebay.clock import Clock
from forebay.domain.job import DAY_MS, QueueName
from forebay.domain.metrics import (
    ALL_WORKERS,
    FINER,
    HOUR,
    MINUTE,
    RETENTION_MS,
    SAMPLE,
    TEN_SECONDS,
    MetricRow,
    QueueSnapshot,
    roll_up,
    start_of,
)
from forebay.errors import StoreError
from forebay.stores.contract.metrics import MAX_ROWS
from forebay.stores.contract.store import Store
from forebay.stores.shared.metric_rows import iter_rows

# How late a worker's row may come and still be rolled up, and after how long no worker writes one any more.
LATE_MS: Final = 2 * MINUTE
OVER_MS: Final = 5 * MINUTE
# Length of the spans that are rolled up at once, by the finer tier that is read.
WINDOW_MS: Final[Mapping[int, int]] = {MINUTE: 10 * MINUTE, HOUR: 6 * HOUR, DAY_MS: 3 * DAY_MS}
MAX_WINDOWS: Final = 10
# Hours and days are made of many rows; readers of totals still have them within half a minute.
COARSE_MS: Final = 2 * TEN_SECONDS
# Rows read this long ago are not rolled up: another process may have rolled up newer ones since.
STALE_SECONDS: Final = 60.0

logger: logging.Logger = logging.getLogger(__name__)


class MetricsRollup:
    """Counts jobs and rolls metrics up. A row of a coarser tier is built again from all finer ones. So two
    concurrent runs, or one that dies in the middle, change nothing."""

    name = "measure"
    every_ms = TEN_SECONDS
    is_ready = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._minute = self._coarse_at = -1

    def run(self, store: Store) -> bool:
        return _run_logged(lambda: self._run(store))

    def _run(self, store: Store) -> bool:
        snapshots = store.snapshot_queues()
        if not snapshots:
            return False  # there has never been a job
        now = max(snapshot.taken_at for snapshot in snapshots.values())
        # Each step runs even if those before have failed: in a store that is full, pruning helps.
        _run_logged(lambda: _record_snapshots(store, snapshots))
        has_more = _run_logged(lambda: self._roll_up(store, now))
        if not has_more and start_of(now, MINUTE) != self._minute:
            self._minute = start_of(now, MINUTE)
            _run_logged(lambda: _merge_workers(store, now))
            has_more = _run_logged(lambda: _prune(store, now))
        return has_more

    def _roll_up(self, store: Store, now: int) -> bool:
        """Roll up minutes, and less often hours and days, each from the tier before. Return whether there is
        more to do."""
        since = max(0, _find_last_span(store, MINUTE, now) - LATE_MS)
        has_more = self._roll_up_tier(store, MINUTE, since, now)
        if has_more or start_of(now, COARSE_MS) != self._coarse_at:
            self._coarse_at = start_of(now, COARSE_MS)
            # The previous span is built again only while it may change. Another process may have rolled up
            # minutes that begin before ours, and had no time for the coarser tiers.
            since -= LATE_MS
            for tier in (HOUR, DAY_MS):
                since = min(_find_last_span(store, tier, now), start_of(since, tier))
                has_more |= self._roll_up_tier(store, tier, since, now)
        return has_more

    def _roll_up_tier(self, store: Store, tier: int, since: int, now: int) -> bool:
        finer = FINER[tier]
        for _ in range(MAX_WINDOWS):
            read_at = self._clock.monotonic()
            # There may be no rows for days: no worker ran, or none measured.
            first = next(iter_rows(store, finer, since, now + tier, limit=1), None)
            if first is None:
                return False
            start = start_of(first.starts_at, tier)
            since = start + WINDOW_MS[tier]
            rows = roll_up(iter_rows(store, finer, start, since), tier)
            if self._clock.monotonic() > read_at + STALE_SECONDS:
                return False
            store.record_metrics(rows)
        return True


def _run_logged(work: Callable[[], bool]) -> bool:
    """Run a step; return whether there is more of it to do. Metrics must stop neither a job nor another
    maintenance task, so errors are only logged. A store that is full still takes ends of jobs; if it is
    unreachable, other calls will notice."""
    try:
        return work()
    except Exception as exc:
        is_known = isinstance(exc, StoreError)
        logger.warning("metrics are rolled up at the next run: %s", exc, exc_info=not is_known)
        return False


def _record_snapshots(store: Store, snapshots: Mapping[QueueName, QueueSnapshot]) -> bool:
    store.record_metrics([_snapshot_row(queue, snapshot) for queue, snapshot in snapshots.items()])
    return False


def _snapshot_row(queue: QueueName, snapshot: QueueSnapshot) -> MetricRow:
    start = start_of(snapshot.taken_at, TEN_SECONDS)
    return MetricRow(
        resolution_ms=TEN_SECONDS, starts_at=start, queue=queue, worker=SAMPLE, snapshot=snapshot
    )


def _find_last_span(store: Store, tier: int, now: int) -> int:
    """Return the start of the tier's last span that has rows, at most that of now. The clock may have been
    ahead for a while, and rows written since it was set right count too."""
    last = store.last_metrics(tier)
    return 0 if last is None else start_of(min(last, now), tier)


def _merge_workers(store: Store, now: int) -> bool:
    """Merge the rows of all workers into one where no worker writes any more, to save room. Rows that no
    process has merged in time stay apart, and are pruned like the others.

    Two concurrent runs have read the same rows, since no new ones come, and write the same result."""
    until = start_of(now - OVER_MS, TEN_SECONDS)
    groups: defaultdict[tuple[int, QueueName], list[MetricRow]] = defaultdict(list)
    for row in iter_rows(store, TEN_SECONDS, until - LATE_MS, until):
        groups[row.starts_at, row.queue].append(row)
    parts = [row for group in groups.values() if len(group) > 1 for row in group]
    if parts:
        unmerged = [row for row in parts if row.worker != ALL_WORKERS]
        store.record_metrics(roll_up(parts, TEN_SECONDS), instead_of=unmerged)
    return False


def _prune(store: Store, now: int) -> bool:
    pruned = [store.prune_metrics(tier, now - retention_ms) for tier, retention_ms in RETENTION_MS.items()]
    return any(rows >= MAX_ROWS for rows in pruned)
