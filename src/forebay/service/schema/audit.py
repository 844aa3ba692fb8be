"""Audit log: requests, entries and the check of the chain."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import Meta

from forebay.domain.job_history import ACTIONS, Event, EventKind
from forebay.domain.job_query import MAX_PAGE
from forebay.operations.audit_check import AuditCheck
from forebay.operations.audit_search import AuditPage, AuditQuery
from forebay.payload.masking import mask
from forebay.service.schema.base import (
    Key,
    Moment,
    Queue,
    RequestModel,
    ResponseModel,
    Values,
    in_ms,
    moment_of,
)

MAX_CHECKED: Final = 20_000  # entries: a check takes some 20 us for each, on a thread that other reads share


class AuditRequest(RequestModel, frozen=True, kw_only=True):
    """Filter of the audit log, newest first. Without `kinds` it returns the actions of people and programs,
    with `all` also events that happen by themselves."""

    kinds: Annotated[list[EventKind], Meta(min_length=1, max_length=len(EventKind))] | None = None
    all: bool = False
    actor: Key | None = None
    request: Key | None = None
    queue: Queue | None = None
    job_id: Key | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100
    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None

    def query(self) -> AuditQuery:
        """Return the query of the audit log; raises InvalidJob."""
        default_kinds = None if self.all else ACTIONS
        return AuditQuery(
            kinds=default_kinds if self.kinds is None else frozenset(self.kinds),
            actor=self.actor,
            request=self.request,
            queue=self.queue,
            job_id=self.job_id,
            since=in_ms("since", self.since),
            until=in_ms("until", self.until),
        )


class AuditEntry(ResponseModel, frozen=True, kw_only=True):
    """Entry of the audit log. `before` and `after` have the changed values by name."""

    number: int
    at: datetime
    kind: EventKind
    actor: str
    request: str
    queue: str | None
    job_id: str | None
    detail: str
    before: Values
    after: Values


class AuditResponse(ResponseModel, frozen=True, kw_only=True):
    """Entries, newest first. `after` is the start of the next page, null at the end; a page may be short, or
    even empty, and still have a next one."""

    lines: list[AuditEntry]
    after: int | None
    has_more: bool


class AuditCheckRequest(RequestModel, frozen=True, kw_only=True):
    """Check of the chain of the audit log: from position `after` on, at most `limit` entries."""

    # JSON may write an integer as 1.0; from 2**53 on such a number is not read as an integer.
    after: Annotated[int, Meta(ge=0, le=2**53 - 1)] = 0
    limit: Annotated[int, Meta(ge=2, le=MAX_CHECKED)] = MAX_CHECKED


class AuditCheckResponse(ResponseModel, frozen=True, kw_only=True):
    """Result of a check. `lines` entries are sound; the last one has `position` and `hash`. `unchained`
    entries are too new to be checked. With `is_sound` false the entry at `flaw_position` does not follow its
    predecessor, for this reason. The check continues at `next_after`, if that is set."""

    is_sound: bool
    lines: int
    position: int | None
    hash: str | None
    unchained: int
    flaw_position: int | None
    flaw_number: int | None
    reason: str
    next_after: int | None


def audit_check_response(check: AuditCheck) -> AuditCheckResponse:
    flaw, head = check.flaw, check.head
    return AuditCheckResponse(
        is_sound=flaw is None,
        lines=check.lines,
        position=None if head is None else head.position,
        hash=None if head is None else head.hash,
        unchained=check.unchained,
        flaw_position=None if flaw is None else flaw.position,
        flaw_number=None if flaw is None else flaw.number,
        reason="" if flaw is None else flaw.reason,
        next_after=check.next_after,
    )


def audit_response(page: AuditPage) -> AuditResponse:
    return AuditResponse(
        lines=[_audit_entry(number, event) for number, event in page.entries],
        after=page.after,
        has_more=page.after is not None,
    )


def _audit_entry(number: int, event: Event) -> AuditEntry:
    return AuditEntry(
        number=number,
        at=moment_of(event.occurred_at),
        kind=event.kind,
        actor=event.actor_name,
        request=event.request_id,
        queue=event.queue,
        job_id=event.job_id,
        detail=event.detail,
        before=_mask_side(event, 0),
        after=_mask_side(event, 1),
    )


def _mask_side(event: Event, side: int) -> dict[str, Any]:
    masked: dict[str, Any] = mask({name: pair[side] for name, pair in event.changes.items()})
    return masked
