"""Who asks, and what they may do. Free of transport: HTTP and gRPC hand in what a client has shown.

A server has one `Guard`. For each request it does

    caller = await guard.caller(token, address, request_id)   # Unauthenticated: 401; TooManyRequests: 429
    caller.check("enqueue", queue)                            # Forbidden: 403
    headers |= caller.headers                                 # X-RateLimit-*

and hands `caller.actor` to whatever writes to the audit log. What is about one job asks `caller.check_job`
with the queue of that job, which answers as if there were none to who may not see that queue: nobody shall
learn which ids it has.
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
from forebay.domain.access import ApiKey, KeyState, Role
from forebay.domain.job import ALERT_QUEUE
from forebay.domain.limits import Limit
from forebay.errors import Forbidden, JobNotFound, StoreError, StoreUnavailable, Unauthenticated
from forebay.service.api_keys import StoredKey, all_keys, digest_of, parse_token, save_key
from forebay.service.rate_limits import ClientRateLimiter, ClientUsage
from forebay.service.sessions import SessionCache, ShownSession
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store

T = TypeVar("T")

# A key that was revoked opens nothing any more after so many seconds, on every server.
KEY_CACHE_SECONDS: Final = 5.0
BEARER: Final = "bearer "
# For what is answered without a key, such as health, of each address.
OPEN_RATE: Final = Limit(scope="global", rate=100, burst=200)
_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}\Z")
_NO_KEY: Final = "show an API key that holds: Authorization: Bearer fbk_..."

_PRODUCERS: Final = frozenset({Role.PRODUCE})
_CONSUMERS: Final = frozenset({Role.CONSUME})
_VIEWERS: Final = frozenset({Role.VIEW})
_OPERATORS: Final = frozenset({Role.OPERATE})
_ADMINS: Final = frozenset({Role.ADMIN})
_ALL_ROLES: Final = frozenset(Role)

# Which roles an operation asks for, by the name of its handler: one of them is enough. An operation that is
# not here is nobody's.
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
    # Everybody who has to do with a job
    "job": _PRODUCERS | _CONSUMERS | _VIEWERS,
    "queue": _PRODUCERS | _CONSUMERS | _VIEWERS,
    # Who they are
    **dict.fromkeys(("session", "begin_session", "end_session"), _ALL_ROLES),
    # Who looks
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
    # Operators: what is there stops, goes on, goes or comes back
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
    # Admins: what is there is another one afterwards
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
    # Workers: what they do by the clock
    "maintenance": _CONSUMERS,
}


logger: logging.Logger = logging.getLogger(__name__)


class Caller:
    """Somebody who has asked for something; `key` is None where everybody is let in. Without `has_token` they
    have shown none: somebody else says that they may do what such a key allows."""

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
        """What the audit log calls them."""
        return f"{self.name}#{self.request}" if self.request else self.name

    def reserve_wait(self, group: Hashable = None) -> AbstractContextManager[None]:
        """A place among the waiting requests of this client, within its quota; raises TooManyRequests."""
        return nullcontext() if self.usage is None else self.usage.reserve_wait(group)

    def reserve_stream(self, group: Hashable = None) -> AbstractContextManager[None]:
        """The same for a stream."""
        return nullcontext() if self.usage is None else self.usage.reserve_stream(group)

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Count a large request as under way while the block lasts; raises TooManyRequests."""
        if self.usage is None:
            yield
            return
        self.usage.hold_bytes(size)
        try:
            yield
        finally:
            self.usage.release_bytes(size)

    def spend(self, data: bytes) -> None:
        """Count a request or an answer."""
        if self.usage is not None:
            self.usage.spend(len(data))

    def may(self, operation: str, queue: str | None = None) -> bool:
        """Whether they may do this to a queue, or to what belongs to none."""
        needed = REQUIRED_ROLES.get(operation)
        if needed is None or self.key is None:
            return needed is not None
        if queue == ALERT_QUEUE and needed.isdisjoint(_VIEWERS):
            # A forged delivery is sent under the channel's signature, and a claimed one never is. So every
            # change there is for administrators, who may write channels and read their secrets.
            needed, queue = _ADMINS, None
        return self.key.may(needed, queue)

    def may_in_all_queues(self, operation: str) -> bool:
        """Whether they may do this to a job of any queue, deliveries of alerts among them. What needs a lease
        is not asked about those: nobody else gets one of a delivery, and this stands before every ack."""
        return self.may(operation) and (
            REQUIRED_ROLES[operation] == _CONSUMERS or self.may(operation, ALERT_QUEUE)
        )

    def check(self, operation: str, queue: str | None = None) -> None:
        """Raise Forbidden unless they may."""
        if not self.may(operation, queue):
            raise self._forbidden_error(operation, f" for queue {queue}" if queue else " for all queues")

    def check_any_queue(self, operation: str) -> None:
        """Raise Forbidden if they may do this to no queue at all: that can be said before it is known which
        one they mean."""
        if self.key is not None and not self.key.has(REQUIRED_ROLES.get(operation, ())):
            raise self._forbidden_error(operation, "")

    def _forbidden_error(self, operation: str, scope_text: str) -> Forbidden:
        if scope_text.endswith(f" {ALERT_QUEUE}") and self.key is not None:
            return Forbidden(
                f"{self.name} may not {operation}: the queue {ALERT_QUEUE} is for deliveries of "
                f"alerts, and that "
                "needs the role admin for all queues"
            )
        roles = " or ".join(sorted(REQUIRED_ROLES.get(operation, ("nobody",))))
        return Forbidden(f"{self.name} may not {operation}: that needs the role {roles}{scope_text}")

    async def recheck(self, operation: str = "", *queues: str) -> None:
        """The same after a long wait, in which their key may have changed: raises Unauthenticated for one
        that holds no longer, Forbidden for one that does not allow this to these queues any more."""
        if self._current_key is not None:
            now = Caller(self.name, await self._current_key())
            for queue in queues:
                now.check(operation, queue)

    def may_see(self, queue: str) -> bool:
        """Whether they may know which jobs a queue has."""
        return self.may("job", queue)

    def may_read(self, queue: str | None = None) -> bool:
        """Whether they may read results, steps and log lines of a queue as they are. For others, who only
        look or operate, what stands under names that look secret is masked."""
        return self.may("enqueue", queue) or self.may("claim", queue)

    def check_job(self, operation: str, job_id: str, queue: str) -> None:
        """Raise JobNotFound for a job of a queue that they may not see, Forbidden for another deed."""
        if not self.may(operation, queue) and not self.may_see(queue):
            raise JobNotFound(f"there is no job {job_id}")
        self.check(operation, queue)


class Authenticator(Protocol):
    """Says who asks."""

    @property
    def is_open(self) -> bool:
        """Whether nobody has to show a key."""
        ...

    async def authenticate(
        self,
        token: str | None,
        address: str,
        request: str = "",
        certificate: str | None = None,
        session: ShownSession | None = None,
    ) -> Caller:
        """The caller, by its token, its session or the common name of its certificate, the first that is
        shown."""
        ...

    def count_open_request(self, address: str) -> None:
        """Count a request that needs no key; raises TooManyRequests."""
        ...


class AuthStore(Protocol):
    """What a guard needs of the store: calls on threads of their own that coroutines can await."""

    def read_fast(self, call: Callable[[Reader], T]) -> Awaitable[T]: ...

    def write(self, call: Callable[[Store], T]) -> Awaitable[T]: ...


class User(NamedTuple):
    """A name for the audit log, and what it may do."""

    name: str
    key: ApiKey


class KeyAuthenticator:
    """Lets in who shows a key that holds. All keys are read together and believed for `SEEN_SECONDS`.

    So an unknown name costs the store nothing, however many are tried. When the store is away nobody is let
    in after that time: a key may have been revoked, and there would be nothing to do for its holder.
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
        self._clock_offset_ms = 0  # how far the store's clock is ahead of ours
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
        """Who shows this token. Raises Unauthenticated for one that is missing, wrong, over or revoked, with
        the same words for each, and TooManyRequests for one that comes too often. Without a token a session
        counts, and without both a certificate stands for the key of its common name."""
        await self._refresh_keys()
        user = await self._find_user(token, certificate, session)
        if user is None:
            # Guessing is slowed down by address; nobody guesses 256 bits, but trying costs us as well.
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
        found, now = await self._sessions.find(session.id), self._now()
        if found is None or not found.is_active(now):
            return None
        kept = self._stored_keys.get(found.name)
        key = found.key(None if kept is None else kept.key, now)
        return None if key is None else User(found.name, key)

    def _find_key(self, token: str | None, certificate: str | None) -> ApiKey | None:
        if token is None and certificate is not None:
            kept = self._stored_keys.get(certificate)
            return kept.key if kept and kept.key.state(self._now()) is KeyState.ACTIVE else None
        name, secret = parse_token(token or "")
        digest = digest_of(secret)
        kept = self._stored_keys.get(name)
        found = kept.key.digests(self._now()) if kept else ()
        # Each is compared in the same time, wherever the first difference is; one that no key has stands in
        # for those that are not there.
        matches = [hmac.compare_digest(digest, one) for one in (*found, "0" * 64)]
        return kept.key if kept and any(matches) else None

    def _now(self) -> int:
        return self._clock.now_ms() + self._clock_offset_ms

    async def _refresh_keys(self) -> None:
        if self._is_fresh():
            return
        async with self._load_lock:
            if self._is_fresh():  # somebody else has looked while we waited
                return
            at = self._clock.monotonic()
            kept, now = await self._load_keys()
            self._stored_keys = {one.key.name: one for one in kept}
            self._clock_offset_ms = now - self._clock.now_ms()
            self._loaded_at = at
        await self._record_used_keys()

    async def _load_keys(self) -> tuple[list[StoredKey], int]:
        try:
            found = await self._pool.read_fast(_load_keys_and_time)
        except StoreError as exc:
            # The caller may be a stranger, who is told nothing of the store's address. The log is told once.
            if not self._is_away:
                logger.error("no key can be checked: %s", exc)
            self._is_away = True
            raise StoreUnavailable("the store does not answer, so no key can be checked") from exc
        self._is_away = False
        return found

    def _is_fresh(self) -> bool:
        return self._loaded_at is not None and self._clock.monotonic() - self._loaded_at < KEY_CACHE_SECONDS

    async def _record_used_keys(self) -> None:
        """Write down which keys were used. Who was faster has changed the key, and tells it the next time."""
        used, self._used_keys = self._used_keys, set()
        for name in used:
            kept = self._stored_keys.get(name)
            if kept is not None and kept.key.is_use_due(self._now()):
                told = StoredKey(kept.key.mark_used(self._now()), kept.revision)
                await self._pool.write(partial(save_key, stored=told, event=None))


class OpenAccess:
    """Lets everybody in as an administrator: for a server that only this machine can reach."""

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
    """The id under which a request is known: the one that its client has given it, or a new one."""
    return proposed if _ID.match(proposed) else uuid4().hex


def bearer_token(header: str | None) -> str | None:
    """The token in an Authorization header; None where there is none of this kind."""
    if header is None or header[: len(BEARER)].lower() != BEARER:
        return None
    return header[len(BEARER) :].strip()


def _load_keys_and_time(reader: Reader) -> tuple[list[StoredKey], int]:
    return all_keys(reader), reader.now()
