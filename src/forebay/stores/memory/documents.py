"""Documents: save and remove."""

from __future__ import annotations

from msgspec.structs import replace

from forebay.domain.job_history import Event
from forebay.domain.stored_document import Document
from forebay.stores.memory.state import State


def save(state: State, document: Document, event: Event | None) -> bool:
    key = (document.kind, document.name)
    known = state.documents.get(key)
    if (known.revision if known else 0) != document.revision:
        return False
    created_at = known.created_at if known else state.now
    saved = replace(document, revision=document.revision + 1, created_at=created_at, updated_at=state.now)
    state.write(state.documents, key, saved)
    if event is not None:
        state.record(event)
    return True


def drop(state: State, kind: str, name: str, event: Event | None) -> bool:
    if (kind, name) not in state.documents:
        return False
    state.write(state.documents, (kind, name), None)
    if event is not None:
        state.record(event)
    return True
