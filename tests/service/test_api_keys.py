"""API keys as operators handle them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.domain.api_key import Grant, KeyState, Role
from forebay.domain.job_history import EventKind
from forebay.domain.stored_document import Document
from forebay.errors import ApiKeyNotFound, ConfigError, IllegalTransition
from forebay.service import api_keys as room
from forebay.service.api_keys import KIND, ApiKeyAdmin, all_keys, digest_of, parse_token
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.memory.engine import MemoryEngine
from forebay.testing.manual_clock import ManualClock

PRODUCE = [Grant(Role.PRODUCE, "mail")]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(now_ms=1_000)


@pytest.fixture
def engine(clock: ManualClock) -> MemoryEngine:
    return MemoryEngine(clock=clock)


@pytest.fixture
def store(engine: MemoryEngine) -> Store:
    return engine.store()


@pytest.fixture
def reader(engine: MemoryEngine) -> Iterator[Reader]:
    reader = engine.reader()
    yield reader
    reader.close()


@pytest.fixture
def keys(store: Store, reader: Reader) -> ApiKeyAdmin:
    return ApiKeyAdmin(store, reader, actor="ann")


def stored(reader: Reader) -> str:
    """All that the store has of keys."""
    return str(reader.documents(KIND)) + str(reader.audit())


def test_a_key_is_kept_without_its_secret(keys: ApiKeyAdmin, reader: Reader) -> None:
    key, token = keys.create("deploy", PRODUCE, lasts_ms=500, rate=9)

    name, secret = parse_token(token)
    assert (name, key.digest) == ("deploy", digest_of(secret))
    assert len(secret) == 43  # 256 bits
    assert keys.get("deploy") == key
    assert (key.created_at, key.expires_at, key.rate) == (1_000, 1_500, 9)
    assert secret not in stored(reader)


@pytest.mark.shows("R-SEC-12")
def test_the_actor_of_a_changed_key_is_told_in_the_audit_log(keys: ApiKeyAdmin, reader: Reader) -> None:
    keys.create("deploy", PRODUCE)
    keys.rotate("deploy", grace_ms=10)
    keys.revoke("deploy")

    recorded = [(event.kind, event.actor, event.detail) for _, event in reader.audit()[::-1]]
    assert recorded == [
        (EventKind.API_KEY_CHANGED, "ann", "created deploy"),
        (EventKind.API_KEY_CHANGED, "ann", "rotated deploy"),
        (EventKind.API_KEY_CHANGED, "ann", "revoked deploy"),
    ]
    assert reader.audit()[0][1].changes["revoked_at"] == (None, 1_000)


def test_a_rotated_key_has_another_secret(keys: ApiKeyAdmin) -> None:
    _, old = keys.create("deploy", PRODUCE)
    key, new = keys.rotate("deploy", grace_ms=10)

    assert key.digests(1_009) == (digest_of(parse_token(new)[1]), digest_of(parse_token(old)[1]))
    assert key.digests(1_010) == (digest_of(parse_token(new)[1]),)


def test_a_name_is_free_again_when_its_key_opens_nothing(keys: ApiKeyAdmin, clock: ManualClock) -> None:
    keys.create("deploy", PRODUCE, lasts_ms=500)
    with pytest.raises(IllegalTransition, match="already"):
        keys.create("deploy", PRODUCE)
    clock.advance(ms=500)

    key, _ = keys.create("deploy", PRODUCE)

    assert key.state(2_000) is KeyState.ACTIVE
    keys.revoke("deploy")
    assert keys.create("deploy", PRODUCE).key.revoked_at is None


def test_a_revoked_key_stays_revoked(keys: ApiKeyAdmin) -> None:
    keys.create("deploy", PRODUCE)
    keys.revoke("deploy")

    for change in (keys.rotate, keys.revoke):
        with pytest.raises(IllegalTransition, match="was revoked"):
            change("deploy")


def test_a_key_that_is_not_there(keys: ApiKeyAdmin) -> None:
    for call in (keys.get, keys.rotate, keys.revoke):
        with pytest.raises(ApiKeyNotFound, match="there is no key absent"):
            call("absent")


def test_two_who_change_a_key_at_once_both_have_their_way(
    keys: ApiKeyAdmin, store: Store, engine: MemoryEngine
) -> None:
    keys.create("deploy", PRODUCE)

    class Meanwhile:
        """A store where another writer is faster once."""

        def __init__(self) -> None:
            self.is_first = True

        def save_document(self, document: Document, **rest: object) -> bool:
            if self.is_first:
                self.is_first = False
                keys.rotate("deploy", grace_ms=99)
            return store.save_document(document, **rest)  # type: ignore[arg-type]  # passed on as it is

    other = ApiKeyAdmin(Meanwhile(), engine.reader(), actor="bob")  # type: ignore[arg-type]  # it needs no more

    assert other.revoke("deploy").revoked_at == 1_000
    assert keys.get("deploy").digests(1_000) == ()


def test_a_wrong_name_makes_no_key(keys: ApiKeyAdmin, reader: Reader) -> None:
    with pytest.raises(ConfigError):
        keys.create("a b", PRODUCE)

    assert all_keys(reader) == []


def test_all_keys_are_found_page_by_page(
    keys: ApiKeyAdmin, store: Store, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "PAGE", 2)
    for name in "abcde":
        keys.create(name, PRODUCE)
    store.save_document(Document(kind=KIND, name="damaged", body="{"))

    assert [kept.key.name for kept in all_keys(reader)] == list("abcde")


@pytest.mark.parametrize("token", ["", "fbk_", "fbk_a", "fbk.a.b", "a.b", "xfbk_a.b", "Bearer fbk_a.b"])
def test_what_is_no_token_names_no_key(token: str) -> None:
    assert parse_token(token) == ("", "")


def test_a_name_may_have_dots() -> None:
    assert parse_token("fbk_a.b.c-_") == ("a.b", "c-_")
