"""Authentication, free of transport: HTTP and gRPC pass what a client has presented.

A server has one `Authenticator`. For each request it does

    caller = await guard.authenticate(token, address, id)  # Unauthenticated: 401; TooManyRequests: 429
    caller.check("enqueue", queue)                         # Forbidden: 403
    headers |= caller.headers                              # X-RateLimit-*

and passes `caller.actor` to each write of the audit log. Operations on one job ask `caller.check_job` with
the queue of the job. A caller that may not see the queue gets "no such job", so ids of other queues do not
leak.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from collections.abc import Awaitable, Callable
from functools import partial
from random import getrandbits
from typing import Final, NamedTuple, Protocol, TypeVar

from forebay.clock import Clock
from forebay.domain.api_key import ApiKey, KeyState
from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.errors import StoreError, StoreUnavailable, Unauthenticated
from forebay.service.api_keys import StoredKey, all_keys, digest_of, parse_token, save_key
from forebay.service.browser_sessions import SessionCache, ShownSession
from forebay.service.caller import Caller
from forebay.service.client_rates_and_quotas import ClientRateLimiter
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store

T = TypeVar("T")

# A revoked key is rejected on every server after this time at the latest.
KEY_CACHE_SECONDS: Final = 5.0
BEARER: Final = "bearer "
# Requests without a key, such as health checks, by address.
OPEN_RATE: Final = Limit(scope="global", rate=100, burst=200)
_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}\Z")
_NO_KEY: Final = "show an API key that holds: Authorization: Bearer fbk_..."


logger: logging.Logger = logging.getLogger(__name__)


class Authenticator(Protocol):
    """Authentication of requests."""

    @property
    def is_open(self) -> bool:
        """Whether requests need no key."""
        ...

    async def authenticate(
        self,
        token: str | None,
        address: str,
        request: str = "",
        certificate: str | None = None,
        session: ShownSession | None = None,
    ) -> Caller:
        """Return the caller by its token, else its session, else the common name of its certificate."""
        ...

    def count_open_request(self, address: str) -> None:
        """Count a request that needs no key; raises TooManyRequests."""
        ...


class AuthStore(Protocol):
    """Store calls of an authenticator, each on a thread, awaitable by coroutines."""

    def read_fast(self, call: Callable[[Reader], T]) -> Awaitable[T]: ...

    def write(self, call: Callable[[Store], T]) -> Awaitable[T]: ...


class User(NamedTuple):
    """Name for the audit log, and permissions."""

    name: str
    key: ApiKey


class KeyAuthenticator:
    """Authenticator that asks for API keys. All keys are read together and cached for `KEY_CACHE_SECONDS`.

    So guessed names cost the store nothing, however many come. While the store is unavailable no key is
    accepted after that time: a key may have been revoked, and a request could not be served anyway.
    """

    is_open = False

    def __init__(
        self,
        pool: AuthStore,
        clock: Clock,
        rates: ClientRateLimiter,
        open_rate: Limit | None = OPEN_RATE,
        sessions: SessionCache | None = None,
    ) -> None:
        self._pool = pool
        self._sessions = sessions or SessionCache(pool, clock)
        self._clock = clock
        self._rates = rates
        self._open_rate = open_rate
        self._stored_keys: dict[str, StoredKey] = {}
        self._loaded_at: float | None = None
        self._clock_offset_ms = 0  # the store's clock minus this process's clock
        self._used_keys: set[str] = set()
        self._is_away = False
        self._load_lock = asyncio.Lock()

    async def authenticate(
        self,
        token: str | None,
        address: str,
        request: str = "",
        certificate: str | None = None,
        session: ShownSession | None = None,
    ) -> Caller:
        """Return the caller that presents this token.

        Raises Unauthenticated with the same text for a token that is missing, wrong, expired or revoked, and
        TooManyRequests for a client beyond its rate. Without a token the session counts; without both, a
        certificate stands for the key of its common name.
        """
        await self._refresh_keys()
        user = await self._find_user(token, certificate, session)
        if user is None:
            # Guesses are rate limited by address: 256 bits cannot be guessed, but each try costs CPU time.
            self._rates.take(f"stranger@{address}")
            raise Unauthenticated(_NO_KEY)
        if token is None and session is not None and not session.is_background:
            await self._sessions.use(session.id, self._now())
        name, key = user
        allowance = self._rates.take(name, key.limit)
        usage = self._rates.usage(name, key.quota)
        if key.is_use_due(self._now()):
            self._used_keys.add(name)
        headers = None if allowance is None else allowance.headers()
        key_now = partial(self._current_key, token, certificate, session)
        has_token = token is not None or session is not None
        return Caller(name, key, request, headers, key_now, has_token=has_token, usage=usage)

    def count_open_request(self, address: str) -> None:
        if self._open_rate is not None:
            self._rates.take(f"open@{address}", self._open_rate)

    async def _current_key(
        self, token: str | None, certificate: str | None, session: ShownSession | None
    ) -> ApiKey:
        await self._refresh_keys()
        user = await self._find_user(token, certificate, session)
        if user is None:
            raise Unauthenticated(_NO_KEY)
        return user.key

    async def _find_user(
        self, token: str | None, certificate: str | None, session: ShownSession | None
    ) -> User | None:
        if token is not None or session is None:
            key = self._find_key(token, certificate)
            return None if key is None else User(key.name, key)
        login, now = await self._sessions.find(session.id), self._now()
        if login is None or not login.is_active(now):
            return None
        stored = self._stored_keys.get(login.name)
        key = login.key(None if stored is None else stored.key, now)
        return None if key is None else User(login.name, key)

    def _find_key(self, token: str | None, certificate: str | None) -> ApiKey | None:
        if token is None and certificate is not None:
            stored = self._stored_keys.get(certificate)
            return stored.key if stored and stored.key.state(self._now()) is KeyState.ACTIVE else None
        name, secret = parse_token(token or "")
        digest = digest_of(secret)
        stored = self._stored_keys.get(name)
        known = stored.key.digests(self._now()) if stored else ()
        # Constant-time comparison; for an unknown name a digest that no key has is compared instead.
        matches = [hmac.compare_digest(digest, one) for one in (*known, "0" * 64)]
        return stored.key if stored and any(matches) else None

    def _now(self) -> int:
        return self._clock.now_ms() + self._clock_offset_ms

    async def _refresh_keys(self) -> None:
        if self._is_fresh():
            return
        async with self._load_lock:
            if self._is_fresh():  # another request has loaded them while this one waited for the lock
                return
            at = self._clock.monotonic()
            keys, now = await self._load_keys()
            self._stored_keys = {stored.key.name: stored for stored in keys}
            self._clock_offset_ms = now - self._clock.now_ms()
            self._loaded_at = at
        await self._record_used_keys()

    async def _load_keys(self) -> tuple[list[StoredKey], int]:
        try:
            loaded = await self._pool.read_fast(_load_keys_and_time)
        except StoreError as exc:
            # The client may be unknown, so the answer does not name the store's address; the log does, once.
            if not self._is_away:
                logger.error("no key can be checked: %s", exc)
            self._is_away = True
            raise StoreUnavailable("the store does not answer, so no key can be checked") from exc
        self._is_away = False
        return loaded

    def _is_fresh(self) -> bool:
        return self._loaded_at is not None and self._clock.monotonic() - self._loaded_at < KEY_CACHE_SECONDS

    async def _record_used_keys(self) -> None:
        """Save the time of use of the keys that were used. A concurrent change of a key wins; its next use
        saves again."""
        used, self._used_keys = self._used_keys, set()
        for name in used:
            stored = self._stored_keys.get(name)
            if stored is not None and stored.key.is_use_due(self._now()):
                changed = StoredKey(stored.key.mark_used(self._now()), stored.revision)
                await self._pool.write(partial(save_key, stored=changed, event=None))


class OpenAccess:
    """Authenticator that accepts every request as an administrator, for a server that only this machine can
    reach."""

    is_open = True

    def __init__(self, rates: ClientRateLimiter, open_rate: Limit | None = OPEN_RATE) -> None:
        self._rates = rates
        self._open_rate = open_rate

    def count_open_request(self, address: str) -> None:
        if self._open_rate is not None:
            self._rates.take(f"open@{address}", self._open_rate)

    async def authenticate(
        self,
        token: str | None,
        address: str,
        request: str = "",
        certificate: str | None = None,
        session: ShownSession | None = None,
    ) -> Caller:
        name = f"anonymous@{address}" if certificate is None else f"certificate:{certificate}"
        allowance = self._rates.take(name)
        headers = None if allowance is None else allowance.headers()
        return Caller(name, None, request, headers, usage=self._rates.usage(name))


def request_id(proposed: str) -> str:
    """Return the id of a request: the one that its client proposes if it is well-formed, else a new one."""
    if proposed and _ID.match(proposed):
        return proposed
    # Ids only have to differ. Random bytes of the system would cost a system call for each request.
    return f"{getrandbits(128):032x}"


def bearer_token(header: str | None) -> str | None:
    """Return the token in an Authorization header; None for another scheme."""
    if header is None or header[: len(BEARER)].lower() != BEARER:
        return None
    return header[len(BEARER) :].strip()


def _load_keys_and_time(reader: Reader) -> tuple[list[StoredKey], int]:
    return all_keys(reader), reader.now()
