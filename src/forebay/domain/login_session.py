"""Login sessions of browsers: their life time and their permissions."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.domain.api_key import ApiKey, Grant
from forebay.errors import ConfigError

MINUTE_MS: Final = 60_000
DAY_MS: Final = 1_440 * MINUTE_MS
# The last use is saved once in a tenth of the idle time: more precision would cost more writes.
SAVES_PER_IDLE: Final = 10


class SessionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Life time of a session: without any use, and in all."""

    idle_ms: int = 30 * MINUTE_MS
    lasts_ms: int = 720 * MINUTE_MS

    def __post_init__(self) -> None:
        if not MINUTE_MS <= self.idle_ms <= self.lasts_ms <= 30 * DAY_MS:
            raise ConfigError(
                "a session ends after 1 minute to 30 days; its idle end (--session-idle) is not later than "
                "its absolute one (--session-lasts)"
            )


class LoginSession(msgspec.Struct, frozen=True, kw_only=True):
    """One login. `name` is the name of its user in the audit log.

    A session that was begun with an API key has the `digest` of that key's secret. It is valid only as long
    as this secret is accepted for the key of its name. A login by an identity provider has its own `grants`.
    """

    name: str
    created_at: int
    used_at: int
    expires_at: int
    idle_ms: int
    digest: str | None = None
    grants: tuple[Grant, ...] = ()

    @classmethod
    def begin(
        cls,
        name: str,
        now: int,
        limits: SessionLimits,
        *,
        digest: str | None = None,
        grants: tuple[Grant, ...] = (),
    ) -> LoginSession:
        """Return a session that begins now."""
        return cls(
            name=name,
            created_at=now,
            used_at=now,
            expires_at=now + limits.lasts_ms,
            idle_ms=limits.idle_ms,
            digest=digest,
            grants=grants,
        )

    @property
    def ends_at(self) -> int:
        """Return when it ends unless it is used before."""
        return min(self.expires_at, self.used_at + self.idle_ms)

    def is_active(self, now: int) -> bool:
        """Return whether it has neither been idle for too long nor reached its absolute end."""
        return now < self.ends_at

    def is_use_due(self, now: int) -> bool:
        """Return whether a use at this time is worth a write."""
        return now - self.used_at >= self.idle_ms // SAVES_PER_IDLE

    def use(self, now: int) -> LoginSession:
        """Return the session after a use."""
        return replace(self, used_at=max(now, self.used_at))

    def key(self, named: ApiKey | None, now: int) -> ApiKey | None:
        """Return the permissions of its user as a key, given the API key of its name; None if it is valid
        no longer."""
        if self.digest is None:
            return ApiKey(name="session", grants=self.grants, digest="0" * 64)
        # A key of the same name that was created again, or has another secret, is not the one of the login.
        return named if named is not None and self.digest in named.digests(now) else None
