"""Sessions in the store, and what servers know of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from threading import Event
from typing import TypeVar

import pytest

from forebay.clock import Clock
from forebay.domain.api_key import Grant
from forebay.domain.login_session import MINUTE_MS, LoginSession, SessionLimits
from forebay.domain.stored_document import Document
from forebay.errors import SessionNotFound, StoreUnavailable, Unauthenticated
from forebay.service.api_keys import ApiKeyAdmin, digest_of, parse_token
from forebay.service.auth import KeyAuthenticator
from forebay.service.browser_sessions import (
    KIND,
    MAX_PER_NAME,
    SESSION_CACHE_SECONDS,
    SessionAdmin,
    SessionCache,
    ShownSession,
    all_sessions,
)
from forebay.service.client_rates_and_quotas import ClientRateLimiter
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.memory.engine import MemoryEngine
from forebay.testing.manual_clock import ManualClock

T = TypeVar("T")
LIMITS = SessionLimits(idle_ms=10 * MINUTE_MS, lasts_ms=60 * MINUTE_MS)


class FakePool:
    """A store in the hands of one test. It counts reads, and may hold the next one up."""

    def __init__(self, store: Store, reader: Reader) -> None:
        self.store = store
        self.reader = reader
        self.reads = 0
        self.writes = 0
        self.read_barrier: asyncio.Event | None = None
        self.is_down = Event()

    async def read_fast(self, call: Callable[[Reader], T]) -> T:
        if self.is_down.is_set():
            raise StoreUnavailable("postgresql://secret-host is away")
        self.reads += 1
        answer = call(self.reader)
        if self.read_barrier is not None:
            await self.read_barrier.wait()
        return answer

    async def write(self, call: Callable[[Store], T]) -> T:
        self.writes += 1
        return call(self.store)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(now_ms=1_000)


@pytest.fixture
def pool(clock: ManualClock) -> Iterator[FakePool]:
    engine = MemoryEngine(clock=clock)
    reader = engine.reader()
    yield FakePool(engine.store(), reader)
    reader.close()


@pytest.fixture
def sessions(pool: FakePool) -> SessionAdmin:
    return SessionAdmin(pool.store, pool.reader, actor="ann")


def begun(sessions: SessionAdmin, clock: Clock, name: str = "oidc:ada", digest: str | None = None) -> str:
    """The id of a new session that may look."""
    grants = (Grant.parse("view"),)
    return sessions.begin(LoginSession.begin(name, clock.now_ms(), LIMITS, digest=digest, grants=grants))


def guard(pool: FakePool, clock: Clock) -> KeyAuthenticator:
    return KeyAuthenticator(pool, clock, ClientRateLimiter(None, clock))


def test_the_store_keeps_no_id_and_the_log_says_what_was_done(
    sessions: SessionAdmin, pool: FakePool, clock: ManualClock
) -> None:
    session_id = begun(sessions, clock)
    sessions.end(session_id)
    sessions.end("unknown")
    again = begun(sessions, clock)
    [kept] = sessions.list_active()
    sessions.revoke(kept.short)

    assert len(session_id) == 43  # 256 bits
    stored = str(pool.reader.documents(KIND)) + str(pool.reader.audit())
    assert session_id not in stored
    assert again not in stored
    short = digest_of(session_id)[:16]
    details = [event.detail for _, event in pool.reader.audit()][::-1]
    assert details[:2] == [f"began session {short} of oidc:ada", f"ended session {short} of oidc:ada"]
    assert details[-1] == f"revoked session {kept.short} of oidc:ada"
    assert all_sessions(pool.reader) == []


def test_sessions_are_revoked_by_id_by_name_or_all(sessions: SessionAdmin, clock: ManualClock) -> None:
    for name in ("oidc:ada", "oidc:ada", "ops", "other"):
        begun(sessions, clock, name)

    with pytest.raises(SessionNotFound, match="sessions list"):
        sessions.revoke("0" * 16)
    assert [kept.session.name for kept in sessions.revoke_all("oidc:ada")] == ["oidc:ada"] * 2
    assert {kept.session.name for kept in sessions.list_active()} == {"ops", "other"}
    assert len(sessions.revoke_all(None)) == 2
    assert sessions.list_active() == []


def test_a_login_removes_sessions_that_are_over_and_the_oldest_of_too_many(
    sessions: SessionAdmin, pool: FakePool, clock: ManualClock
) -> None:
    begun(sessions, clock, "over")
    clock.advance(seconds=10 * 60.0)
    first = begun(sessions, clock)
    clock.advance(seconds=1.0)
    for _ in range(MAX_PER_NAME):
        begun(sessions, clock)

    kept = all_sessions(pool.reader)
    assert len(kept) == MAX_PER_NAME
    assert {one.session.name for one in kept} == {"oidc:ada"}
    assert digest_of(first) not in [one.digest for one in kept]


def test_a_session_that_cannot_be_read_opens_nothing(pool: FakePool, clock: ManualClock) -> None:
    pool.store.save_document(Document(kind=KIND, name=digest_of("x"), body="{}"))

    async def ask() -> None:
        assert await SessionCache(pool, clock).find("x") is None

    asyncio.run(ask())
    assert all_sessions(pool.reader) == []


def test_a_session_lets_its_user_in_until_it_is_idle_for_too_long(
    sessions: SessionAdmin, pool: FakePool, clock: ManualClock
) -> None:
    shown = ShownSession(begun(sessions, clock))

    async def ask() -> None:
        door = guard(pool, clock)
        for _ in range(3):  # each use counts from anew
            clock.advance(seconds=9 * 60.0)
            caller = await door.authenticate(None, "here", "r1", session=shown)
            assert (caller.name, caller.actor, caller.has_token) == ("oidc:ada", "oidc:ada#r1", True)
            assert caller.may("queues")
            assert not caller.may("pause_queue", "mail")
        clock.advance(seconds=10 * 60.0)
        with pytest.raises(Unauthenticated):
            await door.authenticate(None, "here", session=shown)
        with pytest.raises(Unauthenticated):
            await caller.recheck()

    asyncio.run(ask())


def test_what_a_page_asks_by_itself_is_no_use(
    sessions: SessionAdmin, pool: FakePool, clock: ManualClock
) -> None:
    shown = ShownSession(begun(sessions, clock), is_background=True)

    async def ask() -> None:
        door = guard(pool, clock)
        clock.advance(seconds=9 * 60.0)
        await door.authenticate(None, "here", session=shown)
        clock.advance(seconds=60.0)
        with pytest.raises(Unauthenticated):
            await door.authenticate(None, "here", session=shown)

    asyncio.run(ask())
    assert pool.writes == 0


def test_no_use_prolongs_a_session_beyond_its_absolute_end(
    sessions: SessionAdmin, pool: FakePool, clock: ManualClock
) -> None:
    shown = ShownSession(begun(sessions, clock))

    async def ask() -> None:
        door = guard(pool, clock)
        for _ in range(11):
            clock.advance(seconds=5 * 60.0)
            await door.authenticate(None, "here", session=shown)
        clock.advance(seconds=5 * 60.0)
        with pytest.raises(Unauthenticated):
            await door.authenticate(None, "here", session=shown)

    asyncio.run(ask())


def test_the_use_of_a_session_is_known_to_all_servers_and_seldom_written(
    sessions: SessionAdmin, pool: FakePool, clock: ManualClock
) -> None:
    shown = ShownSession(begun(sessions, clock))

    async def ask() -> None:
        one, other = guard(pool, clock), guard(pool, clock)
        clock.advance(seconds=60.0)
        for _ in range(5):
            await one.authenticate(None, "here", session=shown)
        assert pool.writes == 1
        clock.advance(seconds=SESSION_CACHE_SECONDS)
        await other.authenticate(None, "here", session=shown)
        clock.advance(seconds=9.5 * 60.0)
        await other.authenticate(None, "here", session=shown)

    asyncio.run(ask())


def test_two_servers_that_save_a_use_at_the_same_time_go_on(
    sessions: SessionAdmin, pool: FakePool, clock: ManualClock
) -> None:
    shown = ShownSession(begun(sessions, clock))

    async def ask() -> None:
        doors = guard(pool, clock), guard(pool, clock)
        for door in doors:
            await door.authenticate(None, "here", session=shown)
        clock.advance(seconds=SESSION_CACHE_SECONDS - 1)
        for seconds in (9 * 60.0, 9 * 60.0):
            for door in doors:
                await door.authenticate(None, "here", session=ShownSession(shown.id, is_background=True))
            clock.advance(seconds=seconds)
            for door in doors:
                await door.authenticate(None, "here", session=shown)

    asyncio.run(ask())
    [kept] = all_sessions(pool.reader)
    assert kept.session.used_at == clock.now_ms()


def test_a_session_that_was_ended_opens_nothing_on_any_server_after_some_seconds(
    sessions: SessionAdmin, pool: FakePool, clock: ManualClock
) -> None:
    shown = ShownSession(begun(sessions, clock))

    async def ask() -> None:
        here, there = SessionCache(pool, clock), SessionCache(pool, clock)
        doors = [
            KeyAuthenticator(pool, clock, ClientRateLimiter(None, clock), sessions=cache)
            for cache in (here, there)
        ]
        for door in doors:
            await door.authenticate(None, "here", session=shown)
        sessions.end(shown.id)
        here.forget(shown.id)
        with pytest.raises(Unauthenticated):
            await doors[0].authenticate(None, "here", session=shown)
        clock.advance(seconds=SESSION_CACHE_SECONDS)
        with pytest.raises(Unauthenticated):
            await doors[1].authenticate(None, "here", session=shown)

    asyncio.run(ask())


def test_a_use_does_not_bring_an_ended_session_back(
    sessions: SessionAdmin, pool: FakePool, clock: ManualClock
) -> None:
    shown = ShownSession(begun(sessions, clock))

    async def ask() -> None:
        door = guard(pool, clock)
        clock.advance(seconds=120.0)
        await door.authenticate(None, "here", session=ShownSession(shown.id, is_background=True))
        sessions.end(shown.id)
        await door.authenticate(
            None, "here", session=shown
        )  # it believes what it has read, and tries to save
        assert pool.writes == 1
        with pytest.raises(Unauthenticated):
            await door.authenticate(None, "here", session=shown)

    asyncio.run(ask())
    assert all_sessions(pool.reader) == []


def test_a_read_from_before_the_end_does_not_bring_a_session_back(
    sessions: SessionAdmin, pool: FakePool, clock: ManualClock
) -> None:
    session_id = begun(sessions, clock)

    async def ask() -> None:
        cache = SessionCache(pool, clock)
        pool.read_barrier = asyncio.Event()
        reading = asyncio.ensure_future(cache.find(session_id))
        while not pool.reads:
            await asyncio.sleep(0)
        clock.advance(seconds=0.1)
        sessions.end(session_id)
        cache.forget(session_id)
        pool.read_barrier.set()
        assert await reading is None
        assert await cache.find(session_id) is None

    asyncio.run(ask())


def test_ids_that_are_asked_for_together_are_read_together(
    sessions: SessionAdmin, pool: FakePool, clock: ManualClock
) -> None:
    ids = [begun(sessions, clock) for _ in range(20)]

    async def ask() -> None:
        cache = SessionCache(pool, clock)
        pool.read_barrier = asyncio.Event()
        asking = [asyncio.ensure_future(cache.find(one)) for one in [*ids, "invented"]]
        while not pool.reads:
            await asyncio.sleep(0)
        pool.read_barrier.set()
        *found, invented = await asyncio.gather(*asking)
        assert all(found)
        assert invented is None

    asyncio.run(ask())
    assert pool.reads == 2


def test_a_store_that_is_away_is_not_named_and_the_next_request_asks_again(
    sessions: SessionAdmin, pool: FakePool, clock: ManualClock
) -> None:
    session_id = begun(sessions, clock)

    async def ask() -> None:
        cache = SessionCache(pool, clock)
        pool.is_down.set()
        with pytest.raises(StoreUnavailable, match="no session can be checked") as caught:
            await cache.find(session_id)
        assert "secret-host" not in str(caught.value)
        pool.is_down.clear()
        assert await cache.find(session_id) is not None

    asyncio.run(ask())


def test_a_session_ends_with_its_key(pool: FakePool, clock: ManualClock, sessions: SessionAdmin) -> None:
    keys = ApiKeyAdmin(pool.store, pool.reader, actor="ann")
    grants = [Grant.parse("operate")]

    def begin(token: str) -> ShownSession:
        return ShownSession(begun(sessions, clock, "ops", digest_of(parse_token(token)[1])))

    async def ask() -> None:
        door = guard(pool, clock)
        before = begin(keys.create("ops", grants).token)
        assert (await door.authenticate(None, "here", session=before)).may("pause_queue", "mail")
        after = begin(keys.rotate("ops").token)
        clock.advance(seconds=SESSION_CACHE_SECONDS)
        with pytest.raises(Unauthenticated):
            await door.authenticate(None, "here", session=before)
        await door.authenticate(None, "here", session=after)
        keys.revoke("ops")
        keys.create("ops", grants)  # the same name is another key
        clock.advance(seconds=SESSION_CACHE_SECONDS)
        with pytest.raises(Unauthenticated):
            await door.authenticate(None, "here", session=after)

    asyncio.run(ask())


def test_a_token_counts_before_a_session_and_an_id_is_no_token(
    sessions: SessionAdmin, pool: FakePool, clock: ManualClock
) -> None:
    session_id = begun(sessions, clock)

    async def ask() -> None:
        door = guard(pool, clock)
        with pytest.raises(Unauthenticated):
            await door.authenticate("fbk_no.key", "here", session=ShownSession(session_id))
        with pytest.raises(Unauthenticated):
            await door.authenticate(session_id, "here")

    asyncio.run(ask())
