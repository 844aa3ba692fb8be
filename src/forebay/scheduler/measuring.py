"""Duty: jobs are counted, metrics are rolled up to minutes, hours and days, and old ones are forgotten."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from forebay.domain.job import DAY_MS, QueueName
from forebay.domain.metrics import (
    FINER,
    HOUR,
    KEPT_MS,
    MINUTE,
    SAMPLE,
    TEN_SECONDS,
    TOGETHER,
    MetricRow,
    Stock,
    rolled,
    start_of,
)
from forebay.errors import StoreUnavailable
from forebay.stores.measuring import ROWS_AT_ONCE, every_row
from forebay.stores.protocol import Store

# How late a row of a worker may come and still be rolled up, and when nobody writes one any more.
LATE_MS: Final = 2 * MINUTE
OVER_MS: Final = 5 * MINUTE
# How much is rolled up at a time.
WINDOW_MS: Final[Mapping[int, int]] = {MINUTE: 10 * MINUTE, HOUR: 6 * HOUR, DAY_MS: 3 * DAY_MS}
WINDOWS_IN_A_ROW: Final = 10

logger = logging.getLogger(__name__)


class Measuring:
    """Whoever comes first counts; a row of a coarser tier is made again from all finer ones, so two who do it
    at once, or one who dies in the middle, change nothing."""

    name = "measure"
    every_ms = TEN_SECONDS
    is_ready = True

    def __init__(self) -> None:
        self._minute = -1

    def run(self, store: Store) -> bool:
        try:
            return self._run(store)
        except StoreUnavailable as exc:
            # It may be full, and take ends of jobs all the same. If it is away, others will notice.
            logger.warning("metrics are left to the next turn: %s", exc)
            return False

    def _run(self, store: Store) -> bool:
        stock = store.take_stock()
        if not stock:
            return False  # there has never been a job
        now = max(one.at for one in stock.values())
        store.record_metrics([_counted(queue, one) for queue, one in stock.items()])
        # In this order: each tier is made of the one before.
        has_more = any([_roll(store, tier, now) for tier in FINER])
        if not has_more and start_of(now, MINUTE) != self._minute:
            self._minute = start_of(now, MINUTE)
            _put_together(store, now)
            has_more = _forget(store, now)
        return has_more


def _counted(queue: QueueName, stock: Stock) -> MetricRow:
    start = start_of(stock.at, TEN_SECONDS)
    return MetricRow(tier=TEN_SECONDS, start=start, queue=queue, worker=SAMPLE, stock=stock)


def _roll(store: Store, tier: int, now: int) -> bool:
    """Make the rows of a tier from where they end on; true if there is more than was done."""
    finer, last = FINER[tier], store.last_metrics(tier)
    since = 0 if last is None else start_of(last - LATE_MS, tier)
    for _ in range(WINDOWS_IN_A_ROW):
        # Nobody may have worked, or counted, for days.
        found = store.metrics(finer, since, now + tier, limit=1).rows
        if not found:
            return False
        start = start_of(found[0].start, tier)
        since = start + WINDOW_MS[tier]
        store.record_metrics(rolled(every_row(store, finer, start, since), tier))
    return True


def _put_together(store: Store, now: int) -> None:
    """Make one row of those of all workers where nobody writes any more; it saves room. What nobody was there
    to put together in time stays apart, and is forgotten with the others.

    Two who do this at once have read the same rows, since no others come, and write the same whole."""
    end = start_of(now - OVER_MS, TEN_SECONDS)
    groups: defaultdict[tuple[int, QueueName], list[MetricRow]] = defaultdict(list)
    for row in every_row(store, TEN_SECONDS, end - LATE_MS, end):
        groups[row.start, row.queue].append(row)
    parts = [row for group in groups.values() if len(group) > 1 for row in group]
    if parts:
        apart = [row for row in parts if row.worker != TOGETHER]
        store.record_metrics(rolled(parts, TEN_SECONDS), instead_of=apart)


def _forget(store: Store, now: int) -> bool:
    went = [store.forget_metrics(tier, now - kept) for tier, kept in KEPT_MS.items()]
    return any(rows >= ROWS_AT_ONCE for rows in went)
