"""Browser logins: begin and end sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from forebay.app.client import Client
from forebay.clock import Clock
from forebay.domain.api_key import Grant
from forebay.domain.login_session import LoginSession, SessionLimits
from forebay.domain.openid_roles import OpenIdSettings
from forebay.errors import ConfigError
from forebay.service.browser_sessions import SessionAdmin, SessionCache
from forebay.service.login_provider import LoginProvider
from forebay.service.runtime.store_pool import StorePool

T = TypeVar("T")


class LoginSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How browsers reach the service. `is_secure` says that they use TLS, directly or by a proxy. `limits`
    bounds the life of sessions; `openid` is a login provider."""

    limits: SessionLimits = SessionLimits()
    is_secure: bool = False
    public_url: str | None = None
    openid: OpenIdSettings | None = None

    def provider(self, clock: Clock) -> LoginProvider | None:
        """Return a client of the login provider, if there is one; raise ConfigError if it cannot be used."""
        if self.openid is None:
            return None
        try:
            from forebay.service.openid_client import OpenIdProvider, check_address  # noqa: PLC0415 - needs an extra
        except ModuleNotFoundError as exc:
            raise ConfigError(
                f"a login by a provider needs {exc.name}, which is not installed: pip install 'forebay[oidc]'"
            ) from exc
        check_address(self.openid.issuer)
        return OpenIdProvider(self.openid, self.public_url or "", clock)


class Logins:
    """Sessions that this server begins, ends and checks."""

    def __init__(self, pool: StorePool, settings: LoginSettings) -> None:
        self._pool = pool
        self.settings: LoginSettings = settings
        self.provider: LoginProvider | None = settings.provider(pool.clock)
        self.cache: SessionCache = SessionCache(pool, pool.clock)

    async def begin(
        self, name: str, actor: str, *, digest: str | None = None, grants: tuple[Grant, ...] = ()
    ) -> str:
        """Begin a session and return its id."""

        def begin(sessions: SessionAdmin, now: int) -> str:
            return sessions.begin(
                LoginSession.begin(name, now, self.settings.limits, digest=digest, grants=grants)
            )

        return await self._with_sessions(begin, actor)

    async def end(self, session_id: str, actor: str) -> None:
        """End a session: at once on this server, on others when their cache expires."""
        await self._with_sessions(lambda sessions, _: sessions.end(session_id), actor)
        self.cache.forget(session_id)

    async def _with_sessions(self, call: Callable[[SessionAdmin, int], T], actor: str) -> T:
        def use(client: Client) -> T:
            return client.write(
                lambda store: client.read(
                    lambda reader: call(SessionAdmin(store, reader, actor=actor), reader.now())
                )
            )

        return await self._pool.use(use)
