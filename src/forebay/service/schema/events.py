"""Bodies of server-sent events."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from forebay.domain.job_history import Event, EventKind
from forebay.service.schema.base import ResponseModel, moment_of
from forebay.service.schema.queues import QueueView
from forebay.service.schema.workers_and_commands import WorkerView

# Events whose detail names another job, which may be of any queue.
_NAMES_OTHER_JOB: Final = (EventKind.PARENT_FAILED, EventKind.REPLAYED, EventKind.FOLLOW_UP_SKIPPED)


class QueueChanges(ResponseModel, frozen=True, kw_only=True):
    """Changed queues, and the names of removed ones; the first event has all queues."""

    queues: list[QueueView]
    removed: list[str]
    is_all: bool


class WorkerChanges(ResponseModel, frozen=True, kw_only=True):
    """All workers, because one of them has changed."""

    workers: list[WorkerView]


class AuditEventView(ResponseModel, frozen=True, kw_only=True):
    """Entry of the audit log for a stream, without the values before and after the change."""

    number: int
    kind: str
    at: datetime
    job_id: str | None
    queue: str | None
    attempt: int | None
    actor: str | None
    detail: str


class AuditEvents(ResponseModel, frozen=True, kw_only=True):
    """New entries of the audit log, oldest first."""

    lines: list[AuditEventView]


class EventsMissed(ResponseModel, frozen=True, kw_only=True):
    """More has happened since this event than is sent again: reload what you show."""

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
