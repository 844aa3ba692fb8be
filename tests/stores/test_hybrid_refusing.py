"""A Redis that is there and refuses: it counts as away until it does what it has refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import redis

from forebay.domain.history import EventKind
from forebay.domain.job import QueueName
from forebay.stores.hybrid import link
from forebay.stores.hybrid.engine import HybridEngine
from forebay.stores.hybrid.link import Link
from forebay.stores.hybrid.store import HybridStore
from forebay.stores.protocol import Want
from forebay.testing.clock import ManualClock
from tests.stores.hybrid_support import Redis, make_engine
from tests.stores.postgres_support import problems
from tests.stores.support import WORKER, new_job
from tests.worker.support import eventually

WANTS: Final = [Want(QueueName("default"), 5, None, frozenset(["task:t"]))]
TRIES: Final = 4


@pytest.fixture
def beside() -> Iterator[Redis]:
    """A Redis that may be harmed."""
    server = Redis()
    yield server
    server.close()


@pytest.fixture
def engine(clock: ManualClock, postgres: object, beside: Redis) -> Iterator[HybridEngine]:
    made = make_engine(clock, server=beside)
    yield made
    assert problems(made) == ()


@pytest.fixture
def store(engine: HybridEngine) -> Iterator[HybridStore]:
    store = engine.store()
    yield store
    store.close()


@pytest.fixture
def seeks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the next try is put off, after each that was in vain; here that is a moment."""
    monkeypatch.setattr(link, "REFUSED_SECONDS", 0.01)
    monkeypatch.setattr(link, "LONGEST_REFUSED_SECONDS", 0.05)
    seen: list[float] = []
    later = Link._seek_later

    def record(one: Link, exc: Exception) -> None:
        later(one, exc)
        seen.append(one._put_off)

    monkeypatch.setattr(Link, "_seek_later", record)
    return seen


HARM: Final = {
    "is full": "CONFIG SET maxmemory 1",
    "is a replica": "REPLICAOF 127.0.0.1 1",
    "lets nobody fill an order": "ACL SETUSER jobs -zadd",
    "lets nobody name places": "ACL SETUSER jobs -zpopmin",
    "lets nobody tell others": "ACL SETUSER jobs -publish",
    "has another password": "ACL SETUSER jobs resetpass >other",
}
MENDED: Final = {
    "is full": "CONFIG SET maxmemory 0",
    "is a replica": "REPLICAOF NO ONE",
    "lets nobody fill an order": "ACL SETUSER jobs +zadd",
    "lets nobody name places": "ACL SETUSER jobs +zpopmin",
    "lets nobody tell others": "ACL SETUSER jobs +publish",
    "has another password": "ACL SETUSER jobs resetpass >secret",
}


def tell(server: Redis, words: str) -> None:
    with redis.Redis(port=server.port) as client:
        client.execute_command(*words.split())


def work(store: HybridStore) -> None:
    """What makes use of all that Redis does."""
    store.insert([new_job()] * 5)
    assert len(store.exchange(WORKER, wants=WANTS, room=5).jobs) == 5


def until(store: HybridStore, is_so: Callable[[], bool]) -> None:
    def has_come() -> bool:
        work(store)
        return is_so()

    eventually(has_come)


@pytest.mark.shows("R-STORE-59", "R-MET-11")
@pytest.mark.parametrize("what", HARM)
def test_a_redis_that_refuses_is_away_once_and_back_when_it_does_it(
    store: HybridStore, engine: HybridEngine, beside: Redis, seeks: list[float], what: str
) -> None:
    store.insert([new_job()] * 20)
    work(store)
    tell(beside, HARM[what])
    if "password" in what:
        tell(beside, "CLIENT KILL TYPE normal SKIPME yes")
    until(store, lambda: len(seeks) >= TRIES)

    assert store._link.returns == 1
    assert said(engine) == ["Redis is away"]
    assert max(seeks) == 0.05

    tell(beside, MENDED[what])
    until(store, lambda: store._link.is_up)
    work(store)
    assert said(engine) == ["Redis is away", "Redis is back"]
    assert store._link.returns == 2


def said(engine: HybridEngine) -> list[str]:
    reader = engine.reader()
    words = [event.detail for _, event in reader.audit() if event.kind is EventKind.NOTE]
    reader.close()
    return [" ".join(one.replace(",", "").replace(":", "").split()[:3]) for one in reversed(words)]


@pytest.mark.shows("R-MET-11")
def test_the_gauge_says_so_too(engine: HybridEngine, beside: Redis, seeks: list[float]) -> None:
    reader = engine.reader()
    assert reader.vitals().redis_fallback is False
    tell(beside, HARM["is full"])

    def shown() -> Any:
        return reader.vitals().redis_fallback

    assert [shown() for _ in range(3)] == [True] * 3
    eventually(lambda: shown() and len(seeks) >= TRIES)
    tell(beside, MENDED["is full"])
    eventually(lambda: not shown())
    reader.close()


def test_a_handle_that_is_opened_where_redis_refuses_is_away_from_the_beginning(
    engine: HybridEngine, beside: Redis
) -> None:
    tell(beside, HARM["is a replica"])
    store = engine.store()

    assert not store._link.is_up
    assert store._link.returns == 0
    store.close()


def test_a_refusal_of_which_no_try_knows_is_met_less_and_less_often(
    store: HybridStore, monkeypatch: pytest.MonkeyPatch, seeks: list[float]
) -> None:
    monkeypatch.setattr(link, "LONGEST_REFUSED_SECONDS", 600.0)
    beside, put_off = store._link, []
    for _ in range(4):
        eventually(lambda: beside.is_up)
        assert beside.command("INCR", "a key of somebody else") is None
        put_off.append(beside._put_off)

    assert put_off == [0.01, 0.02, 0.04, 0.08]


def test_old_refusals_are_forgotten_by_who_was_there_for_a_good_while(
    store: HybridStore, beside: Redis, monkeypatch: pytest.MonkeyPatch, seeks: list[float]
) -> None:
    monkeypatch.setattr(link, "LONGEST_REFUSED_SECONDS", 600.0)
    one = store._link
    one.command("INCR", "a key of somebody else")
    eventually(lambda: one.is_up)
    before = one._put_off
    one._is_back_at -= 601

    beside.kill()
    eventually(lambda: one.command("PING") is None)

    assert (before, one._put_off) == (0.01, 0.0)


def test_trying_leaves_nothing_behind(store: HybridStore, engine: HybridEngine, beside: Redis) -> None:
    assert store._link.is_of_use()

    with redis.Redis(port=beside.port) as client:
        eventually(lambda: list(client.scan_iter()) == [])
