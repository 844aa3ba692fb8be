"""What can happen to a server while programs use it: sessions end, it restarts, it crashes.

Shared by `kill.py` and `evidence/soak.py`, which start a PostgreSQL or Redis server of their own for it;
`evidence/crowd.py` only starts one.
"""

from __future__ import annotations

import argparse
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import psycopg
import redis

from forebay.errors import StoreUnavailable
from tests.redis_server import RedisServer
from tests.servers import Postgres

Server = Postgres | RedisServer
T = TypeVar("T")

# What `server_of_our_own` takes for each engine.
ENGINES: Final = {"sqlite": None, "postgres": "postgres", "redis": "redis"}
# Nothing that was accepted may be lost to a crash.
DURABLE: Final = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
DURABLE_REDIS: Final = {"appendonly": "yes", "appendfsync": "always"}
SHORTEST_SECONDS: Final = 0.2
LONGEST_SECONDS: Final = 3.0
PATIENCE_SECONDS: Final = 60.0
SESSIONS: Final = "SESSIONS"
CRASH: Final = "CRASH"
KINDS: Final = (SESSIONS, "RESTART", CRASH)

_SESSIONS: Final = "from pg_stat_activity where application_name like 'forebay%'"


class Outages:
    """Strikes one server, and brings it back after a while."""

    def __init__(self, server: Server, dice: random.Random) -> None:
        self._server = server
        self._dice = dice
        self._back_at: float | None = None

    def strike(self, kind: str) -> None:
        """Let this happen now, unless the server is away already."""
        if self._back_at is not None:
            return
        if kind == SESSIONS:
            end_sessions(self._server, self._dice.choice((0.3, 1.0)), self._dice)
        else:
            stop(self._server, is_crash=kind == CRASH)
            self._back_at = time.monotonic() + self._dice.uniform(SHORTEST_SECONDS, LONGEST_SECONDS)

    def look(self, *, is_over: bool = False) -> None:
        """Start the server again when its time has come. From the thread that has started it first: it
        ends with that one."""
        if self._back_at is not None and (is_over or time.monotonic() >= self._back_at):
            self._server.start()
            self._back_at = None


def add_servers(options: argparse._ActionsContainer) -> None:
    """The options that name a server; `server_of_our_own` takes what was chosen as `server`."""
    for name, words in (("postgres", "PostgreSQL"), ("redis", "Redis")):
        options.add_argument(
            f"--{name}",
            dest="server",
            action="store_const",
            const=name,
            help=f"on a {words} server of its own",
        )


@contextmanager
def server_of_our_own(name: str | None) -> Iterator[Server | None]:
    """A server that may be struck, and keeps what it has accepted; none without a name."""
    if name is None:
        yield None
        return
    server = Postgres(**DURABLE) if name == "postgres" else RedisServer(**DURABLE_REDIS)
    try:
        yield server
    finally:
        server.close()


def url_of(server: Server) -> str:
    """The address of a store there that keeps every job for the comparison."""
    return server.url() if isinstance(server, Postgres) else f"{server.url()}?max_finished=0"


def stop(server: Server, *, is_crash: bool) -> None:
    if not is_crash:
        server.stop()
    elif isinstance(server, Postgres):
        server.stop(signal.SIGQUIT)
    else:
        server.stop(signal.SIGKILL)


def end_sessions(server: Server, share: float, dice: random.Random) -> None:
    """End about this share of the sessions of all stores, as an administrator would."""
    if isinstance(server, Postgres):
        ask(server.url(), f"select pg_terminate_backend(pid) {_SESSIONS} and random() < {share}")
        return
    with redis.Redis(port=server.port) as admin:
        for one in clients(admin):
            if dice.random() < share:
                admin.client_kill_filter(_id=one)


def clients(admin: redis.Redis) -> list[str]:
    """The numbers of all connections but this one."""
    own = admin.client_id()
    return [one["id"] for one in admin.client_list() if int(one["id"]) != own]


def sessions_left(server: Server) -> int:
    """How many sessions there are after all clients have gone; a server takes a moment to notice."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while (left := sessions(server)) and time.monotonic() < ends:
        time.sleep(0.05)
    return left


def sessions(server: Server) -> int:
    if isinstance(server, Postgres):
        return int(ask(server.url(), f"select count(*) {_SESSIONS}")[0][0])
    with redis.Redis(port=server.port) as admin:
        return len(clients(admin))


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
