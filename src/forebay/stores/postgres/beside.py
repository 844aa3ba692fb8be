"""Who may stand beside the order: somebody who knows its head by heart and is quick to ask.

Nothing that it says counts before the store has looked: a place that it names is claimed only if a job waits
there. Nothing that it does not know is lost: the store looks by itself again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from forebay.domain.job import Job, QueueName
from forebay.stores.postgres.cursor import Place


class Beside(Protocol):
    """What the plain ways of a handle ask and tell; it belongs to that handle, and never raises."""

    def named(self, queue: QueueName, most: int) -> Sequence[Place]:
        """Places at the head of a queue's order, lowest first, that nobody else is told; none where the
        store shall look by itself. Each answer is followed by `tried`."""
        ...

    def tried(self, queue: QueueName, places: Sequence[Place], *, is_over: bool) -> None:
        """The store has looked at the places that were named last: those are claimed, gone, or in the hands
        of others. If it is not over, nobody knows, or nothing was claimed: they are to be named again."""
        ...

    def looked(self, queue: QueueName, places: Sequence[Place], *, is_enough: bool) -> None:
        """The store has looked by itself and claimed these; whether it has found as many as it wanted."""
        ...

    def gone(self, jobs: Sequence[Job]) -> None:
        """These were claimed in another way."""
        ...

    def came(self, queue: QueueName, rank: int, seqs: Sequence[int]) -> None:
        """Jobs have come into a queue's order, and that is committed."""
        ...
