"""Statements about the order, for those who keep it in Redis too."""

from __future__ import annotations

from functools import cache

from forebay.stores.postgres.connection import prepared
from forebay.stores.statements import load_statements


@cache
def statements_beside(schema: str) -> dict[str, bytes]:
    """These for the tables of one schema."""
    return prepared(load_statements("forebay.stores.hybrid"), schema)
