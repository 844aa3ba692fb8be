"""The engines as users run them: PostgreSQL with fsync and synchronous commits, Redis with an append-only
file synced every second, SQLite in a folder on disk. Everything else is the server's default."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg
import redis

from tests.redis_server import RedisServer
from tests.servers import Postgres

DURABLE_POSTGRES: Final[dict[str, Any]] = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "128MB",
}
DURABLE_REDIS: Final[dict[str, Any]] = {"appendonly": "yes", "appendfsync": "everysec"}
EMPTY: Final = """
drop schema if exists forebay cascade;
drop schema public cascade;
create schema public;
checkpoint;
"""


class Server(NamedTuple):
    url: str
    version: str
    empty: Callable[[], None]
    analyze: Callable[[], None] = lambda: None  # a table in use has statistics
    pid: int = 0  # none: the engine is part of the programs that use it


@contextmanager
def server(engine: str) -> Iterator[Server]:
    """One that lives as long as the block."""
    with {"sqlite": _sqlite, "postgres": _postgres, "redis": _redis}[engine]() as made:
        yield made


@contextmanager
def _sqlite() -> Iterator[Server]:
    import sqlite3  # noqa: PLC0415 - only for its version

    with tempfile.TemporaryDirectory(prefix="forebay-compare-") as name:
        folder = Path(name) / "jobs"

        def empty() -> None:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()

        yield Server(f"sqlite:///{folder}/jobs.db", f"SQLite {sqlite3.sqlite_version}", empty)


@contextmanager
def _postgres() -> Iterator[Server]:
    started = Postgres(**DURABLE_POSTGRES)
    try:

        def run(statements: str) -> None:
            with psycopg.connect(started.url(), autocommit=True) as connection:
                for statement in statements.strip().rstrip(";").split(";"):
                    connection.execute(statement.encode())

        with psycopg.connect(started.url()) as connection:
            version = connection.info.parameter_status("server_version")
            pid = _parent(connection.info.backend_pid)
        words = f"PostgreSQL {version}, fsync and synchronous_commit on"
        yield Server(started.url(), words, lambda: run(EMPTY), lambda: run("analyze"), pid)
    finally:
        started.close()


@contextmanager
def _redis() -> Iterator[Server]:
    started = RedisServer(**DURABLE_REDIS)
    try:
        with redis.Redis.from_url(started.url()) as client:
            info: Any = client.info("server")
            version = info.get("valkey_version") or info["redis_version"]

            def empty() -> None:
                client.flushall()

            name = "Valkey" if "valkey_version" in info else "Redis"
            words = f"{name} {version}, append-only file, fsync every second"
            yield Server(started.url(), words, empty, pid=int(info["process_id"]))
    finally:
        started.close()


def _parent(pid: int) -> int:
    shown = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, check=True)
    return int(shown.stdout)
