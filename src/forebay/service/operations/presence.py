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
        self._now: Counter[QueueName] = Counter()
        self._most: dict[QueueName, int] = {}

    @contextmanager
    def of(self, queues: Iterable[QueueName]) -> Iterator[None]:
        """A client asks these queues for jobs while the block lasts."""
        named = tuple(queues)
        for queue in named:
            self._now[queue] += 1
            self.note(queue, self._now[queue])
        try:
            yield
        finally:
            for queue in named:
                self._now[queue] -= 1
                if not self._now[queue]:
                    del self._now[queue]

    def note(self, queue: QueueName, consumers: int = 1) -> None:
        """At least so many consumers of the queue are active: one has renewed or settled a lease."""
        if consumers > self._most.get(queue, 0):
            self._most[queue] = consumers

    def take(self) -> dict[QueueName, int]:
        """The most consumers of each queue since the last call."""
        most, self._most = self._most, dict(self._now)
        return most
