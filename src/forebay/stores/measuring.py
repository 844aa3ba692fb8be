"""The part of the seam that keeps metrics."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from forebay.domain.job import QueueName
from forebay.domain.lifecycle import JobState
from forebay.domain.metrics import MetricPage, MetricRow, Stock, packed, unpacked
from forebay.domain.query import Counts
from forebay.stores.rows import Row

ROWS_AT_ONCE: Final = 1_000

logger: logging.Logger = logging.getLogger(__name__)


class LooksAtMetrics(Protocol):
    """The read side of metrics."""

    def metrics(self, tier: int, since: int, before: int, *, limit: int = ROWS_AT_ONCE) -> MetricPage:
        """Rows of a tier that start from `since` on and before `before`. A page ends with the start at which
        it has `limit` rows, so it has all of each start."""
        ...

    def last_metrics(self, tier: int) -> int | None:
        """When the latest row of a tier starts."""
        ...


class KeepsMetrics(LooksAtMetrics, Protocol):
    """The write side of metrics. Engines know nothing of figures: what rows say, and how they are put
    together, is in `domain.metrics`. Whoever writes them needs to look at them too."""

    def record_metrics(self, rows: Sequence[MetricRow], *, instead_of: Sequence[MetricRow] = ()) -> None:
        """Keep rows in the place of those with the same tier, start, queue and worker, so that writing them
        twice does no harm; and remove those whose figures they contain."""
        ...

    def forget_metrics(self, tier: int, before: int, limit: int = ROWS_AT_ONCE) -> int:
        """Remove rows of a tier that start before this, the oldest first, and not many more than `limit`;
        answers how many went."""
        ...

    def take_stock(self) -> dict[QueueName, Stock]:
        """How many jobs of each queue are in which state, and how many have ever come."""
        ...


def every_row(
    handle: LooksAtMetrics, tier: int, since: int, before: int, limit: int = ROWS_AT_ONCE
) -> Iterator[MetricRow]:
    """All rows of a tier in this time, page by page."""
    then: int | None = since
    while then is not None:
        page = handle.metrics(tier, then, before, limit=limit)
        yield from page.rows
        then = page.then


def page_of(rows: Sequence[Row], tier: int, limit: int) -> MetricPage:
    """A page from what is stored, by start, queue and worker. A row that cannot be read must not hide the
    others, nor stop what is made of them."""
    found = []
    for start, queue, worker, body in rows:
        try:
            found.append(unpacked(tier, start, queue, worker, body))
        except msgspec.MsgspecError as exc:
            logger.warning("metrics of %s by %r from %d on cannot be read: %s", queue, worker, start, exc)
    return MetricPage(found, rows[-1][0] + tier if len(rows) >= limit else None)


def stock_of(
    now: int, counted: Mapping[tuple[str, str], int], removed: Mapping[str, int]
) -> dict[QueueName, Stock]:
    """The stock of all queues, from jobs by queue and state and from how many were removed."""
    queues = sorted({queue for queue, _ in counted} | removed.keys())
    found = {}
    for name in queues:
        counts = Counts(**{state.value: counted.get((name, state.value), 0) for state in JobState})
        accepted = counts.total + removed.get(name, 0)
        found[QueueName(name)] = Stock(now, counts, accepted, counts.pending)
    return found


def key_of(row: MetricRow) -> dict[str, object]:
    """What names a row, as statements take it."""
    return {"tier": row.tier, "start": row.start, "queue": row.queue, "worker": row.worker}


def stored(row: MetricRow) -> dict[str, object]:
    """A row as statements take it."""
    return {**key_of(row), "body": packed(row)}
