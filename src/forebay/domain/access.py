"""API keys: who may do what to which queues."""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.domain.history import Changes
from forebay.domain.job import check_queue_name
from forebay.domain.limits import MAX_LIMIT, Limit
from forebay.errors import ConfigError, InvalidJob

MAX_GRANTS: Final = 100
# When a key was last used is told to the hour: to know it better would cost a write for each request.
USED_EVERY_MS: Final = 3_600_000
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,50}\Z")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")


class Role(StrEnum):
    """What a key is for."""

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
    """A role for one queue, for those whose names begin with what stands before a *, or for all ("*").

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
        """`produce`, `produce:mail` or `produce:mail-*`."""
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
        """Whether it gives one of these roles for a queue; None stands for what belongs to no queue."""
        return self.has(roles) and self._covers(queue)

    def has(self, roles: Collection[Role]) -> bool:
        """Whether it gives one of these roles for whichever queues."""
        included = _INCLUDED.get(self.role, {self.role})
        return any(role in included for role in roles)

    def _covers(self, queue: str | None) -> bool:
        if self.queues == "*":
            return True
        if queue is None:
            return False
        if self.queues.endswith("*"):
            return queue.startswith(self.queues[:-1])
        return queue == self.queues


class KeyState(StrEnum):
    """What becomes of somebody who shows a key."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a key: not its secret, but the SHA-256 of it.

    The secret is 256 random bits. Nobody guesses one, however fast the hash: a slow one protects what people
    think up, and would cost each request its milliseconds. After a rotation `old_digest` opens as well, until
    `old_until`. With `rate` its holder may make so many requests a second, and `burst` at once.
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

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise ConfigError(f"{self.name!r:.60} cannot name a key: use 1 to 50 letters, digits, _, - or .")
        if not 1 <= len(self.grants) <= MAX_GRANTS:
            raise ConfigError(f"key {self.name} needs 1 to {MAX_GRANTS} roles")
        if not _DIGEST.match(self.digest):
            raise ConfigError(f"key {self.name} has no digest")
        self.limit  # noqa: B018 - raises if there is something wrong with it

    @property
    def limit(self) -> Limit | None:
        """How fast its holder may ask; None leaves that to the server."""
        if self.rate is None and self.burst is None:
            return None
        if self.rate is None:
            raise ConfigError("burst goes with a rate")
        return Limit(scope="global", rate=self.rate, burst=self.burst or min(2 * self.rate, MAX_LIMIT))

    def state(self, now: int) -> KeyState:
        if self.revoked_at is not None:
            return KeyState.REVOKED
        is_over = self.expires_at is not None and self.expires_at <= now
        return KeyState.EXPIRED if is_over else KeyState.ACTIVE

    def digests(self, now: int) -> tuple[str, ...]:
        """What its secret may hash to; nothing where it opens nothing any more."""
        if self.state(now) is not KeyState.ACTIVE:
            return ()
        if self.old_digest is None or self.old_until is None or self.old_until <= now:
            return (self.digest,)
        return (self.digest, self.old_digest)

    def may(self, roles: Collection[Role], queue: str | None) -> bool:
        """Whether it has one of these roles for a queue, or for what belongs to none."""
        return any(grant.gives(roles, queue) for grant in self.grants)

    def has(self, roles: Collection[Role]) -> bool:
        """Whether it has one of these roles for any queue at all."""
        return any(grant.has(roles) for grant in self.grants)

    def rotated(self, digest: str, now: int, grace_ms: int) -> ApiKey:
        """The key with another secret; the old one opens for so long."""
        old = (self.digest, now + grace_ms) if grace_ms else (None, None)
        return replace(self, digest=digest, old_digest=old[0], old_until=old[1])

    def revoked(self, now: int) -> ApiKey:
        """The key when it opens nothing any more."""
        return replace(self, revoked_at=now, old_digest=None, old_until=None)

    def used(self, now: int) -> ApiKey:
        """The key once somebody was let in with it."""
        return replace(self, used_at=now)

    def is_news_that_used(self, now: int) -> bool:
        """Whether it is worth a write that it was used now."""
        return self.used_at is None or self.used_at <= now - USED_EVERY_MS

    def shown(self) -> dict[str, object]:
        """What operators may see of it: no digest, which is as good as nothing to them and something to
        others."""
        hidden = ("digest", "old_digest", "grants")
        fields: dict[str, object] = {
            name: getattr(self, name) for name in self.__struct_fields__ if name not in hidden
        }
        return {**fields, "grants": [str(grant) for grant in self.grants]}


def key_changes(before: ApiKey | None, after: ApiKey) -> Changes:
    """What was done to a key. That it has another secret is said, and nothing of the secret."""
    was, now = before.shown() if before else {}, after.shown()
    hidden = ("name", "created_at", "used_at")
    changes: Changes = {
        name: (was.get(name), value)
        for name, value in now.items()
        if name not in hidden and was.get(name) != value
    }
    if before is not None and before.digest != after.digest:
        changes["secret"] = ("***", "***")
    return changes
