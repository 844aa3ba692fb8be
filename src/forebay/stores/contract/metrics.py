"""The part of the seam that keeps metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from forebay.domain.job import QueueName
from forebay.domain.metrics import MetricPage, MetricRow, QueueSnapshot

MAX_ROWS: Final = 1_000


class MetricReader(Protocol):
    """The read side of metrics."""

    def metrics(self, resolution_ms: int, since: int, before: int, *, limit: int = MAX_ROWS) -> MetricPage:
        """Rows of a tier that start from `since` on and before `before`. A page ends with the start at which
        it has `limit` rows, so it has all of each start."""
        ...

    def last_metrics(self, resolution_ms: int) -> int | None:
        """When the latest row of a tier starts."""
        ...


class MetricStore(MetricReader, Protocol):
    """The write side of metrics. Engines know nothing of figures: what rows say, and how they are put
    together, is in `domain.metrics`. Whoever writes them needs to look at them too."""

    def record_metrics(self, rows: Sequence[MetricRow], *, instead_of: Sequence[MetricRow] = ()) -> None:
        """Keep rows in the place of those with the same tier, start, queue and worker, so that writing them
        twice does no harm; and remove those whose figures they contain."""
        ...

    def prune_metrics(self, resolution_ms: int, before: int, limit: int = MAX_ROWS) -> int:
        """Remove rows of a tier that start before this, the oldest first, and not many more than `limit`;
        answers how many went."""
        ...

    def snapshot_queues(self) -> dict[QueueName, QueueSnapshot]:
        """How many jobs of each queue are in which state, and how many have ever come."""
        ...
