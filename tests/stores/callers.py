"""Connections as programs hold them: of drivers, of SQLAlchemy, of Django."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, NamedTuple

import asyncpg
import django
import psycopg
import sqlalchemy
from django.conf import settings
from django.db import connections, transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool


class Caller(NamedTuple):
    """A connection in a transaction, which is kept if the block ends well. `run` gives it a statement of the
    program's own."""

    connection: Any
    run: Callable[[str], Any]


class AsyncCaller(NamedTuple):
    connection: Any
    run: Callable[[str], Awaitable[Any]]


class Undo(Exception):
    """Leaves the block, so that its transaction is rolled back."""


Way = Callable[[str], AbstractContextManager[Caller]]
AsyncWay = Callable[[str], AbstractAsyncContextManager[AsyncCaller]]


@contextmanager
def by_psycopg(url: str) -> Iterator[Caller]:
    with psycopg.connect(url) as connection:
        yield Caller(connection, connection.execute)


@contextmanager
def by_session(url: str) -> Iterator[Caller]:
    engine = sqlalchemy.create_engine(_dialect(url, "psycopg"), poolclass=NullPool)
    with Session(engine) as session, session.begin():
        yield Caller(session, lambda statement: session.execute(sqlalchemy.text(statement)))


@contextmanager
def by_sqlalchemy_connection(url: str) -> Iterator[Caller]:
    engine = sqlalchemy.create_engine(_dialect(url, "psycopg"), poolclass=NullPool)
    with engine.begin() as connection:
        yield Caller(connection, connection.exec_driver_sql)


@contextmanager
def by_django(url: str) -> Iterator[Caller]:
    alias = django_alias(url)
    connection = connections[alias]
    try:
        with transaction.atomic(using=alias):
            yield Caller(connection, lambda statement: connection.cursor().execute(statement))
    finally:
        connection.close()


@asynccontextmanager
async def by_async_psycopg(url: str) -> AsyncIterator[AsyncCaller]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield AsyncCaller(connection, connection.execute)


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[AsyncCaller]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield AsyncCaller(connection, connection.execute)
    finally:
        await connection.close()


@asynccontextmanager
async def by_asyncpg_pool(url: str) -> AsyncIterator[AsyncCaller]:
    async with (
        asyncpg.create_pool(url, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield AsyncCaller(connection, connection.execute)


def by_async_session(driver: str) -> AsyncWay:
    @asynccontextmanager
    async def way(url: str) -> AsyncIterator[AsyncCaller]:
        engine = create_async_engine(_dialect(url, driver), poolclass=NullPool)
        async with AsyncSession(engine) as session, session.begin():
            yield AsyncCaller(session, lambda statement: session.execute(sqlalchemy.text(statement)))

    return way


@asynccontextmanager
async def by_async_sqlalchemy_connection(url: str) -> AsyncIterator[AsyncCaller]:
    engine = create_async_engine(_dialect(url, "asyncpg"), poolclass=NullPool)
    async with engine.begin() as connection:
        yield AsyncCaller(connection, connection.exec_driver_sql)


@contextmanager
def by_sqlite3(path: str) -> Iterator[Caller]:
    connection = sqlite3.connect(path)
    try:
        with connection:
            connection.execute("begin immediate")
            yield Caller(connection, connection.execute)
    finally:
        connection.close()


ON_SQLITE: dict[str, Way] = {
    "sqlite3": by_sqlite3,
    "SQLAlchemy session": by_session,
    "SQLAlchemy connection": by_sqlalchemy_connection,
    "Django": by_django,
}
BLOCKING: dict[str, Way] = {
    "psycopg": by_psycopg,
    "SQLAlchemy session": by_session,
    "SQLAlchemy connection": by_sqlalchemy_connection,
    "Django": by_django,
}
AWAITED: dict[str, AsyncWay] = {
    "psycopg": by_async_psycopg,
    "asyncpg": by_asyncpg,
    "asyncpg pool": by_asyncpg_pool,
    "SQLAlchemy session on psycopg": by_async_session("psycopg"),
    "SQLAlchemy session on asyncpg": by_async_session("asyncpg"),
    "SQLAlchemy connection": by_async_sqlalchemy_connection,
}


def django_alias(address: str) -> str:
    """A database of Django's, given as a URL of PostgreSQL or the path of a SQLite file."""
    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True, LOGGING_CONFIG=None)
        django.setup()
    if address not in connections.databases:
        connections.databases[address] = _django_settings(address)
        connections.configure_settings(connections.databases)
    return address


def _django_settings(address: str) -> dict[str, Any]:
    if not address.startswith("postgresql"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": address}
    parts = psycopg.conninfo.conninfo_to_dict(address)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "HOST": parts.get("host", ""),
        "PORT": parts.get("port", ""),
        "USER": parts.get("user", ""),
        "PASSWORD": parts.get("password", ""),
    }


def _dialect(url: str, driver: str) -> str:
    if not url.startswith("postgresql"):
        return f"sqlite:///{url}"
    return url.replace("postgresql://", f"postgresql+{driver}://", 1)
