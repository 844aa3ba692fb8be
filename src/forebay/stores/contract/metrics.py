"""Protocols of the store contract for metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from forebay.domain.job import QueueName
from forebay.domain.metrics import MetricPage, MetricRow, QueueSnapshot

MAX_ROWS: Final = 1_000


class MetricReader(Protocol):
    """Read side of metrics."""

    def metrics(self, resolution_ms: int, since: int, before: int, *, limit: int = MAX_ROWS) -> MetricPage:
        """Return rows of a resolution that start at `since` or later and before `before`. A page ends with
        the start at which it has `limit` rows, so it has all rows of each start.
        """
        ...

    def last_metrics(self, resolution_ms: int) -> int | None:
        """Return the start of the latest row of a resolution."""
        ...


class MetricStore(MetricReader, Protocol):
    """Write side of metrics. Engines treat rows as opaque: `domain.metrics` encodes and merges them. A writer
    of metrics needs to read them, too.
    """

    def record_metrics(self, rows: Sequence[MetricRow], *, instead_of: Sequence[MetricRow] = ()) -> None:
        """Save rows in place of those with the same resolution, start, queue and worker, so that a repeated
        call does no harm. Remove the rows of `instead_of`, whose values they contain.
        """
        ...

    def prune_metrics(self, resolution_ms: int, before: int, limit: int = MAX_ROWS) -> int:
        """Remove rows of a resolution that start before this, oldest first, and not many more than `limit`.
        Return how many were removed.
        """
        ...

    def snapshot_queues(self) -> dict[QueueName, QueueSnapshot]:
        """Return how many jobs of each queue are in which state, and how many were ever inserted."""
        ...
