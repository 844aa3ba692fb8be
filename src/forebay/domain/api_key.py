"""API keys: roles for queues, permissions for tasks and limit keys, quotas."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from forebay.domain.concurrency_and_rate_limits import MAX_LIMIT, Limit
from forebay.domain.job_history import Changes
from forebay.domain.job_validation import check_kind, check_queue_name, check_task_name, check_text
from forebay.errors import ConfigError, InvalidJob

MAX_GRANTS: Final = 100
MAX_QUOTA: Final = 10**10
# The last use of a key is recorded to the hour: more precision would cost a write for each request.
USED_EVERY_MS: Final = 3_600_000
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,50}\Z")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")


class Role(StrEnum):
    """Role that a key grants."""

    PRODUCE = "produce"  # enqueue; see, await, change and cancel jobs of these queues
    CONSUME = "consume"  # claim, end and renew; see what comes next
    VIEW = "view"  # see everything but secrets, and change nothing
    OPERATE = "operate"  # view; pause, drain, purge, cancel, revive, fire
    ADMIN = "admin"  # everything, also settings, limits, schedules, keys


_INCLUDED: Final = {
    Role.OPERATE: frozenset({Role.OPERATE, Role.VIEW}),
    Role.ADMIN: frozenset(Role),
}


class Grant(msgspec.Struct, frozen=True):
    """Role for one queue, for queues with a prefix (before a *), or for all ("*").

    A name without a * is that queue and no other: a key for `mail` must not open `mail-of-others`.
    """

    role: Role
    queues: str = "*"

    def __post_init__(self) -> None:
        name = self.queues.removesuffix("*")
        try:
            if name or not self.queues:
                check_queue_name(name)
        except InvalidJob:
            raise ConfigError(
                f"{self.queues!r} names no queues: write a queue, the beginning of names with a *, or *"
            ) from None

    @classmethod
    def parse(cls, text: str) -> Grant:
        """Parse `produce`, `produce:mail` or `produce:mail-*`."""
        role, colon, queues = text.partition(":")
        try:
            return cls(Role(role), queues if colon else "*")
        except ValueError as exc:
            if isinstance(exc, ConfigError):
                raise
            raise ConfigError(f"{role!r} is no role: there are {', '.join(Role)}") from exc

    def __str__(self) -> str:
        return f"{self.role}:{self.queues}"

    def gives(self, roles: Collection[Role], queue: str | None) -> bool:
        """Return whether it gives one of these roles for a queue; None stands for things outside all
        queues."""
        return self.has(roles) and self._covers(queue)

    def has(self, roles: Collection[Role]) -> bool:
        """Return whether it gives one of these roles for any queue."""
        included = _INCLUDED.get(self.role, {self.role})
        return any(role in included for role in roles)

    def _covers(self, queue: str | None) -> bool:
        return self.queues == "*" or (queue is not None and _covers(self.queues, queue))


class KeyPermissions(NamedTuple):
    """Permissions of a key: roles, and the tasks and limit keys that its jobs may name."""

    grants: tuple[Grant, ...]
    tasks: tuple[str, ...] = ()
    limit_keys: tuple[str, ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> KeyPermissions:
        """Parse `produce:mail`, `task:send_*` and `limit:tenant=acme`; raise ConfigError for other texts."""
        texts_by_kind: dict[str, list[str]] = {"task": [], "limit": [], "": []}
        for text in texts:
            kind, _, name = text.partition(":")
            is_role = kind not in texts_by_kind
            texts_by_kind["" if is_role else kind].append(text if is_role else name)
        grants = tuple(Grant.parse(text) for text in texts_by_kind[""])
        return cls(grants, tuple(texts_by_kind["task"]), tuple(texts_by_kind["limit"]))

    def __str__(self) -> str:
        return ", ".join(self.texts)

    @property
    def texts(self) -> list[str]:
        """Return the texts that `parse` reads."""
        tasks = [f"task:{name}" for name in self.tasks]
        return [*map(str, self.grants), *tasks, *(f"limit:{pattern}" for pattern in self.limit_keys)]


class KeyState(StrEnum):
    """State of a key."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on one client's use of a server; None is no bound, or the server's default.

    `max_waits` bounds waiting requests, `max_streams` responses that go on until the client leaves,
    `max_connections` open connections, and `bytes_rate` the bytes of requests and responses a second.
    """

    max_waits: int | None = None
    max_streams: int | None = None
    bytes_rate: int | None = None
    max_connections: int | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 1 <= value <= MAX_QUOTA):
                raise ConfigError(f"{name} is a whole number from 1 to {MAX_QUOTA:,}, not {value!r:.60}")

    def with_defaults(self, defaults: Quota) -> Quota:
        """Return this quota, with the defaults where it has no bound."""
        return Quota(
            max_waits=self.max_waits or defaults.max_waits,
            max_streams=self.max_streams or defaults.max_streams,
            bytes_rate=self.bytes_rate or defaults.bytes_rate,
            max_connections=self.max_connections or defaults.max_connections,
        )


NO_QUOTA: Final = Quota()
# Default of a server: far more than a program needs, and less than a server can hold.
DEFAULT_QUOTA: Final = Quota(max_waits=10_000, max_streams=1_000, max_connections=10_000)


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """Stored API key: without its secret, but with the SHA-256 of it.

    The secret is 256 random bits, which cannot be guessed, however fast the hash. A slow hash protects
    passwords that people choose, and would cost each request milliseconds. After a rotation `old_digest` is
    accepted as well, until `old_until`. With `rate` the holder may make so many requests a second, and
    `burst` at once. The rest of its quota is in the fields of `Quota`.

    With `tasks` its jobs may be of these tasks alone. `limit_keys` are the kinds and values that they may
    count as. Without any, a key with `produce` for all queues may use every one, another key none.
    """

    name: str
    grants: tuple[Grant, ...]
    digest: str
    created_at: int = 0
    expires_at: int | None = None
    revoked_at: int | None = None
    used_at: int | None = None
    old_digest: str | None = None
    old_until: int | None = None
    rate: int | None = None
    burst: int | None = None
    tasks: tuple[str, ...] = ()
    limit_keys: tuple[str, ...] = ()
    max_waits: int | None = None
    max_streams: int | None = None
    bytes_rate: int | None = None
    max_connections: int | None = None

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise ConfigError(f"{self.name!r:.60} cannot name a key: use 1 to 50 letters, digits, _, - or .")
        if not self.grants or len(self.permissions.texts) > MAX_GRANTS:
            raise ConfigError(
                f"key {self.name} needs a role, and at most {MAX_GRANTS} roles, tasks and limit keys"
            )
        for name in self.tasks:
            _check_task(name)
        for pattern in self.limit_keys:
            _check_limit_key(pattern)
        if not _DIGEST.match(self.digest):
            raise ConfigError(f"key {self.name} has no digest")
        self.limit  # noqa: B018 - raises if its values are wrong
        self.quota  # noqa: B018 - as above

    @property
    def permissions(self) -> KeyPermissions:
        """Return the permissions of the key."""
        return KeyPermissions(self.grants, self.tasks, self.limit_keys)

    @property
    def limit(self) -> Limit | None:
        """Return the rate limit of its requests; None leaves that to the server."""
        if self.rate is None and self.burst is None:
            return None
        if self.rate is None:
            raise ConfigError("burst goes with a rate")
        return Limit(scope="global", rate=self.rate, burst=self.burst or min(2 * self.rate, MAX_LIMIT))

    @property
    def quota(self) -> Quota:
        """Return the bounds on its use of a server."""
        return Quota(**{name: getattr(self, name) for name in Quota.__struct_fields__})

    def state(self, now: int) -> KeyState:
        if self.revoked_at is not None:
            return KeyState.REVOKED
        is_over = self.expires_at is not None and self.expires_at <= now
        return KeyState.EXPIRED if is_over else KeyState.ACTIVE

    def digests(self, now: int) -> tuple[str, ...]:
        """Return the digests of the accepted secrets; none for an inactive key."""
        if self.state(now) is not KeyState.ACTIVE:
            return ()
        if self.old_digest is None or self.old_until is None or self.old_until <= now:
            return (self.digest,)
        return (self.digest, self.old_digest)

    def may(self, roles: Collection[Role], queue: str | None) -> bool:
        """Return whether it has one of these roles for a queue, or for things outside all queues (None)."""
        return any(grant.gives(roles, queue) for grant in self.grants)

    def has(self, roles: Collection[Role]) -> bool:
        """Return whether it has one of these roles for any queue."""
        return any(grant.has(roles) for grant in self.grants)

    def may_name(self, task: str) -> bool:
        """Return whether its jobs may be of this task."""
        return not self.tasks or any(_covers(name, task) for name in self.tasks)

    def may_use_limit_keys(self, limit_keys: Mapping[str, str], *, is_for_all: bool) -> bool:
        """Return whether its jobs may have these limit keys. `is_for_all` means that it may produce in all
        queues."""
        if is_for_all and not self.limit_keys:
            return True
        granted = [pattern.partition("=")[::2] for pattern in self.limit_keys]
        return all(
            any(kind == name and _covers(pattern, value) for name, pattern in granted)
            for kind, value in limit_keys.items()
        )

    def rotate(self, digest: str, now: int, grace_ms: int) -> ApiKey:
        """Return the key with another secret; the old one is accepted for `grace_ms`."""
        old = (self.digest, now + grace_ms) if grace_ms else (None, None)
        return replace(self, digest=digest, old_digest=old[0], old_until=old[1])

    def revoke(self, now: int) -> ApiKey:
        """Return the key as revoked."""
        return replace(self, revoked_at=now, old_digest=None, old_until=None)

    def mark_used(self, now: int) -> ApiKey:
        """Return the key after a use."""
        return replace(self, used_at=now)

    def is_use_due(self, now: int) -> bool:
        """Return whether a use at this time is worth a write."""
        return self.used_at is None or self.used_at <= now - USED_EVERY_MS

    def public_view(self) -> dict[str, object]:
        """Return the fields that operators may see. The digest is left out: it is of no use to them and of
        some use to an attacker."""
        hidden = ("digest", "old_digest", "grants", "tasks", "limit_keys")
        fields: dict[str, object] = {
            name: getattr(self, name) for name in self.__struct_fields__ if name not in hidden
        }
        return {**fields, "grants": self.permissions.texts}


def key_changes(before: ApiKey | None, after: ApiKey) -> Changes:
    """Return the changes of a key. A new secret is mentioned without its value."""
    was, now = before.public_view() if before else {}, after.public_view()
    hidden = ("name", "created_at", "used_at")
    changes: Changes = {
        name: (was.get(name), value)
        for name, value in now.items()
        if name not in hidden and was.get(name) != value
    }
    if before is not None and before.digest != after.digest:
        changes["secret"] = ("***", "***")
    return changes


def _covers(pattern: str, name: str) -> bool:
    """Return whether a name is the pattern, or begins with the part of it before its *."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _check_task(pattern: str) -> None:
    try:
        if pattern != "*":
            check_task_name(pattern.removesuffix("*"))
    except InvalidJob as exc:
        raise ConfigError(f"task:{pattern:.60} names no tasks: write task:NAME or task:BEGIN*") from exc


def _check_limit_key(text: str) -> None:
    kind, _, value = text.partition("=")
    try:
        check_kind(kind)
        if value != "*":
            check_text("limit_keys", value.removesuffix("*"))
    except InvalidJob as exc:
        raise ConfigError(
            f"limit:{text:.60} names no limit keys: write limit:KIND=VALUE, limit:KIND=BEGIN* or limit:KIND=*"
        ) from exc
