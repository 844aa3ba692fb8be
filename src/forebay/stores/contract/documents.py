"""Protocols of the store contract for documents: API keys and other small values that seldom change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from forebay.domain.job_history import Event
from forebay.domain.stored_document import Document


class DocumentStore(Protocol):
    """Write side of documents. The caller knows what a document means, and passes the event that describes a
    change. It is recorded in the transaction of the change, and only with it.
    """

    def save_document(self, document: Document, *, event: Event | None = None) -> bool:
        """Save a document that was derived from the one with its `revision` (0: from none). Return false, and
        write nothing, if the stored revision is another one by now. The stored document has the next
        revision.
        """
        ...

    def drop_document(self, kind: str, name: str, *, event: Event | None = None) -> bool:
        """Remove a document and return whether there was one. The next of its name begins at revision 1
        again: a late save from before the removal may overwrite it.
        """
        ...


class DocumentReader(Protocol):
    """Read side of documents."""

    def documents(
        self,
        kind: str,
        names: Sequence[str] | None = None,
        *,
        limit: int = 1_000,
        after: str | None = None,
    ) -> list[Document]:
        """Return the documents of a kind, or those of them that are named, by name, after `after`."""
        ...
