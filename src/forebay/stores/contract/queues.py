"""Protocols of the store contract for queues and the jobs that wait in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from forebay.domain.job import QueueName
from forebay.domain.job_views import JobSummary
from forebay.domain.queue import Queue, QueueState
from forebay.domain.queue_counts import Counts, LaneCount
from forebay.domain.throughput import Throughput


class QueueStore(Protocol):
    """Write side of queues."""

    def save_queue(
        self,
        name: QueueName,
        changes: Mapping[str, object] | None = None,
        *,
        state: QueueState | None = None,
        actor: str = "",
    ) -> Queue:
        """Create or change a queue: the settings that are given, and its state. Saving a dropped queue makes
        it active again unless `state` says otherwise. New scoring starts a rescoring, which `rescore` carries
        out. Wrong settings raise ConfigError. Leaves a QUEUE_CHANGED event.
        """
        ...

    def drop_queue(self, name: QueueName, *, force: bool = False, limit: int = 1_000, actor: str = "") -> int:
        """Drop a queue. Without `force` a queue with live jobs raises QueueNotEmpty.

        With `force` it takes no more jobs from now on. Up to `limit` waiting ones go to the dead letters with
        reason "queue dropped", delayed ones first. Return how many waiting jobs are left; the caller repeats
        the call until that is 0. Running jobs may end; `sweep` moves those that go back to waiting.
        """
        ...


class QueueReader(Protocol):
    """Read side of queues."""

    def counts(self, queues: Sequence[QueueName] = ()) -> dict[QueueName, Counts]:
        """Return jobs by queue and state, from maintained counters; of all queues, dropped ones too, if none
        is named.
        """
        ...

    def peek(self, queue: QueueName, limit: int = 10) -> list[JobSummary]:
        """Return the next pending jobs that a claim would take, in order, without claiming them; a pause does
        not matter. Jobs in lanes are left out.
        """
        ...

    def lanes(self) -> list[LaneCount]:
        """Return how many jobs wait in lanes, by queue and lane."""
        ...

    def throughputs(self, queues: Sequence[QueueName]) -> dict[QueueName, Throughput]:
        """Return how fast jobs of these queues completed lately: in the last minute, or the last thousand."""
        ...

    def queues(self, names: Sequence[QueueName] = ()) -> list[Queue]:
        """Return queues by name, dropped ones only if named; all others if none is named."""
        ...
