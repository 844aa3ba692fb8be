"""Active consumers at this server, by queue. For the event loop only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from forebay.domain.job import QueueName


class Presence:
    """Counter of claims and streams in flight, with their peak. Clients have no identity here, so a client
    with three concurrent claims counts as three consumers."""

    def __init__(self) -> None:
        self._active: Counter[QueueName] = Counter()
        self._peaks: dict[QueueName, int] = {}

    @contextmanager
    def track(self, queues: Iterable[QueueName]) -> Iterator[None]:
        """Count a consumer of these queues while the block lasts."""
        named = tuple(queues)
        for queue in named:
            self._active[queue] += 1
            self.record(queue, self._active[queue])
        try:
            yield
        finally:
            for queue in named:
                self._active[queue] -= 1
                if not self._active[queue]:
                    del self._active[queue]

    def record(self, queue: QueueName, consumers: int = 1) -> None:
        """Record at least this many consumers: a client has renewed or settled a lease of the queue."""
        if consumers > self._peaks.get(queue, 0):
            self._peaks[queue] = consumers

    def take_peaks(self) -> dict[QueueName, int]:
        """Return the peak of each queue since the last call."""
        peaks, self._peaks = self._peaks, dict(self._active)
        return peaks
