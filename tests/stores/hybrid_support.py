"""What tests of PostgreSQL accelerated by Redis share: the PostgreSQL server of the tests, a Redis beside it,
and what can happen to that one.

`make test-hybrid` runs all that goes by engines on this one, and lets Redis be killed, flushed or stopped
again and again meanwhile: FOREBAY_TEST_BESIDE says which.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from typing import Any, Final
from unittest.mock import patch
from urllib.parse import quote

import redis

from forebay.domain.history import Event
from forebay.stores.hybrid import engine as opening
from forebay.stores.hybrid.engine import HybridEngine
from forebay.stores.hybrid.reader import HybridReader
from forebay.stores.hybrid.store import ACTOR
from forebay.stores.redis.connection import Address
from forebay.testing.clock import ManualClock
from tests.clocks import FollowedClock
from tests.redis_server import RedisServer
from tests.stores import postgres_support
from tests.stores.postgres_sessions import KeepingEngine
from tests.stores.redis_support import rights

STOPPED_SECONDS: Final = 10.0
TROUBLE: Final = os.environ.get("FOREBAY_TEST_BESIDE", "up")
_numbers: Final = count(1)


class Redis(RedisServer):
    """A Redis whose user has the rights of the guide, and no others, also after a restart."""

    def start(self) -> None:
        super().start()
        with redis.Redis(port=self.port) as client:
            client.execute_command(*rights().replace("{forebay}", "{test-*}").split())

    def user_url(self, namespace: str) -> str:
        return f"redis://jobs:secret@127.0.0.1:{self.port}/0?namespace={namespace}"

    def forget_scripts(self) -> None:
        with redis.Redis(port=self.port) as client:
            client.script_flush()


class UntoldReader(HybridReader):
    """Leaves out that Redis has gone away and come back: tests that go by engines know no such notes."""

    def audit(self, *, limit: int = 100, after: int | None = None) -> list[tuple[int, Event]]:
        notes = super().audit(limit=limit, after=after)
        return [(number, event) for number, event in notes if event.actor != ACTOR]


class KeepingHybrid(HybridEngine):
    """An engine whose handles leave their sessions to those of the next test."""

    _opened = KeepingEngine._opened

    def reader(self) -> HybridReader:
        reader = super().reader()
        if TROUBLE != "up":
            reader.__class__ = UntoldReader
        return reader


@cache
def server() -> Redis:
    """The Redis of this test process."""
    started = Redis()
    atexit.register(started.close)
    if TROUBLE != "up":
        _trouble(started, TROUBLE)
    return started


def _trouble(beside: Redis, what: str) -> None:
    """Let something happen to a Redis again and again as long as this process lives."""
    troubles: dict[str, tuple[float, float, Callable[[], None], Callable[[], None]]] = {
        "killed": (1.0, 0.5, beside.kill, beside.start),
        "flushed": (0.05, 0.0, beside.flush, lambda: None),
        "stopped": (3.0, STOPPED_SECONDS, beside.freeze, beside.thaw),
    }
    before, between, strike, mend = troubles[what]
    is_over = threading.Event()

    def go_on() -> None:
        while not is_over.wait(before):
            strike()
            is_over.wait(between)
            mend()

    thread = threading.Thread(target=go_on, name=f"redis is {what}", daemon=True)
    thread.start()
    atexit.register(thread.join)
    atexit.register(is_over.set)


@cache
def admin() -> redis.Redis:
    """A client to look behind what Redis holds, and to spoil it."""
    client = redis.Redis(port=server().port)
    atexit.register(client.close)
    return client


def new_namespace() -> str:
    return f"test-{next(_numbers)}"


def beside(namespace: str, server_: Redis | None = None) -> Address:
    return Address(url=(server_ or server()).user_url(namespace).partition("?")[0], namespace=namespace)


def make_engine(
    clock: ManualClock, *, is_eager: bool = True, server: Redis | None = None, **options: Any
) -> HybridEngine:
    """An engine with an empty schema of its own; `postgres_support.release` gives it back. One that is eager
    goes by what Redis names wherever it can."""
    address = postgres_support.make_engine(clock).address
    return KeepingHybrid(address, beside(new_namespace(), server), is_eager=is_eager, **options)


def keys_of(engine: HybridEngine) -> str:
    """What all keys about a store begin with."""
    return engine._channel().removesuffix(":news")


def with_redis(url: str, server_: Redis | None = None) -> str:
    """The address of a store on PostgreSQL, accelerated."""
    own = quote((server_ or server()).user_url(new_namespace()), safe="")
    return f"{url}{'&' if '?' in url else '?'}redis={own}"


def new_url() -> str:
    """The address of a store that nobody has used before."""
    return with_redis(postgres_support.new_url())


@contextmanager
def lent_url() -> Iterator[str]:
    """The address of an empty store for the time of a test, on the server's own clock."""
    with postgres_support.lent_url() as url, patch.object(opening, "HybridEngine", KeepingHybrid):
        yield with_redis(url)


def follow(clock: FollowedClock, url: str) -> None:
    """Give the store at an address that `lent_url` has made the time of a test."""
    postgres_support.follow(clock, url.partition("&redis=")[0])


def hot(engine: HybridEngine, queue: str = "default") -> list[int]:
    """The seqs that Redis holds of a queue's order, in that order."""
    with suppress(redis.ConnectionError):
        found: Any = admin().zrange(f"{keys_of(engine)}:hot:{queue}", 0, -1)
        return [int(member) for member in found]
    return []
