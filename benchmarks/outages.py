"""What can happen to a PostgreSQL server while programs use it: sessions end, it restarts, it crashes.

Shared by `storm.py` and `kill.py`, which start a server of their own for it.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import psycopg

from forebay.errors import StoreUnavailable
from tests.servers import Postgres

T = TypeVar("T")

# Nothing that was accepted may be lost to a crash.
DURABLE: Final = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
SHORTEST_SECONDS: Final = 0.2
LONGEST_SECONDS: Final = 3.0
PATIENCE_SECONDS: Final = 60.0
RESTARTS: Final = {"RESTART": signal.SIGINT, "CRASH": signal.SIGQUIT}
SESSIONS: Final = "SESSIONS"
KINDS: Final = (SESSIONS, *RESTARTS)

_SESSIONS: Final = "from pg_stat_activity where application_name like 'forebay%'"


class Outages:
    """Strikes one server, and brings it back after a while."""

    def __init__(self, server: Postgres, dice: random.Random) -> None:
        self._server = server
        self._dice = dice
        self._back_at: float | None = None

    def strike(self, kind: str) -> None:
        """Let this happen now, unless the server is away already."""
        if self._back_at is not None:
            return
        if kind == SESSIONS:
            end_sessions(self._server.url(), self._dice.choice((0.3, 1.0)))
        else:
            self._server.stop(RESTARTS[kind])
            self._back_at = time.monotonic() + self._dice.uniform(SHORTEST_SECONDS, LONGEST_SECONDS)

    def look(self, *, is_over: bool = False) -> None:
        """Start the server again when its time has come. From the thread that has started it first: it
        ends with that one."""
        if self._back_at is not None and (is_over or time.monotonic() >= self._back_at):
            self._server.start()
            self._back_at = None


@contextmanager
def server_of_our_own() -> Iterator[Postgres]:
    """A server that may be struck, and keeps what it has accepted."""
    server = Postgres(**DURABLE)
    try:
        yield server
    finally:
        server.close()


def end_sessions(url: str, share: float) -> None:
    """End about this share of the sessions of all stores, as an administrator would."""
    ask(url, f"select pg_terminate_backend(pid) {_SESSIONS} and random() < {share}")


def sessions_left(url: str) -> int:
    """How many sessions there are after everybody has gone; a server takes a moment to notice."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while (left := ask(url, f"select count(*) {_SESSIONS}")[0][0]) and time.monotonic() < ends:
        time.sleep(0.05)
    return int(left)


def deadlocks(url: str) -> int:
    """How many there were in this database."""
    return int(ask(url, "select deadlocks from pg_stat_database where datname = current_database()")[0][0])


def ask(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()


def patiently(call: Callable[[], T]) -> T:
    """The answer of a call, asked for until the store is there."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return call()
        except StoreUnavailable:
            if time.monotonic() > ends:
                raise
            time.sleep(0.05)
