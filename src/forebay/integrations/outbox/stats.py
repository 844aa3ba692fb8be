"""Statistics of an outbox: its rows, the oldest, and those that were refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import func, select

if TYPE_CHECKING:
    from sqlalchemy import Engine, Table


class OutboxStats(msgspec.Struct, frozen=True, kw_only=True):
    """Content of an outbox: its rows, when the oldest was written, and how many were refused before."""

    rows: int
    oldest_at: int | None
    refused: int


def outbox_stats(table: Table, engine: Engine) -> OutboxStats:
    """Count the rows of an outbox."""
    query = select(func.count(), func.min(table.c.written_at), func.count(table.c.error)).select_from(table)
    with engine.connect() as connection:
        rows, oldest, refused = connection.execute(query).one()
    return OutboxStats(rows=rows, oldest_at=oldest, refused=refused)
