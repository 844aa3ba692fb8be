"""Documents of the Redis engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from forebay.domain.job_history import Event
from forebay.domain.job_query import check_limit
from forebay.domain.stored_document import Document
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.rows import event_row

_decode: Final = msgspec.msgpack.Decoder(list[Any]).decode


class RedisDocumentStore:
    """Write side of documents."""

    _connection: Connection

    def save_document(self, document: Document, *, event: Event | None = None) -> bool:
        params = {
            "kind": document.kind,
            "name": document.name,
            "body": document.body,
            "revision": document.revision,
            "event": False if event is None else event_row(event),
        }
        return bool(self._connection.run("save_document", params))

    def drop_document(self, kind: str, name: str, *, event: Event | None = None) -> bool:
        params = {"kind": kind, "name": name, "event": False if event is None else event_row(event)}
        return bool(self._connection.run("drop_document", params))


class RedisDocumentReader:
    """Read side of documents."""

    _connection: Connection

    def documents(
        self,
        kind: str,
        names: Sequence[str] | None = None,
        *,
        limit: int = 1_000,
        after: str | None = None,
    ) -> list[Document]:
        check_limit(limit)
        tag, execute = self._connection.address.tag, self._connection.execute
        if names is None:
            start = "-" if after is None else f"({after}"
            encoded = execute(
                "ZRANGE", f"{tag}:document_names:{kind}", start, "+", "BYLEX", "LIMIT", 0, limit
            )
            wanted = [name.decode() for name in encoded]
        else:
            wanted = sorted({name for name in names if after is None or name > after}, key=str.encode)
        bodies = execute("HMGET", f"{tag}:documents:{kind}", *wanted) if wanted else []
        stored = zip(wanted, bodies, strict=True)
        return [_document(kind, name, packed) for name, packed in stored if packed is not None][:limit]


def _document(kind: str, name: str, packed: bytes) -> Document:
    body, revision, created_at, updated_at = _decode(packed)
    return Document(
        kind=kind, name=name, body=body, revision=revision, created_at=created_at, updated_at=updated_at
    )
