"""Records of a store move: the marker in both stores, and the copied ids in the old one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.domain.job import QueueName
from forebay.domain.job_query import MAX_PAGE
from forebay.domain.queue import QueueState
from forebay.domain.stored_document import Document
from forebay.payload.blob_stores import ORPHAN_AGE_MS
from forebay.prepared_types import prepare_type
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store

KIND: Final = "store_move"
COPIED_KIND: Final = "store_move_copied"
_NAME: Final = "to"
# As long as the row of a blob may take to appear: a caller transaction of the old store may commit its job
# after the last pass, and the next `forebay move --finish` copies that job.
AFTER_MOVE_MS: Final = ORPHAN_AGE_MS
_MAX_NAMES: Final = 100  # per record; ids and names are short, and a document has at most 64 KiB


class MoveMarker(msgspec.Struct, frozen=True, kw_only=True):
    """Marker of a move in the old store: its token, its target, and what was paused before it began."""

    to: str
    token: str
    queues: dict[QueueName, QueueState] = {}
    schedules: tuple[str, ...] = ()
    is_finished: bool = False


def load_marker(reader: Reader) -> tuple[MoveMarker, int] | None:
    """Return the marker of a move away from this store, and its revision."""
    for document in reader.documents(KIND, [_NAME]):
        return msgspec.json.decode(document.body, type=prepare_type(MoveMarker)), document.revision
    return None


def save_marker(store: Store, marker: MoveMarker, revision: int) -> bool:
    body = msgspec.json.encode(marker).decode()
    return store.save_document(Document(kind=KIND, name=_NAME, body=body, revision=revision))


def drop_marker(store: Store) -> None:
    store.drop_document(KIND, _NAME)


class IncomingMove(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The new store's own record of a move to it. `copied` is the number of records of `CopiedIds` in the old
    store at the last write: a new store that was restored from a backup has a smaller number."""

    copied: int | None = None  # missing in documents of earlier releases
    is_finished: bool = False


def load_incoming_move(reader: Reader, token: str) -> IncomingMove | None:
    """Return the record of this move in the new store; None for a store that was emptied."""
    for document in reader.documents(KIND, [token]):
        return _decode_incoming(document)
    return None


def announce_move(store: Store, token: str) -> None:
    store.save_document(_incoming_document(token, IncomingMove(copied=0)))


def record_copied(store: Store, reader: Reader, token: str, copied: int) -> None:
    """Save the number of records of copied ids in the new store."""
    while documents := reader.documents(KIND, [token]):
        known = _decode_incoming(documents[0])
        if known.copied is None or known.copied >= copied:
            return
        updated = _incoming_document(token, replace(known, copied=copied), documents[0].revision)
        if store.save_document(updated):
            return


def finish_incoming_move(store: Store, reader: Reader, token: str) -> None:
    """Mark the move to the new store as finished there. The document stays: `keeps_blobs` needs the time of
    this write."""
    while (documents := reader.documents(KIND, [token])) and not (
        known := _decode_incoming(documents[0])
    ).is_finished:
        finished = replace(known, is_finished=True)
        store.save_document(_incoming_document(token, finished, documents[0].revision))


def keeps_blobs(reader: Reader) -> bool:
    """Return whether a move forbids this store to remove blobs, even those of jobs that it does not have.

    Both stores of a move name their blobs with one id. The old store lacks the jobs that were enqueued in the
    new one. The new store lacks the jobs that are still to be copied.
    """
    now = reader.now()
    return any(
        document.name == _NAME
        or not _decode_incoming(document).is_finished
        or now < document.updated_at + AFTER_MOVE_MS
        for document in reader.documents(KIND)
    )


def _decode_incoming(document: Document) -> IncomingMove:
    return msgspec.json.decode(document.body, type=prepare_type(IncomingMove))


def _incoming_document(token: str, incoming: IncomingMove, revision: int = 0) -> Document:
    body = msgspec.json.encode(incoming).decode()
    return Document(kind=KIND, name=token, body=body, revision=revision)


class CopiedIds:
    """Ids and names that were copied to the new store, recorded in the old one. They must not be copied once
    more, even if the job was pruned, or the object dropped, in the new store.

    A record is written after the answer of the new store. A mover that is killed between the two finds the
    job there next time.
    """

    def __init__(self, store: Store, reader: Reader, token: str) -> None:
        self._store = store
        self._reader = reader
        self.token = token
        self._names: set[str] = set()
        self._records = 0
        for document in self._documents():
            self._names.update(msgspec.json.decode(document.body, type=list[str]))
            self._records += 1

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)

    @property
    def records(self) -> int:
        """Number of documents with these names."""
        return self._records

    def add(self, names: Iterable[str]) -> Iterator[None]:
        """Record names, one document at a time; yield after each."""
        fresh = [name for name in names if name not in self._names]
        for first in range(0, len(fresh), _MAX_NAMES):
            batch = fresh[first : first + _MAX_NAMES]
            body = msgspec.json.encode(batch).decode()
            while not self._store.save_document(Document(kind=COPIED_KIND, name=self._next(), body=body)):
                pass  # another mover has taken the number; try the next one
            self._names.update(batch)
            yield

    def drop(self) -> None:
        for document in list(self._documents()):
            self._store.drop_document(COPIED_KIND, document.name)

    def _next(self) -> str:
        self._records += 1
        return f"{self.token}-{self._records:010}"

    def _documents(self) -> Iterator[Document]:
        after: str | None = None
        while page := self._reader.documents(COPIED_KIND, limit=MAX_PAGE, after=after):
            yield from (document for document in page if document.name.startswith(self.token))
            after = page[-1].name
