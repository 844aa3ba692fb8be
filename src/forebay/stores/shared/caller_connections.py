"""Callers' connections, down to the driver's own.

No driver and no framework is imported here: a caller that passes such a connection has loaded its package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from forebay.domain.job import JobId
from forebay.domain.settlement import Settlement
from forebay.errors import ConfigError, LeaseLost
from forebay.stores.contract.claims_and_results import LeaseRefusal

BEGIN_FIRST: Final = (
    "begin a transaction first: what is done within one comes true with its commit, and not before"
)


def is_from(package: str, value: object) -> bool:
    """Return whether the class of a value, or a base class of it, is from this package."""
    return any(kind.__module__.partition(".")[0] == package for kind in type(value).__mro__)


def qualified_name(value: object) -> str:
    """Return the class of a value as error messages name it."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def driver_connection(connection: object) -> Any:
    """Return the driver's connection behind one of SQLAlchemy or Django, in a transaction that these know
    of: they commit it. Any other connection is returned as it is."""
    if is_from("sqlalchemy", connection):
        return _sqlalchemy_connection(connection)
    if is_from("django", connection):
        return _django_connection(connection)
    return connection


async def driver_connection_async(connection: object) -> Any:
    """Do the same as `driver_connection` for AsyncSession and AsyncConnection."""
    if not is_from("sqlalchemy", connection):
        return connection
    wrapper: Any = connection
    if hasattr(wrapper, "sync_session"):
        wrapper = await wrapper.connection()
    if not hasattr(wrapper, "sync_connection"):
        raise ConfigError(f"{qualified_name(connection)} blocks: call the method without _async")
    # Through SQLAlchemy, so that it knows that a transaction has begun.
    await wrapper.exec_driver_sql("select 1")
    return (await wrapper.get_raw_connection()).driver_connection


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
        connection.exec_driver_sql("select 1")  # this begins the transaction if none is open
    elif not raw.in_transaction and raw.isolation_level is not None:
        # Python's driver begins with the first change, and by then we have read. A transaction that has read
        # is refused the write lock if another connection has committed since.
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
    """Raise unless the job has just been completed: the caller's other writes must not be committed then.

    An earlier completion by this very attempt is refused, too: its effects are committed already.
    """
    if settlement.job_id in settled:
        return
    reason = refused[0].reason if refused else "it was completed before"
    raise LeaseLost(
        f"job {settlement.job_id}, attempt {settlement.attempt}, cannot be completed: {reason}; roll back"
    )
