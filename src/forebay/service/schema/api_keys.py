"""API keys: requests and views."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta
from msgspec.structs import asdict

from forebay.domain.api_key import MAX_GRANTS, MAX_QUOTA, ApiKey, KeyPermissions, KeyState, Quota
from forebay.domain.concurrency_and_rate_limits import MAX_LIMIT
from forebay.domain.job import DAY_MS
from forebay.domain.job_validation import MAX_KEY, MAX_QUEUE_NAME
from forebay.service.api_keys import NewKey
from forebay.service.schema.base import RequestModel, ResponseModel, Values, at, moment_of

KEY_NAME = "^[A-Za-z0-9_.-]{1,50}$"
_MAX_GRANT = len("limit:=") + MAX_QUEUE_NAME + MAX_KEY  # a kind may be as long as the name of a queue
_Length = Annotated[float, Meta(ge=0, le=10 * 366 * DAY_MS / 1_000)]
_Rate = Annotated[int, Meta(ge=1, le=MAX_LIMIT)]
_QuotaLimit = Annotated[int, Meta(ge=1, le=MAX_QUOTA)]


class KeyRequest(RequestModel, frozen=True, kw_only=True):
    """New API key. A grant is a role (produce, consume, view, operate or admin) for all queues, for one
    (`produce:mail`) or for a prefix (`produce:mail-*`). `task:NAME` restricts the key to tasks, and
    `limit:KIND=VALUE` allows its jobs a limit key; both may end in a `*`.

    A client with the key may make `rate` requests and transfer `bytes_rate` bytes a second, and have
    `max_waits` waiting requests, `max_streams` streams and `max_connections` connections at a time. Without a
    value the setting of the server applies.
    """

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
    max_connections: _QuotaLimit | None = None

    @property
    def quota(self) -> Quota:
        """Quota of the key."""
        return Quota(**{name: getattr(self, name) for name in Quota.__struct_fields__})

    def parse_grants(self) -> KeyPermissions:
        """Return the permissions of the key; raises ConfigError."""
        return KeyPermissions.parse(self.grants)


class RotateRequest(RequestModel, frozen=True, kw_only=True):
    """New secret for a key; the old one stays valid for `grace_seconds`."""

    grace_seconds: _Length = 0


class KeyView(ResponseModel, frozen=True, kw_only=True):
    """API key without its secret."""

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
    max_connections: int | None = None


class KeyWithToken(KeyView, frozen=True, kw_only=True):
    """API key with its token, which is returned this once."""

    token: str


class KeyList(ResponseModel, frozen=True, kw_only=True):
    """All keys by name, expired and revoked ones included."""

    keys: list[KeyView]


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
