"""Processor time, for comparisons on a machine that others use too: of this process and of its server."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import redis

Seconds = Callable[[], float]


def taken(url: str) -> Seconds:
    """What tells how much processor time this process and those who serve it have taken so far. The sessions
    of a PostgreSQL server are those that are open now, and have to be on this machine."""
    if url.startswith("postgresql:"):
        return _with(_of_sessions(url.partition("?")[0]))
    if url.startswith("redis:"):
        return _with(_of_redis(url.partition("?")[0]))
    return time.process_time


def _with(server: Seconds) -> Seconds:
    return lambda: time.process_time() + server()


def _of_sessions(url: str) -> Seconds:
    with psycopg.connect(url, autocommit=True) as connection:
        sessions = connection.execute(
            "select pid from pg_stat_activity"
            " where application_name = 'forebay' and datname = current_database()"
        ).fetchall()
    clocks = [Path(f"/proc/{pid}/schedstat") for (pid,) in sessions]
    return lambda: sum(int(clock.read_text().split()[0]) for clock in clocks) / 1e9


def _of_redis(url: str) -> Seconds:
    server = redis.Redis.from_url(url)

    def seconds() -> float:
        cpu = server.info("cpu")
        return float(cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"])

    return seconds
