"""The part of the seam that keeps queues, and looks at what waits in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from forebay.domain.backpressure import Throughput
from forebay.domain.job import JobSummary, QueueName
from forebay.domain.query import Counts, LaneCount
from forebay.domain.queue import Queue, QueueState


class QueueStore(Protocol):
    """The write side of queues."""

    def save_queue(
        self,
        name: QueueName,
        changes: Mapping[str, object] | None = None,
        *,
        state: QueueState | None = None,
        actor: str = "",
    ) -> Queue:
        """Create or change a queue: settings that are named, and its state. Saving a dropped queue makes it
        active again unless `state` says otherwise. New scoring starts a reordering that `rescore` carries
        out. Wrong settings raise ConfigError. Leaves a QUEUE event."""
        ...

    def drop_queue(self, name: QueueName, *, force: bool = False, limit: int = 1_000, actor: str = "") -> int:
        """Close a queue for good. Without `force` a queue that has live jobs raises QueueNotEmpty.

        With `force` it takes no more jobs from now on, and up to `limit` waiting ones go to the dead
        letters with reason "queue dropped", those that are not due yet first. Answers how many waiting jobs
        are left, so that the caller repeats the call until that is 0. Running jobs may end; `sweep` moves
        what they leave behind.
        """
        ...


class QueueReader(Protocol):
    """The read side of queues."""

    def counts(self, queues: Sequence[QueueName] = ()) -> dict[QueueName, Counts]:
        """Jobs by queue and state, from maintained counters; of all queues, dropped ones too, if none is
        named."""
        ...

    def peek(self, queue: QueueName, limit: int = 10) -> list[JobSummary]:
        """The next jobs a claim would take of those already pending, in order, without taking them; a
        pause does not matter. Jobs behind gates are left out."""
        ...

    def lanes(self) -> list[LaneCount]:
        """How many jobs wait behind which gates, by queue and gate."""
        ...

    def throughputs(self, queues: Sequence[QueueName]) -> dict[QueueName, Throughput]:
        """How fast jobs of these queues were completed lately: in the last minute, or the last thousand."""
        ...

    def queues(self, names: Sequence[QueueName] = ()) -> list[Queue]:
        """Queues by name, dropped ones only if named; all others if none is named."""
        ...
