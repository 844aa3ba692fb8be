"""Who is let in, and who tries to get in and is not."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from typing import TypeVar

import pytest

from forebay.domain.api_key import Grant, Role
from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.domain.stored_document import Document
from forebay.errors import Forbidden, StoreUnavailable, TooManyRequests, Unauthenticated
from forebay.service.api_keys import KIND, ApiKeyAdmin
from forebay.service.auth import KEY_CACHE_SECONDS, KeyAuthenticator, OpenAccess, bearer_token
from forebay.service.caller import Caller
from forebay.service.client_rates_and_quotas import ClientRateLimiter
from forebay.service.required_roles import REQUIRED_ROLES
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.memory.engine import MemoryEngine
from forebay.testing.manual_clock import ManualClock

T = TypeVar("T")
HERE = "10.0.0.1"
HOUR = 3_600


class FakePool:
    """A store as a guard asks it, which counts how often."""

    def __init__(self, engine: MemoryEngine) -> None:
        self._store, self._reader = engine.store(), engine.reader()
        self.looks = 0
        self.is_away = False

    async def read_fast(self, call: Callable[[Reader], T]) -> T:
        self.looks += 1
        await asyncio.sleep(0)
        if self.is_away:
            raise StoreUnavailable("away")
        return call(self._reader)

    async def write(self, call: Callable[[Store], T]) -> T:
        return call(self._store)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(now_ms=1_000)


@pytest.fixture
def engine(clock: ManualClock) -> MemoryEngine:
    return MemoryEngine(clock=clock)


@pytest.fixture
def pool(engine: MemoryEngine) -> FakePool:
    return FakePool(engine)


@pytest.fixture
def keys(engine: MemoryEngine) -> ApiKeyAdmin:
    return ApiKeyAdmin(engine.store(), engine.reader(), actor="ann")


@pytest.fixture
def guard(pool: FakePool, clock: ManualClock) -> KeyAuthenticator:
    return KeyAuthenticator(pool, clock, ClientRateLimiter(None, clock))


def come(guard: KeyAuthenticator, token: str | None, request: str = "") -> Caller:
    return asyncio.run(guard.authenticate(token, HERE, request))


def is_refused(guard: KeyAuthenticator, token: str | None) -> bool:
    """Whether they are turned away, with the same words whatever is wrong."""
    try:
        come(guard, token)
    except Unauthenticated as refused:
        return str(refused) == "show an API key that holds: Authorization: Bearer fbk_..."
    return False


def test_who_shows_a_key_is_let_in_under_its_name(guard: KeyAuthenticator, keys: ApiKeyAdmin) -> None:
    _, token = keys.create("deploy", [Grant(Role.PRODUCE, "mail-*")])

    caller = come(guard, token, "r1")

    assert (caller.name, caller.actor, caller.headers) == ("deploy", "deploy#r1", {})
    caller.check("enqueue", "mail-eu")
    assert caller.may_see("mail-eu")


def test_who_shows_something_else_is_not(guard: KeyAuthenticator, keys: ApiKeyAdmin) -> None:
    key, token = keys.create("deploy", [Grant(Role.ADMIN)])
    _, other = keys.create("other", [Grant(Role.VIEW)])
    name, _, secret = token.rpartition(".")
    tries = [
        None,
        "",
        "deploy",
        name,
        f"{name}.",
        token[:-1],
        token + "x",
        token.swapcase(),
        token.upper(),
        f"{name}.{other.rpartition('.')[2]}",
        f"fbk_other.{secret}",
        f"fbk_absent.{secret}",
        f"{name}.{key.digest}",
        f"fbk_.{secret}",
        f" {token}",
        f"{name}\0.{secret}",
        f"{name}.{'0' * 43}",
        "fbk_*." + secret,
        "fbk_deploy.\ud800",
    ]

    assert [one for one in tries if not is_refused(guard, one)] == []


def test_an_expired_key_opens_nothing_from_that_moment_on(
    guard: KeyAuthenticator, keys: ApiKeyAdmin, clock: ManualClock
) -> None:
    _, token = keys.create("deploy", [Grant(Role.VIEW)], lasts_ms=1_000)
    come(guard, token)
    clock.advance(ms=999)
    come(guard, token)
    clock.advance(ms=1)

    assert is_refused(guard, token)


def test_a_revoked_key_opens_nothing_after_seconds(
    guard: KeyAuthenticator, keys: ApiKeyAdmin, clock: ManualClock
) -> None:
    _, token = keys.create("deploy", [Grant(Role.VIEW)])
    come(guard, token)
    keys.revoke("deploy")
    clock.advance(seconds=KEY_CACHE_SECONDS)

    assert is_refused(guard, token)


def test_a_new_key_opens_within_the_same_time(
    guard: KeyAuthenticator, keys: ApiKeyAdmin, clock: ManualClock
) -> None:
    assert is_refused(guard, "fbk_deploy.x")
    _, token = keys.create("deploy", [Grant(Role.VIEW)])
    clock.advance(seconds=KEY_CACHE_SECONDS)

    assert come(guard, token).name == "deploy"


def test_the_old_secret_opens_for_its_grace(
    guard: KeyAuthenticator, keys: ApiKeyAdmin, clock: ManualClock
) -> None:
    _, old = keys.create("deploy", [Grant(Role.VIEW)])
    _, new = keys.rotate("deploy", grace_ms=60_000)

    assert come(guard, old).name == come(guard, new).name == "deploy"
    clock.advance(seconds=60)
    assert is_refused(guard, old)
    assert come(guard, new).name == "deploy"


def test_tries_cost_the_store_one_look_in_seconds(guard: KeyAuthenticator, pool: FakePool) -> None:
    async def many() -> None:
        tries = [guard.authenticate(f"fbk_{n}.x", HERE) for n in range(50)]
        await asyncio.gather(*tries, return_exceptions=True)

    asyncio.run(many())

    assert pool.looks == 1


def test_while_the_store_is_away_no_key_is_let_in_for_long(
    guard: KeyAuthenticator, pool: FakePool, keys: ApiKeyAdmin, clock: ManualClock
) -> None:
    _, token = keys.create("deploy", [Grant(Role.VIEW)])
    come(guard, token)
    pool.is_away = True
    clock.advance(seconds=KEY_CACHE_SECONDS)

    with pytest.raises(StoreUnavailable):
        come(guard, token)


def test_a_key_that_cannot_be_read_opens_nothing(
    guard: KeyAuthenticator, engine: MemoryEngine, keys: ApiKeyAdmin
) -> None:
    _, token = keys.create("deploy", [Grant(Role.VIEW)])
    engine.store().save_document(Document(kind=KIND, name="deploy", body="{}", revision=1))

    assert is_refused(guard, token)


def test_secrets_are_compared_in_constant_time(
    guard: KeyAuthenticator, keys: ApiKeyAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []
    real = hmac.compare_digest

    def watched(one: str, other: str) -> bool:
        compared.append(other)
        return real(one, other)

    key, token = keys.create("deploy", [Grant(Role.VIEW)])
    monkeypatch.setattr(hmac, "compare_digest", watched)
    come(guard, token)
    assert is_refused(guard, "fbk_absent.x")

    assert compared == [key.digest, "0" * 64, "0" * 64]


def test_when_a_key_was_last_used_is_known_to_the_hour(
    guard: KeyAuthenticator, keys: ApiKeyAdmin, clock: ManualClock
) -> None:
    _, token = keys.create("deploy", [Grant(Role.VIEW)])
    come(guard, token)
    assert keys.get("deploy").used_at is None
    clock.advance(seconds=KEY_CACHE_SECONDS)
    come(guard, token)

    assert keys.get("deploy").used_at == 1_000 + KEY_CACHE_SECONDS * 1_000
    clock.advance(seconds=60)
    come(guard, token)
    clock.advance(seconds=60)
    come(guard, token)
    assert keys.get("deploy").used_at == 1_000 + KEY_CACHE_SECONDS * 1_000
    assert come(guard, token).key is not None


def test_the_stores_clock_decides_when_a_key_is_over(pool: FakePool, keys: ApiKeyAdmin) -> None:
    _, token = keys.create("deploy", [Grant(Role.VIEW)], lasts_ms=1_000)
    slow = ManualClock(now_ms=0)

    caller = come(KeyAuthenticator(pool, slow, ClientRateLimiter(None, slow)), token)

    assert caller.name == "deploy"


@pytest.mark.parametrize(
    ("grant", "operation", "queue"),
    [
        ("produce:mail", "enqueue", "other"),
        ("produce:mail", "enqueue", "mail2"),
        ("produce:mail", "enqueue", "mail-eu"),
        ("produce:mail-*", "enqueue", "mail"),
        ("produce:mail", "enqueue", None),
        ("produce", "claim", "mail"),
        ("produce", "search", "mail"),
        ("consume", "enqueue", "mail"),
        ("consume", "cancel", "mail"),
        ("view", "enqueue", "mail"),
        ("view", "ack", "mail"),
        ("view", "pause_queue", "mail"),
        ("view", "audit", None),
        ("operate", "configure_queue", "mail"),
        ("operate", "keys", None),
        ("operate", "enqueue", "mail"),
        ("admin:mail", "configure_queue", "other"),
        ("admin:mail", "keys", None),
        ("admin", "no_such_operation", "mail"),
        ("admin", "", None),
    ],
)
def test_what_a_key_does_not_give_is_forbidden(
    guard: KeyAuthenticator, keys: ApiKeyAdmin, grant: str, operation: str, queue: str | None
) -> None:
    _, token = keys.create("deploy", [Grant.parse(grant)])
    caller = come(guard, token)

    with pytest.raises(Forbidden, match="deploy may not"):
        caller.check(operation, queue)


def test_an_admin_may_do_everything_there_is() -> None:
    caller = Caller("anonymous", None)

    assert all(caller.may(operation, queue) for operation in REQUIRED_ROLES for queue in ("mail", None))
    assert not caller.may("no_such_operation")


def test_who_comes_too_often_is_told_when_to_come_again(
    pool: FakePool, keys: ApiKeyAdmin, clock: ManualClock
) -> None:
    guard = KeyAuthenticator(pool, clock, ClientRateLimiter(Limit(scope="global", rate=1, burst=2), clock))
    _, usual = keys.create("usual", [Grant(Role.VIEW)])
    _, quick = keys.create("quick", [Grant(Role.VIEW)], rate=100)

    assert come(guard, usual).headers["X-RateLimit-Remaining"] == "1"
    come(guard, usual)
    with pytest.raises(TooManyRequests) as refused:
        come(guard, usual)
    assert refused.value.retry_after == 1
    assert come(guard, quick).headers["X-RateLimit-Limit"] == "200"


def test_who_guesses_is_slowed_down(pool: FakePool, clock: ManualClock) -> None:
    guard = KeyAuthenticator(pool, clock, ClientRateLimiter(Limit(scope="global", rate=1, burst=2), clock))

    assert [is_refused(guard, f"fbk_{n}.x") for n in range(2)] == [True, True]
    with pytest.raises(TooManyRequests):
        come(guard, "fbk_3.x")


def test_an_open_door_lets_all_callers_in(clock: ManualClock) -> None:
    door = OpenAccess(ClientRateLimiter(Limit(scope="global", rate=1), clock))

    caller = asyncio.run(door.authenticate("nonsense", "127.0.0.1", "r7"))

    assert (caller.actor, caller.may("keys")) == ("anonymous@127.0.0.1#r7", True)
    assert caller.headers["X-RateLimit-Limit"] == "2"


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (None, None),
        ("", None),
        ("Basic abc", None),
        ("Bearer", None),
        ("Bearer a.b", "a.b"),
        ("bearer  a.b ", "a.b"),
        ("Bearer ", ""),
    ],
)
def test_a_token_comes_as_a_bearer(header: str | None, token: str | None) -> None:
    assert bearer_token(header) == token
