"""Shapes of what those who look on are told."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from forebay.domain.history import Event, EventKind
from forebay.service.schema.queues import QueueShape
from forebay.service.schema.shared import Shape, moment_of
from forebay.service.schema.steering import WorkerShape

# Their detail names another job, which may be of any queue.
_NAMING: Final = (EventKind.PARENT, EventKind.REPLAYED, EventKind.UNFOLLOWED)


class QueueNews(Shape, frozen=True, kw_only=True):
    """Queues that have changed, and the names of those that are gone; the first one has all there are."""

    queues: list[QueueShape]
    gone: list[str]
    is_all: bool


class WorkerNews(Shape, frozen=True, kw_only=True):
    """All workers, since one of them has changed."""

    workers: list[WorkerShape]


class LineShape(Shape, frozen=True, kw_only=True):
    """A line of the audit log as those who look on are told it: without what was before and after."""

    number: int
    kind: str
    at: datetime
    job_id: str | None
    queue: str | None
    attempt: int | None
    actor: str | None
    detail: str


class Happening(Shape, frozen=True, kw_only=True):
    """New lines of the audit log, the oldest first."""

    lines: list[LineShape]


class Missed(Shape, frozen=True, kw_only=True):
    """More has happened since this line than is told again: look for yourself."""

    after: int


def happening(number: int, event: Event, *, names_others: bool) -> LineShape:
    return LineShape(
        number=number,
        kind=event.kind.value,
        at=moment_of(event.at),
        job_id=event.job_id,
        queue=event.queue,
        attempt=event.attempt,
        actor=event.who or None,
        detail=event.detail if names_others or event.kind not in _NAMING else "",
    )
