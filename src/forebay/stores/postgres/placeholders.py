"""Numbered placeholders of asyncpg."""

from __future__ import annotations

import re
from functools import cache


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
