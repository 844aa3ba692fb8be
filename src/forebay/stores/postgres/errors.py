"""Translation of driver errors into store errors."""

from __future__ import annotations

import re
from typing import Final

import psycopg
from psycopg import errors

from forebay.errors import StoreBusy, StoreError, StoreRefused, StoreUnavailable, StoreUnusable
from forebay.stores.postgres.session import ServerTimeout
from forebay.stores.shared.caller_connections import is_from

_AWAY: Final = "cannot be reached"
_TOO_MANY_CONNECTIONS: Final = "has no connection left: raise max_connections or use a pooler"
_LOCKED: Final = "is busy: an open transaction holds a lock that this call needs; end it and try again"
_POOLED: Final = "is behind a pooler that gives each transaction to any session: add `pooler=transaction`"
# Store error and text for each driver error; the first match counts.
_MEANING: Final[tuple[tuple[type[psycopg.Error], type[StoreError], str], ...]] = (
    # The server has rolled the transaction back in these three cases, so nothing has happened.
    (errors.LockNotAvailable, StoreBusy, _LOCKED),
    (errors.QueryCanceled, StoreUnavailable, "is busy: a statement took too long"),
    (errors.DeadlockDetected, StoreBusy, "is busy: transactions stand in each other's way"),
    (errors.SerializationFailure, StoreBusy, "is busy: transactions stand in each other's way"),
    (errors.TooManyConnections, StoreUnavailable, _TOO_MANY_CONNECTIONS),
    (errors.DiskFull, StoreUnavailable, "has no room left: free some space on its disk"),
    (
        errors.ReadOnlySqlTransaction,
        StoreUnavailable,
        "is read-only now: a standby, or a failover is under way",
    ),
    (
        ServerTimeout,
        StoreUnavailable,
        "does not answer: it is frozen, or something between here and there has lost the connection",
    ),
    (errors.IdleInTransactionSessionTimeout, StoreUnavailable, _AWAY),
    (errors.TransactionTimeout, StoreUnavailable, _AWAY),
    (
        errors.InsufficientPrivilege,
        StoreUnusable,
        "does not let this user do that: grant it schema and tables",
    ),
    (errors.UndefinedTable, StoreUnusable, "lacks a table of ours: run `forebay migrate`"),
    (errors.UndefinedColumn, StoreUnusable, "lacks a column of ours: run `forebay migrate`"),
    (errors.UndefinedFunction, StoreUnusable, "lacks a function of ours: run `forebay migrate`"),
    (errors.InvalidSchemaName, StoreUnusable, "lacks our schema: run `forebay migrate`"),
    (errors.InvalidSqlStatementName, StoreUnusable, _POOLED),
    (errors.DuplicatePreparedStatement, StoreUnusable, _POOLED),
    (psycopg.DataError, StoreRefused, "cannot hold this value"),
    (psycopg.IntegrityError, StoreRefused, "cannot hold this value"),
    (psycopg.OperationalError, StoreUnavailable, _AWAY),
    (psycopg.InterfaceError, StoreUnavailable, _AWAY),
)
# A failed connection has no error code, only the text of the server.
_REFUSALS: Final[tuple[tuple[re.Pattern[str], type[StoreError], str], ...]] = (
    (
        re.compile(r"password authentication failed|no pg_hba\.conf entry|no password supplied"),
        StoreUnusable,
        "does not accept this user",
    ),
    (
        re.compile(r'database "[^"]*" does not exist'),
        StoreUnusable,
        "has no database of this name: create it first",
    ),
    (
        re.compile(r'role "[^"]*" does not exist'),
        StoreUnusable,
        "does not know this user: create it first",
    ),
    (re.compile(r"unsupported startup parameter"), StoreUnusable, _POOLED),
    (
        re.compile(r"too many (?:clients|connections)|connection slots are reserved"),
        StoreUnavailable,
        _TOO_MANY_CONNECTIONS,
    ),
)
# What binding a value can raise besides the driver's own errors: half a surrogate pair, a NUL in a text, an
# integer that does not fit into 64 bits.
DRIVER_ERRORS: Final = (psycopg.Error, UnicodeEncodeError, OverflowError)


def translate_error(location: str, exc: Exception) -> StoreError:
    """Return the store error for a driver error."""
    message = (str(exc).strip() or type(exc).__name__).splitlines()[0]
    if not isinstance(exc, psycopg.Error):
        return StoreRefused(f"{location} cannot hold a value: {message}")
    for pattern, error_type, meaning in _REFUSALS:
        if pattern.search(str(exc)):
            return error_type(f"{location} {meaning} ({message})")
    for kind, error_type, meaning in _MEANING:
        if isinstance(exc, kind):
            return error_type(f"{location} {meaning} ({message}{_lock_context(exc)})")
    return StoreError(f"{location}: {message}")


def _lock_context(exc: psycopg.Error) -> str:
    """Return the row and table of the lock that timed out, in the words of the server."""
    context = exc.diag.context if isinstance(exc, errors.LockNotAvailable) else None
    return f", {context.splitlines()[0]}" if context else ""


def as_psycopg_error(exc: Exception) -> Exception:
    """Return the error that psycopg would have raised, so that one table translates the errors of both."""
    if not is_from("asyncpg", exc):
        return exc
    code = getattr(exc, "sqlstate", None)
    if code is None:  # raised by the driver: a value that it cannot send, or no connection
        return (
            psycopg.DataError(str(exc)) if isinstance(exc, ValueError) else psycopg.InterfaceError(str(exc))
        )
    try:
        kind = psycopg.errors.lookup(code)
    except KeyError:
        kind = psycopg.DatabaseError
    return kind(str(exc))
