"""Audit log of the SQL engines: operators' actions in a hash chain."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final, Protocol

from forebay.domain.audit_hash_chain import START, ChainLine, ChainLink, extend_chain
from forebay.domain.job_history import ACTIONS, Event
from forebay.domain.job_query import check_limit
from forebay.stores.shared.rows import Row, event_from_row, json_text


class AuditTransaction(Protocol):
    """Transaction of a SQL engine."""

    def run(self, name: str, values: Any, /) -> object: ...

    def one(self, name: str, values: Any, /) -> Row | None: ...

    def all(self, name: str, values: Any, /) -> list[Row]: ...


class SqlAuditLogReader(ABC):
    """Mixin of readers: shows the audit log."""

    @abstractmethod
    def _query(self, name: str, values: dict[str, object]) -> list[Row]: ...

    def audit(self, *, limit: int = 100, after: int | None = None) -> list[tuple[int, Event]]:
        check_limit(limit)
        rows = self._query("audit", {"after": after, "limit": limit, "actions": _ACTIONS})
        return [(row[0], event_from_row(row[1:])) for row in rows]

    def audit_chain(self, *, limit: int = 100, after: int = 0) -> list[ChainLine]:
        check_limit(limit)
        rows = self._query("audit_chain", {"after": after, "limit": limit})
        return [_chain_line_from_row(row) for row in rows]

    def count_unchained(self) -> int:
        [(lines,)] = self._query("audit_rest", {})
        return int(lines)


def append_chain_rows(tx: AuditTransaction, limit: int) -> int:
    """Append lines to the chain. The caller holds the lock of the chain, or of the whole store."""
    rows = tx.all("audit_unchained", {"limit": limit})
    if not rows:
        return 0
    head = tx.one("audit_head", {})
    lines = [(row[0], event_from_row(row[1:])) for row in rows]
    for line in extend_chain(START if head is None else ChainLink(*head), lines):
        values = {"position": line.position, "previous": line.previous, "hash": line.hash}
        tx.run("audit_link", {**values, "id": line.number})
    return len(rows)


_ACTIONS: Final = json_text(sorted(ACTIONS))


def _chain_line_from_row(row: Row) -> ChainLine:
    position, previous, digest, number, *event = row
    return ChainLine(
        position=position, previous=previous, hash=digest, number=number, event=event_from_row(tuple(event))
    )
