"""Authentication and permissions, free of transport: HTTP and gRPC pass what a client has presented.

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
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar
from uuid import uuid4

from forebay.clock import Clock
from forebay.domain.api_key import ApiKey, KeyState, Role
from forebay.domain.job import ALERT_QUEUE
from forebay.domain.limits import Limit
from forebay.errors import Forbidden, JobNotFound, StoreError, StoreUnavailable, Unauthenticated
from forebay.service.api_keys import StoredKey, all_keys, digest_of, parse_token, save_key
from forebay.service.browser_sessions import SessionCache, ShownSession
from forebay.service.client_rate_limits import ClientRateLimiter, ClientUsage
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

_PRODUCERS: Final = frozenset({Role.PRODUCE})
_CONSUMERS: Final = frozenset({Role.CONSUME})
_VIEWERS: Final = frozenset({Role.VIEW})
_OPERATORS: Final = frozenset({Role.OPERATE})
_ADMINS: Final = frozenset({Role.ADMIN})
_ALL_ROLES: Final = frozenset(Role)

# Roles that allow an operation, by the name of its handler: one of them is enough. An operation without a row
# is forbidden to every key.
REQUIRED_ROLES: Final[Mapping[str, frozenset[Role]]] = {
    # Producers
    "enqueue": _PRODUCERS,
    "enqueue_many": _PRODUCERS,
    "wait": _PRODUCERS | _VIEWERS,
    "result": _PRODUCERS | _VIEWERS,
    "cancel": _PRODUCERS | _OPERATORS,
    "update_job": _PRODUCERS | _OPERATORS,
    # Consumers
    "claim": _CONSUMERS,
    "give_back": _CONSUMERS,
    "ack": _CONSUMERS,
    "nack": _CONSUMERS,
    "settle": _CONSUMERS,
    "heartbeat": _CONSUMERS,
    "extend": _CONSUMERS,
    "peek": _CONSUMERS | _VIEWERS,
    # Producers, consumers and viewers
    "job": _PRODUCERS | _CONSUMERS | _VIEWERS,
    "queue": _PRODUCERS | _CONSUMERS | _VIEWERS,
    # Every key
    **dict.fromkeys(("session", "begin_session", "end_session"), _ALL_ROLES),
    # Viewers
    **dict.fromkeys(
        (
            "queues",
            "queue_metrics",
            "all_metrics",
            "metric_series",
            "system_metrics",
            "exposition",
            "search",
            "dead_letters",
            "failure_groups",
            "gradual_revives",
            "gradual_revive",
            "schedules",
            "schedule",
            "preview_schedule",
            "graph",
            "stream",
            "schedule_runs",
            "workers",
            "commands",
            "limits",
            "alerts",
            "alert_rules",
        ),
        _VIEWERS,
    ),
    # Operators: pause, resume, delete and revive what exists
    **dict.fromkeys(
        (
            "pause_queue",
            "resume_queue",
            "drain_queue",
            "purge_queue",
            "requeue",
            "bulk",
            "delete_job",
            "revive",
            "replay",
            "revive_dead",
            "purge_dead",
            "start_gradual_revive",
            "pause_gradual_revive",
            "resume_gradual_revive",
            "stop_gradual_revive",
            "pause_schedule",
            "resume_schedule",
            "fire_schedule",
            "command",
            "acknowledge_alert",
            "resolve_alert",
            "trigger_alert",
        ),
        _OPERATORS,
    ),
    # Admins: change settings and definitions
    **dict.fromkeys(
        (
            "create_queue",
            "configure_queue",
            "delete_queue",
            "save_schedule",
            "remove_schedule",
            "set_limit",
            "remove_limit",
            "keys",
            "key",
            "create_key",
            "rotate_key",
            "revoke_key",
            "audit",
            "check_audit",
            "create_alert_rule",
            "save_alert_rule",
            "remove_alert_rule",
            "alert_channels",
            "save_alert_channel",
            "remove_alert_channel",
            "migrate",
            "record",
            "contents",
            "trace",
            "inspect",
            "sweep",
            "worker_state",
            "signal",
        ),
        _ADMINS,
    ),
    # Workers: maintenance tasks
    "maintenance": _CONSUMERS,
}


logger: logging.Logger = logging.getLogger(__name__)


class Caller:
    """Authenticated client of one request.

    `key` is None where the server asks for no key. `has_token` is false if another program vouches for the
    client: the embedding app, or a proxy with a client certificate.
    """

    def __init__(
        self,
        name: str,
        key: ApiKey | None,
        request: str = "",
        headers: Mapping[str, str] | None = None,
        current_key: Callable[[], Awaitable[ApiKey]] | None = None,
        *,
        has_token: bool = True,
        usage: ClientUsage | None = None,
    ) -> None:
        self.name = name
        self.key = key
        self.has_token: bool = key is not None and has_token
        self.request = request
        self.headers: Mapping[str, str] = headers or {}
        self._current_key = current_key
        self.usage = usage

    @property
    def actor(self) -> str:
        """Name of the caller in the audit log."""
        return f"{self.name}#{self.request}" if self.request else self.name

    def reserve_wait(self, group: Hashable = None) -> AbstractContextManager[None]:
        """Count a waiting request of this client while the block lasts; raises TooManyRequests beyond its
        quota."""
        return nullcontext() if self.usage is None else self.usage.reserve_wait(group)

    def reserve_stream(self, group: Hashable = None) -> AbstractContextManager[None]:
        """Count a stream of this client while the block lasts; raises TooManyRequests beyond its quota."""
        return nullcontext() if self.usage is None else self.usage.reserve_stream(group)

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Count a large request as in flight while the block lasts; raises TooManyRequests."""
        if self.usage is None:
            yield
            return
        self.usage.hold_bytes(size)
        try:
            yield
        finally:
            self.usage.release_bytes(size)

    def spend(self, data: bytes) -> None:
        """Count the bytes of a request or an answer."""
        if self.usage is not None:
            self.usage.spend(len(data))

    def may(self, operation: str, queue: str | None = None) -> bool:
        """Return whether the caller may do this to a queue, or to something that belongs to no queue."""
        needed = REQUIRED_ROLES.get(operation)
        if needed is None or self.key is None:
            return needed is not None
        if queue == ALERT_QUEUE and needed.isdisjoint(_VIEWERS):
            # A forged delivery would be sent under the channel's signature, and a claimed one would never be
            # sent. So every change there is for administrators, who may write channels and their secrets.
            needed, queue = _ADMINS, None
        return self.key.may(needed, queue)

    def may_in_all_queues(self, operation: str) -> bool:
        """Return whether the caller may do this to a job of any queue, the queue of alert deliveries
        included.

        Operations that need a lease skip that queue, because no client can hold a lease on a delivery. This
        check stands before every ack.
        """
        return self.may(operation) and (
            REQUIRED_ROLES[operation] == _CONSUMERS or self.may(operation, ALERT_QUEUE)
        )

    def check(self, operation: str, queue: str | None = None) -> None:
        """Raise Forbidden unless the caller may do this."""
        if not self.may(operation, queue):
            raise self._forbidden_error(operation, f" for queue {queue}" if queue else " for all queues")

    def check_any_queue(self, operation: str) -> None:
        """Raise Forbidden if the caller may do this to no queue at all. This check needs no look at the
        request's body."""
        if self.key is not None and not self.key.has(REQUIRED_ROLES.get(operation, ())):
            raise self._forbidden_error(operation, "")

    def _forbidden_error(self, operation: str, scope_text: str) -> Forbidden:
        if scope_text.endswith(f" {ALERT_QUEUE}") and self.key is not None:
            return Forbidden(
                f"{self.name} may not {operation}: the queue {ALERT_QUEUE} is for deliveries of alerts, "
                "and that needs the role admin for all queues"
            )
        roles = " or ".join(sorted(REQUIRED_ROLES.get(operation, ("none",))))
        return Forbidden(f"{self.name} may not {operation}: that needs the role {roles}{scope_text}")

    async def recheck(self, operation: str = "", *queues: str) -> None:
        """Check again after a long wait, in which the key may have changed.

        Raises Unauthenticated for a key that is no longer valid, Forbidden for one that no longer allows this
        to these queues.
        """
        if self._current_key is not None:
            now = Caller(self.name, await self._current_key())
            for queue in queues:
                now.check(operation, queue)

    def may_see(self, queue: str) -> bool:
        """Return whether the caller may know the jobs of a queue."""
        return self.may("job", queue)

    def may_read(self, queue: str | None = None) -> bool:
        """Return whether the caller may read results, steps and log lines of a queue unmasked. For viewers
        and operators, values under names that look secret are masked."""
        return self.may("enqueue", queue) or self.may("claim", queue)

    def check_job(self, operation: str, job_id: str, queue: str) -> None:
        """Raise JobNotFound for a job of a queue that the caller may not see, Forbidden if it may see but not
        do this."""
        if not self.may(operation, queue) and not self.may_see(queue):
            raise JobNotFound(f"there is no job {job_id}")
        self.check(operation, queue)


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
    return proposed if _ID.match(proposed) else uuid4().hex


def bearer_token(header: str | None) -> str | None:
    """Return the token in an Authorization header; None for another scheme."""
    if header is None or header[: len(BEARER)].lower() != BEARER:
        return None
    return header[len(BEARER) :].strip()


def _load_keys_and_time(reader: Reader) -> tuple[list[StoredKey], int]:
    return all_keys(reader), reader.now()
