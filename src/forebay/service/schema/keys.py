"""Shapes of API keys and of the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import Meta
from msgspec.structs import asdict

from forebay.domain.access import MAX_GRANTS, MAX_QUOTA, ApiKey, KeyPermissions, KeyState, Quota
from forebay.domain.history import ACTIONS, Event, EventKind
from forebay.domain.job import DAY_MS, MAX_KEY, MAX_QUEUE_NAME
from forebay.domain.limits import MAX_LIMIT
from forebay.domain.query import MAX_PAGE
from forebay.operations.audit import AuditPage, AuditQuery
from forebay.operations.audit_check import AuditCheck
from forebay.payload.masking import mask
from forebay.service.api_keys import NewKey
from forebay.service.schema.base import (
    Key,
    Moment,
    Queue,
    RequestModel,
    ResponseModel,
    Values,
    at,
    in_ms,
    moment_of,
)

KEY_NAME = "^[A-Za-z0-9_.-]{1,50}$"
_MAX_GRANT = len("limit:=") + MAX_QUEUE_NAME + MAX_KEY  # a kind is as long as the name of a queue
_Length = Annotated[float, Meta(ge=0, le=10 * 366 * DAY_MS / 1_000)]
_Rate = Annotated[int, Meta(ge=1, le=MAX_LIMIT)]
_QuotaLimit = Annotated[int, Meta(ge=1, le=MAX_QUOTA)]
MAX_CHECKED: Final = 20_000  # lines: a check takes some 20 us for each, on a thread that others wait for


class KeyRequest(RequestModel, frozen=True, kw_only=True):
    """A key that shall be made. A grant is a role (produce, consume, view, operate or admin) for all queues,
    for one (`produce:mail`) or for those whose names begin alike (`produce:mail-*`). `task:NAME` restricts
    the key to tasks, and `limit:KIND=VALUE` lets its jobs have a limit key; both may end in a `*`.

    Its holder may make `rate` requests and move `bytes_rate` bytes a second. It may have `max_waits` requests
    that wait and `max_streams` streams at a time. Where one is missing the server's own setting counts."""

    name: Annotated[str, Meta(pattern=KEY_NAME)]
    grants: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=_MAX_GRANT)]],
        Meta(min_length=1, max_length=MAX_GRANTS),
    ]
    lasts_seconds: _Length | None = None
    rate: _Rate | None = None
    burst: _Rate | None = None
    max_waits: _QuotaLimit | None = None
    max_streams: _QuotaLimit | None = None
    bytes_rate: _QuotaLimit | None = None

    @property
    def quota(self) -> Quota:
        """How much of a server its holder may use at a time."""
        return Quota(max_waits=self.max_waits, max_streams=self.max_streams, bytes_rate=self.bytes_rate)

    def parse_grants(self) -> KeyPermissions:
        """What it is for; raises ConfigError."""
        return KeyPermissions.parse(self.grants)


class RotateRequest(RequestModel, frozen=True, kw_only=True):
    """A key shall have another secret; the old one opens for so long."""

    grace_seconds: _Length = 0


class KeyView(ResponseModel, frozen=True, kw_only=True):
    """An API key without its secret."""

    name: str
    state: KeyState
    grants: list[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None
    old_until: datetime | None
    rate: int | None
    burst: int | None
    max_waits: int | None = None
    max_streams: int | None = None
    bytes_rate: int | None = None


class KeyWithToken(KeyView, frozen=True, kw_only=True):
    """The same with its token, which is told this once."""

    token: str


class KeyList(ResponseModel, frozen=True, kw_only=True):
    """All keys by name, also those that open nothing any more."""

    keys: list[KeyView]


class AuditRequest(RequestModel, frozen=True, kw_only=True):
    """Which lines are wanted: all that fit, newest first. Without `kinds` what somebody did on purpose, with
    `everything` also what nobody did."""

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
        """The same for whoever looks; raises InvalidJob."""
        usual = None if self.all else ACTIONS
        return AuditQuery(
            kinds=usual if self.kinds is None else frozenset(self.kinds),
            actor=self.actor,
            request=self.request,
            queue=self.queue,
            job_id=self.job_id,
            since=in_ms("since", self.since),
            until=in_ms("until", self.until),
        )


class AuditEntry(ResponseModel, frozen=True, kw_only=True):
    """Who did what. `before` and `after` say by name what it has changed."""

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
    """Lines, newest first. `after` is where the next page begins, null at the end; a page may be short, or
    even empty, and still have a next one."""

    lines: list[AuditEntry]
    after: int | None
    has_more: bool


class AuditCheckRequest(RequestModel, frozen=True, kw_only=True):
    """Check the chain of the audit log: from position `after` on, at most so many lines."""

    after: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Annotated[int, Meta(ge=2, le=MAX_CHECKED)] = MAX_CHECKED


class AuditCheckResponse(ResponseModel, frozen=True, kw_only=True):
    """What a check of the audit log has found. `lines` fit, the last one has `position` and `hash`.
    `unchained` lines are too new to be checked. With `is_sound` false the line at
    `flaw_position` does not fit, for this reason. Where `next_after` is set the check goes on there."""

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


def key_view(key: ApiKey, now_ms: int) -> KeyView:
    return KeyView(**_key_fields(key, now_ms))


def key_with_token(new_key: NewKey, now_ms: int) -> KeyWithToken:
    return KeyWithToken(**_key_fields(new_key.key, now_ms), token=new_key.token)


def _key_fields(key: ApiKey, now: int) -> Values:
    moments = ("expires_at", "revoked_at", "used_at", "old_until")
    return {
        "name": key.name,
        "state": key.state(now),
        "grants": key.permissions.texts,
        "created_at": moment_of(key.created_at),
        **{name: at(getattr(key, name)) for name in moments},
        "rate": key.rate,
        "burst": key.burst,
        **asdict(key.quota),
    }


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
    shown: dict[str, Any] = mask({name: pair[side] for name, pair in event.changes.items()})
    return shown
