"""The part of the seam that keeps documents: API keys, and whatever else is small and seldom changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from forebay.domain.document import Document
from forebay.domain.history import Event


class DocumentStore(Protocol):
    """The write side of documents. What one means is the caller's affair, and so is the event that says what
    was done: it is recorded in the transaction that does it, and only then."""

    def save_document(self, document: Document, *, event: Event | None = None) -> bool:
        """Write a document that was worked out from the one with its `revision` (0: from none); false, and
        nothing is written, if there is another one by now. The stored one has the next revision."""
        ...

    def drop_document(self, kind: str, name: str, *, event: Event | None = None) -> bool:
        """Remove a document; whether there was one. The next of its name begins at revision 1 again: to
        whoever has seen the one before, and saves late, it may look like that one."""
        ...


class DocumentReader(Protocol):
    """The read side of documents."""

    def documents(
        self,
        kind: str,
        names: Sequence[str] | None = None,
        *,
        limit: int = 1_000,
        after: str | None = None,
    ) -> list[Document]:
        """Those of a kind, or those of them that are named, by name from the one behind `after` on."""
        ...
