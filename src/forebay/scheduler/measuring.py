"""Duty: jobs are counted, metrics are rolled up to minutes, hours and days, and old ones are forgotten."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from forebay.clock import Clock
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
from forebay.errors import StoreError
from forebay.stores.measuring import ROWS_AT_ONCE, every_row
from forebay.stores.protocol import Store

# How late a row of a worker may come and still be rolled up, and when nobody writes one any more.
LATE_MS: Final = 2 * MINUTE
OVER_MS: Final = 5 * MINUTE
# How much is rolled up at a time.
WINDOW_MS: Final[Mapping[int, int]] = {MINUTE: 10 * MINUTE, HOUR: 6 * HOUR, DAY_MS: 3 * DAY_MS}
WINDOWS_IN_A_ROW: Final = 10
# Hours and days are made of many rows; whoever reads totals still has them within half a minute or so.
COARSE_MS: Final = 2 * TEN_SECONDS
# Who has read rows this long ago does not write what they make: others know more by now.
STALE_SECONDS: Final = 60.0

logger: logging.Logger = logging.getLogger(__name__)


class Measuring:
    """Whoever comes first counts; a row of a coarser tier is made again from all finer ones, so two who do it
    at once, or one who dies in the middle, change nothing."""

    name = "measure"
    every_ms = TEN_SECONDS
    is_ready = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._minute = self._coarse_at = -1

    def run(self, store: Store) -> bool:
        return _tried(lambda: self._run(store))

    def _run(self, store: Store) -> bool:
        stock = store.take_stock()
        if not stock:
            return False  # there has never been a job
        now = max(one.at for one in stock.values())
        # One after the other, whatever becomes of those before: in a store that is full, to forget helps.
        _tried(lambda: _count(store, stock))
        has_more = _tried(lambda: self._roll_up(store, now))
        if not has_more and start_of(now, MINUTE) != self._minute:
            self._minute = start_of(now, MINUTE)
            _tried(lambda: _put_together(store, now))
            has_more = _tried(lambda: _forget(store, now))
        return has_more

    def _roll_up(self, store: Store, now: int) -> bool:
        """Make the rows of minutes, and not each time those of hours and days, each of the tier before; true
        if there is more than was done."""
        since = max(0, _end(store, MINUTE, now) - LATE_MS)
        has_more = self._roll(store, MINUTE, since, now)
        if has_more or start_of(now, COARSE_MS) != self._coarse_at:
            self._coarse_at = start_of(now, COARSE_MS)
            # The span before is made again only while it may change. Others may have made minutes again that
            # begin before ours, and had no time for the rest.
            since -= LATE_MS
            for tier in (HOUR, DAY_MS):
                since = min(_end(store, tier, now), start_of(since, tier))
                has_more |= self._roll(store, tier, since, now)
        return has_more

    def _roll(self, store: Store, tier: int, since: int, now: int) -> bool:
        finer = FINER[tier]
        for _ in range(WINDOWS_IN_A_ROW):
            looked_at = self._clock.monotonic()
            # Nobody may have worked, or counted, for days.
            first = next(every_row(store, finer, since, now + tier, limit=1), None)
            if first is None:
                return False
            start = start_of(first.start, tier)
            since = start + WINDOW_MS[tier]
            rows = rolled(every_row(store, finer, start, since), tier)
            if self._clock.monotonic() > looked_at + STALE_SECONDS:
                return False
            store.record_metrics(rows)
        return True


def _tried(work: Callable[[], bool]) -> bool:
    """Whether there is more of this to do. Figures are worth neither a job nor another duty, so whatever goes
    wrong costs a line in the log. A store that is full takes ends of jobs all the same; if it is away, others
    will notice."""
    try:
        return work()
    except Exception as exc:
        is_known = isinstance(exc, StoreError)
        logger.warning("metrics are left to the next turn: %s", exc, exc_info=not is_known)
        return False


def _count(store: Store, stock: Mapping[QueueName, Stock]) -> bool:
    store.record_metrics([_counted(queue, one) for queue, one in stock.items()])
    return False


def _counted(queue: QueueName, stock: Stock) -> MetricRow:
    start = start_of(stock.at, TEN_SECONDS)
    return MetricRow(tier=TEN_SECONDS, start=start, queue=queue, worker=SAMPLE, stock=stock)


def _end(store: Store, tier: int, now: int) -> int:
    """When the last span of a tier begins that there are rows of. Not later than now: the clock may have been
    ahead for a while, and what came since it is right again counts too."""
    last = store.last_metrics(tier)
    return 0 if last is None else start_of(min(last, now), tier)


def _put_together(store: Store, now: int) -> bool:
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
    return False


def _forget(store: Store, now: int) -> bool:
    went = [store.forget_metrics(tier, now - kept) for tier, kept in KEPT_MS.items()]
    return any(rows >= ROWS_AT_ONCE for rows in went)
