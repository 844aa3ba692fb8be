"""Consumers that are active at this server, by queue. Used on the event loop alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from forebay.domain.job import QueueName


class Presence:
    """Counts claims and streams that are under way, and notes the most at one moment. Clients have no
    identity here, so that a client with three claims at once is three consumers."""

    def __init__(self) -> None:
        self._active: Counter[QueueName] = Counter()
        self._peaks: dict[QueueName, int] = {}

    @contextmanager
    def track(self, queues: Iterable[QueueName]) -> Iterator[None]:
        """A client asks these queues for jobs while the block lasts."""
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
        """At least so many consumers of the queue are active: one has renewed or settled a lease."""
        if consumers > self._peaks.get(queue, 0):
            self._peaks[queue] = consumers

    def take_peaks(self) -> dict[QueueName, int]:
        """The most consumers of each queue since the last call."""
        most, self._peaks = self._peaks, dict(self._active)
        return most
