"""Documents: save, drop and list."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from forebay.domain.job_history import Event
from forebay.domain.job_query import check_limit
from forebay.domain.stored_document import Document
from forebay.stores.postgres.transaction import QueryRunner, Transaction
from forebay.stores.shared.rows import document_from_row, row_from_document

T = TypeVar("T")


class PostgresDocumentStore(ABC):
    """Document part of a write handle."""

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, defines: bool = False) -> T: ...

    def save_document(self, document: Document, *, event: Event | None = None) -> bool:
        return self._write(lambda tx: save(tx, document, event))

    def drop_document(self, kind: str, name: str, *, event: Event | None = None) -> bool:
        return self._write(lambda tx: drop(tx, kind, name, event))


class PostgresDocumentReader(ABC):
    """Document part of a read handle."""

    @abstractmethod
    def _open_snapshot(self) -> AbstractContextManager[QueryRunner]: ...

    def documents(
        self,
        kind: str,
        names: Sequence[str] | None = None,
        *,
        limit: int = 1_000,
        after: str | None = None,
    ) -> list[Document]:
        check_limit(limit)
        wanted = None if names is None else list(names)
        values = {"kind": kind, "names": wanted, "after": after or "", "limit": limit}
        with self._open_snapshot() as snapshot:
            return [document_from_row(row) for row in snapshot.all("documents", values)]


def save(tx: Transaction, document: Document, event: Event | None) -> bool:
    values = row_from_document(document, tx.now)
    if tx.one("document_change" if document.revision else "document_add", values) is None:
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
