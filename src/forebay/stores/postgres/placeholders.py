"""Statements and errors as asyncpg has them: values by number, and classes of its own."""

from __future__ import annotations

import re
from functools import cache

import psycopg

from forebay.stores.shared.caller_transactions import is_from


@cache
def number_placeholders(statement: bytes) -> tuple[str, tuple[str, ...]]:
    """A statement of ours with $1, $2 ... in the place of its names, and the names in that order."""
    names: dict[str, int] = {}

    def numbered(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        return f"${names.setdefault(found[1], len(names) + 1)}"

    text = re.sub(r"%\((\w+)\)[sb]|%%", numbered, statement.decode())
    return text, tuple(names)


def as_psycopg_error(exc: Exception) -> Exception:
    """What psycopg would have raised, so that there is one table of what errors mean."""
    if not is_from("asyncpg", exc):
        return exc
    code = getattr(exc, "sqlstate", None)
    if code is None:  # of the driver itself: a value it cannot send, or a connection that is not to be had
        return (
            psycopg.DataError(str(exc)) if isinstance(exc, ValueError) else psycopg.InterfaceError(str(exc))
        )
    try:
        kind = psycopg.errors.lookup(code)
    except KeyError:
        kind = psycopg.DatabaseError
    return kind(str(exc))
