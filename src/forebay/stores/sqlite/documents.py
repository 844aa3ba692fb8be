"""Documents: save, remove, read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from forebay.domain.job_history import Event
from forebay.domain.job_query import check_limit
from forebay.domain.stored_document import Document
from forebay.stores.shared.rows import Row, document_from_row, json_text, row_from_document
from forebay.stores.sqlite.transaction import Transaction

T = TypeVar("T")


class SqliteDocumentStore(ABC):
    """Mixin of the store: write side of documents."""

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, durable: bool = False, moves: bool = True) -> T: ...

    def save_document(self, document: Document, *, event: Event | None = None) -> bool:
        return self._write(lambda tx: save(tx, document, event), durable=True, moves=False)

    def drop_document(self, kind: str, name: str, *, event: Event | None = None) -> bool:
        return self._write(lambda tx: drop(tx, kind, name, event), durable=True, moves=False)


class SqliteDocumentReader(ABC):
    """Mixin of the reader: read side of documents."""

    @abstractmethod
    def _query(self, name: str, values: dict[str, object]) -> list[Row]: ...

    def documents(
        self,
        kind: str,
        names: Sequence[str] | None = None,
        *,
        limit: int = 1_000,
        after: str | None = None,
    ) -> list[Document]:
        check_limit(limit)
        wanted = None if names is None else json_text(list(names))
        values: dict[str, object] = {"kind": kind, "names": wanted, "after": after or "", "limit": limit}
        return [document_from_row(row) for row in self._query("documents", values)]


def save(tx: Transaction, document: Document, event: Event | None) -> bool:
    if tx.one("document_save", row_from_document(document, tx.now)) is None:
        return False
    if event is not None:
        tx.record(event)
    return True


def drop(tx: Transaction, kind: str, name: str, event: Event | None) -> bool:
    if tx.one("document_remove", {"kind": kind, "name": name}) is None:
        return False
    if event is not None:
        tx.record(event)
    return True
