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
from forebay.domain.job import NOTICES
from forebay.domain.limits import Limit
from forebay.errors import Forbidden, JobNotFound, StoreError, StoreUnavailable, Unauthenticated
from forebay.service.keys import Kept, all_keys, digest_of, parse_token, save
from forebay.service.rates import Rates, Usage
from forebay.service.sessions import SessionCache, ShownSession
from forebay.stores.protocol import Reader, Store

T = TypeVar("T")

# A key that was revoked opens nothing any more after so many seconds, on every server.
SEEN_SECONDS: Final = 5.0
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
_ANYBODY: Final = frozenset(Role)

# Which roles an operation asks for, by the name of its handler: one of them is enough. An operation that is
# not here is nobody's.
NEEDS: Final[Mapping[str, frozenset[Role]]] = {
    # Producers
    "enqueue": _PRODUCERS,
    "enqueue_many": _PRODUCERS,
    "wait": _PRODUCERS | _VIEWERS,
    "result": _PRODUCERS | _VIEWERS,
    "cancel": _PRODUCERS | _OPERATORS,
    "amend": _PRODUCERS | _OPERATORS,
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
    **dict.fromkeys(("session", "begin_session", "end_session"), _ANYBODY),
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
            "dead",
            "failure_groups",
            "ramps",
            "ramp",
            "schedules",
            "schedule",
            "preview_schedule",
            "graph",
            "stream",
            "firings",
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
            "start_ramp",
            "pause_ramp",
            "resume_ramp",
            "stop_ramp",
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
    "duty": _CONSUMERS,
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
        key_now: Callable[[], Awaitable[ApiKey]] | None = None,
        *,
        has_token: bool = True,
        usage: Usage | None = None,
    ) -> None:
        self.name = name
        self.key = key
        self.has_token: bool = key is not None and has_token
        self.request = request
        self.headers: Mapping[str, str] = headers or {}
        self._key_now = key_now
        self.usage = usage

    @property
    def actor(self) -> str:
        """What the audit log calls them."""
        return f"{self.name}#{self.request}" if self.request else self.name

    def waiting(self, group: Hashable = None) -> AbstractContextManager[None]:
        """A place among the waiting requests of this client, within its quota; raises TooManyRequests."""
        return nullcontext() if self.usage is None else self.usage.waiting(group)

    def streaming(self, group: Hashable = None) -> AbstractContextManager[None]:
        """The same for a stream."""
        return nullcontext() if self.usage is None else self.usage.streaming(group)

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

    def spend(self, sent: bytes) -> None:
        """Count a request or an answer."""
        if self.usage is not None:
            self.usage.spend(len(sent))

    def may(self, operation: str, queue: str | None = None) -> bool:
        """Whether they may do this to a queue, or to what belongs to none."""
        needed = NEEDS.get(operation)
        if needed is None or self.key is None:
            return needed is not None
        if queue == NOTICES and needed.isdisjoint(_VIEWERS):
            # A forged delivery is sent under the channel's signature, and a claimed one never is. So every
            # change there is for administrators, who may write channels and read their secrets.
            needed, queue = _ADMINS, None
        return self.key.may(needed, queue)

    def may_everywhere(self, operation: str) -> bool:
        """Whether they may do this to a job of any queue, deliveries of alerts among them. What needs a lease
        is not asked about those: nobody else gets one of a delivery, and this stands before every ack."""
        return self.may(operation) and (NEEDS[operation] == _CONSUMERS or self.may(operation, NOTICES))

    def check(self, operation: str, queue: str | None = None) -> None:
        """Raise Forbidden unless they may."""
        if not self.may(operation, queue):
            raise self._forbidden(operation, f" for queue {queue}" if queue else " for all queues")

    def check_somewhere(self, operation: str) -> None:
        """Raise Forbidden if they may do this to no queue at all: that can be said before it is known which
        one they mean."""
        if self.key is not None and not self.key.has(NEEDS.get(operation, ())):
            raise self._forbidden(operation, "")

    def _forbidden(self, operation: str, where: str) -> Forbidden:
        if where.endswith(f" {NOTICES}") and self.key is not None:
            return Forbidden(
                f"{self.name} may not {operation}: the queue {NOTICES} is for deliveries of alerts, and that "
                "needs the role admin for all queues"
            )
        roles = " or ".join(sorted(NEEDS.get(operation, ("nobody",))))
        return Forbidden(f"{self.name} may not {operation}: that needs the role {roles}{where}")

    async def check_still(self, operation: str = "", *queues: str) -> None:
        """The same after a long wait, in which their key may have changed: raises Unauthenticated for one
        that holds no longer, Forbidden for one that does not allow this to these queues any more."""
        if self._key_now is not None:
            now = Caller(self.name, await self._key_now())
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


class Admits(Protocol):
    """Says who asks."""

    @property
    def is_open(self) -> bool:
        """Whether nobody has to show a key."""
        ...

    async def caller(
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

    def visit(self, address: str) -> None:
        """Count a request that needs no key; raises TooManyRequests."""
        ...


class ReadsAndWrites(Protocol):
    """What a guard needs of the store: calls on threads of their own that coroutines can await."""

    def holding(self, call: Callable[[Reader], T]) -> Awaitable[T]: ...

    def write(self, call: Callable[[Store], T]) -> Awaitable[T]: ...


class User(NamedTuple):
    """A name for the audit log, and what it may do."""

    name: str
    key: ApiKey


class Guard:
    """Lets in who shows a key that holds. All keys are read together and believed for `SEEN_SECONDS`.

    So an unknown name costs the store nothing, however many are tried. When the store is away nobody is let
    in after that time: a key may have been revoked, and there would be nothing to do for its holder.
    """

    is_open = False

    def __init__(
        self,
        desk: ReadsAndWrites,
        clock: Clock,
        rates: Rates,
        open_rate: Limit | None = OPEN_RATE,
        sessions: SessionCache | None = None,
    ) -> None:
        self._desk = desk
        self._sessions = sessions or SessionCache(desk, clock)
        self._clock = clock
        self._rates = rates
        self._open_rate = open_rate
        self._kept: dict[str, Kept] = {}
        self._seen_at: float | None = None
        self._ahead_ms = 0  # how far the store's clock is ahead of ours
        self._used: set[str] = set()
        self._is_away = False
        self._reading = asyncio.Lock()

    async def caller(
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
        await self._look()
        user = await self._user(token, certificate, session)
        if user is None:
            # Guessing is slowed down by address; nobody guesses 256 bits, but trying costs us as well.
            self._rates.take(f"stranger@{address}")
            raise Unauthenticated(_NO_KEY)
        if token is None and session is not None and not session.is_background:
            await self._sessions.use(session.id, self._now())
        name, key = user
        allowance = self._rates.take(name, key.limit)
        usage = self._rates.usage(name, key.quota)
        if key.is_news_that_used(self._now()):
            self._used.add(name)
        headers = None if allowance is None else allowance.headers()
        key_now = partial(self._key_now, token, certificate, session)
        has_token = token is not None or session is not None
        return Caller(name, key, request, headers, key_now, has_token=has_token, usage=usage)

    def visit(self, address: str) -> None:
        if self._open_rate is not None:
            self._rates.take(f"open@{address}", self._open_rate)

    async def _key_now(
        self, token: str | None, certificate: str | None, session: ShownSession | None
    ) -> ApiKey:
        await self._look()
        user = await self._user(token, certificate, session)
        if user is None:
            raise Unauthenticated(_NO_KEY)
        return user.key

    async def _user(
        self, token: str | None, certificate: str | None, session: ShownSession | None
    ) -> User | None:
        if token is not None or session is None:
            key = self._key_of(token, certificate)
            return None if key is None else User(key.name, key)
        found, now = await self._sessions.find(session.id), self._now()
        if found is None or not found.is_active(now):
            return None
        kept = self._kept.get(found.name)
        key = found.key(None if kept is None else kept.key, now)
        return None if key is None else User(found.name, key)

    def _key_of(self, token: str | None, certificate: str | None) -> ApiKey | None:
        if token is None and certificate is not None:
            kept = self._kept.get(certificate)
            return kept.key if kept and kept.key.state(self._now()) is KeyState.ACTIVE else None
        name, secret = parse_token(token or "")
        digest = digest_of(secret)
        kept = self._kept.get(name)
        found = kept.key.digests(self._now()) if kept else ()
        # Each is compared in the same time, wherever the first difference is; one that no key has stands in
        # for those that are not there.
        matches = [hmac.compare_digest(digest, one) for one in (*found, "0" * 64)]
        return kept.key if kept and any(matches) else None

    def _now(self) -> int:
        return self._clock.now_ms() + self._ahead_ms

    async def _look(self) -> None:
        if self._is_fresh():
            return
        async with self._reading:
            if self._is_fresh():  # somebody else has looked while we waited
                return
            at = self._clock.monotonic()
            kept, now = await self._read()
            self._kept = {one.key.name: one for one in kept}
            self._ahead_ms = now - self._clock.now_ms()
            self._seen_at = at
        await self._tell_used()

    async def _read(self) -> tuple[list[Kept], int]:
        try:
            found = await self._desk.holding(_look_at)
        except StoreError as exc:
            # The caller may be a stranger, who is told nothing of the store's address. The log is told once.
            if not self._is_away:
                logger.error("no key can be checked: %s", exc)
            self._is_away = True
            raise StoreUnavailable("the store does not answer, so no key can be checked") from exc
        self._is_away = False
        return found

    def _is_fresh(self) -> bool:
        return self._seen_at is not None and self._clock.monotonic() - self._seen_at < SEEN_SECONDS

    async def _tell_used(self) -> None:
        """Write down which keys were used. Who was faster has changed the key, and tells it the next time."""
        used, self._used = self._used, set()
        for name in used:
            kept = self._kept.get(name)
            if kept is not None and kept.key.is_news_that_used(self._now()):
                told = Kept(kept.key.used(self._now()), kept.revision)
                await self._desk.write(partial(save, kept=told, event=None))


class OpenDoor:
    """Lets everybody in as an administrator: for a server that only this machine can reach."""

    is_open = True

    def __init__(self, rates: Rates, open_rate: Limit | None = OPEN_RATE) -> None:
        self._rates = rates
        self._open_rate = open_rate

    def visit(self, address: str) -> None:
        if self._open_rate is not None:
            self._rates.take(f"open@{address}", self._open_rate)

    async def caller(
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


def request_id(asked: str) -> str:
    """The id under which a request is known: the one that its client has given it, or a new one."""
    return asked if _ID.match(asked) else uuid4().hex


def bearer(header: str | None) -> str | None:
    """The token in an Authorization header; None where there is none of this kind."""
    if header is None or header[: len(BEARER)].lower() != BEARER:
        return None
    return header[len(BEARER) :].strip()


def _look_at(reader: Reader) -> tuple[list[Kept], int]:
    return all_keys(reader), reader.now()
