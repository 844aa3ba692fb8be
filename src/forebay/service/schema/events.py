"""Shapes of what those who look on are told."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from forebay.domain.history import Event, EventKind
from forebay.service.schema.base import ResponseModel, moment_of
from forebay.service.schema.queues import QueueView
from forebay.service.schema.workers import WorkerView

# Their detail names another job, which may be of any queue.
_NAMES_OTHER_JOB: Final = (EventKind.PARENT_FAILED, EventKind.REPLAYED, EventKind.FOLLOW_UP_SKIPPED)


class QueueChanges(ResponseModel, frozen=True, kw_only=True):
    """Queues that have changed, and the names of those that are gone; the first one has all there are."""

    queues: list[QueueView]
    removed: list[str]
    is_all: bool


class WorkerChanges(ResponseModel, frozen=True, kw_only=True):
    """All workers, since one of them has changed."""

    workers: list[WorkerView]


class AuditEventView(ResponseModel, frozen=True, kw_only=True):
    """A line of the audit log as those who look on are told it: without what was before and after."""

    number: int
    kind: str
    at: datetime
    job_id: str | None
    queue: str | None
    attempt: int | None
    actor: str | None
    detail: str


class AuditEvents(ResponseModel, frozen=True, kw_only=True):
    """New lines of the audit log, the oldest first."""

    lines: list[AuditEventView]


class EventsMissed(ResponseModel, frozen=True, kw_only=True):
    """More has happened since this line than is told again: look for yourself."""

    after: int


def audit_event_view(number: int, event: Event, *, names_others: bool) -> AuditEventView:
    return AuditEventView(
        number=number,
        kind=event.kind.value,
        at=moment_of(event.occurred_at),
        job_id=event.job_id,
        queue=event.queue,
        attempt=event.attempt,
        actor=event.actor_name or None,
        detail=event.detail if names_others or event.kind not in _NAMES_OTHER_JOB else "",
    )
