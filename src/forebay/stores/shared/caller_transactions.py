"""Connections that callers hold in their hands, down to the driver's own.

No driver and no framework is imported for it: whoever has such a connection has loaded its package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from forebay.domain.job import JobId
from forebay.domain.settlement import Settlement
from forebay.errors import ConfigError, LeaseLost
from forebay.stores.contract.values import LeaseRefusal

BEGIN_FIRST: Final = (
    "begin a transaction first: what is done within one comes true with its commit, and not before"
)


def is_from(package: str, value: object) -> bool:
    """Whether its class, or one that it is derived from, comes with this package."""
    return any(kind.__module__.partition(".")[0] == package for kind in type(value).__mro__)


def qualified_name(value: object) -> str:
    """The class of a thing, as an error names it."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def driver_connection(connection: object) -> Any:
    """The driver's connection behind that of SQLAlchemy or Django, in a transaction that these know of: the
    commit is theirs. Any other connection is given back as it is."""
    if is_from("sqlalchemy", connection):
        return _sqlalchemy_connection(connection)
    if is_from("django", connection):
        return _django_connection(connection)
    return connection


async def driver_connection_async(connection: object) -> Any:
    """`driver_connection` for what lives on an event loop: AsyncSession and AsyncConnection."""
    if not is_from("sqlalchemy", connection):
        return connection
    found: Any = connection
    if hasattr(found, "sync_session"):
        found = await found.connection()
    if not hasattr(found, "sync_connection"):
        raise ConfigError(f"{qualified_name(connection)} blocks: call the method without _async")
    # Through SQLAlchemy, so that a transaction has begun in its own books too.
    await found.exec_driver_sql("select 1")
    return (await found.get_raw_connection()).driver_connection


def _sqlalchemy_connection(connection: Any) -> Any:
    if hasattr(connection, "sync_session") or hasattr(connection, "sync_connection"):
        raise ConfigError(
            f"{qualified_name(connection)} lives on an event loop: await the method that ends in _async"
        )
    if hasattr(connection, "get_bind"):  # a session
        connection = connection.connection()
    if not hasattr(connection, "exec_driver_sql"):
        raise ConfigError(f"give a Session or a Connection of SQLAlchemy, not a {qualified_name(connection)}")
    raw = connection.connection.driver_connection
    if not is_from("sqlite3", raw):
        connection.exec_driver_sql("select 1")  # this begins the transaction if nothing has
    elif not raw.in_transaction and raw.isolation_level is not None:
        # Python's driver begins with the first change, and by then we have read. A transaction that has read
        # is refused the write lock if anybody has written since.
        connection.exec_driver_sql("begin immediate")
    return raw


def _django_connection(connection: Any) -> Any:
    if not hasattr(connection, "ensure_connection"):
        raise ConfigError(
            f"give django.db.connection or one of django.db.connections, not {qualified_name(connection)}"
        )
    connection.ensure_connection()
    if connection.get_autocommit():
        raise ConfigError(f"{BEGIN_FIRST}; with Django, inside transaction.atomic()")
    if connection.needs_rollback:
        raise ConfigError("this transaction has failed: leave its atomic block first")
    return connection.connection


def check_completed(
    settlement: Settlement, settled: Sequence[JobId], refused: Sequence[LeaseRefusal]
) -> None:
    """Raise unless the job has just been completed: what else the transaction does must not be committed.

    That this very attempt had completed it before is no excuse: its effects are there already.
    """
    if settlement.job_id in settled:
        return
    reason = refused[0].reason if refused else "it was completed before"
    raise LeaseLost(
        f"job {settlement.job_id}, attempt {settlement.attempt}, cannot be completed: {reason}; roll back"
    )
