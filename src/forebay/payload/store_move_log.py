"""What is written down about a move: the mark in both stores, and in the old one what has been copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.domain.document import Document
from forebay.domain.job import QueueName
from forebay.domain.query import MAX_PAGE
from forebay.domain.queue import QueueState
from forebay.payload.blobs import ORPHAN_AGE_MS
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store

KIND: Final = "store_move"
COPIED_KIND: Final = "store_move_copied"
_NAME: Final = "to"
# The same time that the row of a blob has to appear: a caller transaction of the old store may commit its job
# after the last pass, and the next `forebay move --finish` brings that job.
AFTER_MOVE_MS: Final = ORPHAN_AGE_MS
_MAX_NAMES: Final = 100  # of a record; ids and names are short, and a document holds 64 KiB


class MoveMarker(msgspec.Struct, frozen=True, kw_only=True):
    """What the old store keeps about a move: its token, where to, and what was not running before it
    began."""

    to: str
    token: str
    queues: dict[QueueName, QueueState] = {}
    schedules: tuple[str, ...] = ()
    is_finished: bool = False


def load_marker(reader: Reader) -> tuple[MoveMarker, int] | None:
    """The mark of a move away from there, and its revision."""
    for document in reader.documents(KIND, [_NAME]):
        return msgspec.json.decode(document.body, type=MoveMarker), document.revision
    return None


def save_marker(store: Store, marker: MoveMarker, revision: int) -> bool:
    body = msgspec.json.encode(marker).decode()
    return store.save_document(Document(kind=KIND, name=_NAME, body=body, revision=revision))


def drop_marker(store: Store) -> None:
    store.drop_document(KIND, _NAME)


class IncomingMove(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The new store's own record of a move to it. `copied` is how many records of `CopiedIds` the old store
    had
    when this was written last: a new store that was restored from a backup has an earlier number."""

    copied: int | None = None  # not written by releases before this was kept
    is_finished: bool = False


def load_incoming_move(reader: Reader, token: str) -> IncomingMove | None:
    """What a store knows of this move to it; None for one that was emptied meanwhile."""
    for document in reader.documents(KIND, [token]):
        return _decode_incoming(document)
    return None


def announce_move(store: Store, token: str) -> None:
    store.save_document(_incoming_document(token, IncomingMove(copied=0)))


def record_copied(store: Store, reader: Reader, token: str, copied: int) -> None:
    """Write into the new store how many records the old one has of what was copied."""
    while found := reader.documents(KIND, [token]):
        known = _decode_incoming(found[0])
        if known.copied is None or known.copied >= copied:
            return
        if store.save_document(_incoming_document(token, replace(known, copied=copied), found[0].revision)):
            return


def finish_incoming_move(store: Store, reader: Reader, token: str) -> None:
    """Write into the new store that the move to it is finished. The document stays: `keeps_blobs` needs the
    time at which it was written."""
    while (found := reader.documents(KIND, [token])) and not (
        known := _decode_incoming(found[0])
    ).is_finished:
        store.save_document(_incoming_document(token, replace(known, is_finished=True), found[0].revision))


def keeps_blobs(reader: Reader) -> bool:
    """Return whether a move forbids this store to remove blobs, even those of jobs that it does not have.

    Both stores of a move name their blobs with one id. The old store does not have the jobs that were
    enqueued in the new one, and the new store does not have the jobs that are still to be copied.
    """
    now = reader.now()
    return any(
        document.name == _NAME
        or not _decode_incoming(document).is_finished
        or now < document.updated_at + AFTER_MOVE_MS
        for document in reader.documents(KIND)
    )


def _decode_incoming(document: Document) -> IncomingMove:
    return msgspec.json.decode(document.body, type=IncomingMove)


def _incoming_document(token: str, incoming: IncomingMove, revision: int = 0) -> Document:
    body = msgspec.json.encode(incoming).decode()
    return Document(kind=KIND, name=token, body=body, revision=revision)


class CopiedIds:
    """What has come to the new store, by id or name, as the old one remembers it. Who has been done there and
    is forgotten, or was deleted or dropped by somebody, must not be copied once more.

    Written after the new store has answered: a mover that is killed between the two finds it there next time.
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
        """How many documents hold these names."""
        return self._records

    def add(self, names: Iterable[str]) -> Iterator[None]:
        """Write names down, a record at a time; it pauses behind each."""
        fresh = [name for name in names if name not in self._names]
        for first in range(0, len(fresh), _MAX_NAMES):
            part = fresh[first : first + _MAX_NAMES]
            body = msgspec.json.encode(part).decode()
            while not self._store.save_document(Document(kind=COPIED_KIND, name=self._next(), body=body)):
                pass  # the number was taken by another mover; the next one is looked for
            self._names.update(part)
            yield

    def drop(self) -> None:
        for document in list(self._documents()):
            self._store.drop_document(COPIED_KIND, document.name)

    def _next(self) -> str:
        self._records += 1
        return f"{self.token}-{self._records:010}"

    def _documents(self) -> Iterator[Document]:
        after: str | None = None
        while found := self._reader.documents(COPIED_KIND, limit=MAX_PAGE, after=after):
            yield from (document for document in found if document.name.startswith(self.token))
            after = found[-1].name
