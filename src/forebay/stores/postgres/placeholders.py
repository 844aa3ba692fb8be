"""Numbered placeholders and errors of asyncpg."""

from __future__ import annotations

import re
from functools import cache

import psycopg

from forebay.stores.shared.caller_connections import is_from


@cache
def number_placeholders(statement: bytes) -> tuple[str, tuple[str, ...]]:
    """Return a statement with $1, $2 ... for its named placeholders, and the names in that order."""
    names: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        return f"${names.setdefault(found[1], len(names) + 1)}"

    text = re.sub(r"%\((\w+)\)[sb]|%%", number, statement.decode())
    return text, tuple(names)


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
