"""What is written down about a move: the mark in both stores, and in the old one what has been copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.app.blobs import WITHOUT_ROW_MS
from forebay.domain.document import Document
from forebay.domain.job import QueueName
from forebay.domain.query import MAX_PAGE
from forebay.domain.queue import QueueState
from forebay.stores.protocol import Reader, Store

KIND: Final = "move"
COPIED: Final = "moved"
_NAME: Final = "to"
_EXPECTED: Final = "{}"
_ARRIVED: Final = '{"is_finished":true}'
# The same time that the row of a blob has to appear: a caller transaction of the old store may commit its job
# after the last pass, and the next `forebay move --finish` brings that job.
AFTER_MOVE_MS: Final = WITHOUT_ROW_MS
_MOST_NAMES: Final = 100  # of a record; ids and names are short, and a document holds 64 KiB


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What the old store keeps about a move: its token, where to, and what was not running before it
    began."""

    to: str
    token: str
    queues: dict[QueueName, QueueState] = {}
    schedules: tuple[str, ...] = ()
    is_finished: bool = False


def mark_in(reader: Reader) -> tuple[Mark, int] | None:
    """The mark of a move away from there, and its revision."""
    for document in reader.documents(KIND, [_NAME]):
        return msgspec.json.decode(document.body, type=Mark), document.revision
    return None


def write_mark(store: Store, mark: Mark, revision: int) -> bool:
    body = msgspec.json.encode(mark).decode()
    return store.save_document(Document(kind=KIND, name=_NAME, body=body, revision=revision))


def drop_mark(store: Store) -> None:
    store.drop_document(KIND, _NAME)


def is_expected(reader: Reader, token: str) -> bool:
    """Whether a store knows that this move goes there. One that was emptied meanwhile does not."""
    return bool(reader.documents(KIND, [token]))


def expect(store: Store, token: str) -> None:
    store.save_document(Document(kind=KIND, name=token, body=_EXPECTED))


def expect_no_more(store: Store, reader: Reader, token: str) -> None:
    """Write into the new store that the move to it is finished. The document stays: `keeps_blobs` needs the
    time at which it was written."""
    while (found := reader.documents(KIND, [token])) and found[0].body == _EXPECTED:
        store.save_document(replace(found[0], body=_ARRIVED))


def keeps_blobs(reader: Reader) -> bool:
    """Return whether a move forbids this store to remove blobs, even those of jobs that it does not have.

    Both stores of a move name their blobs with one id. The old store does not have the jobs that were
    enqueued in the new one, and the new store does not have the jobs that are still to be copied.
    """
    now = reader.now()
    return any(
        document.body != _ARRIVED or now < document.updated_at + AFTER_MOVE_MS
        for document in reader.documents(KIND)
    )


class Copied:
    """What has come to the new store, by id or name, as the old one remembers it. Who has been done there and
    is forgotten, or was deleted or dropped by somebody, must not be copied once more.

    Written after the new store has answered: a mover that is killed between the two finds it there next time.
    """

    def __init__(self, store: Store, reader: Reader, token: str) -> None:
        self._store = store
        self._reader = reader
        self._token = token
        self._known: set[str] = set()
        self._records = 0
        for document in self._documents():
            self._known.update(msgspec.json.decode(document.body, type=list[str]))
            self._records += 1

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __len__(self) -> int:
        return len(self._known)

    def add(self, names: Iterable[str]) -> None:
        fresh = [name for name in names if name not in self._known]
        for first in range(0, len(fresh), _MOST_NAMES):
            part = fresh[first : first + _MOST_NAMES]
            body = msgspec.json.encode(part).decode()
            while not self._store.save_document(Document(kind=COPIED, name=self._next(), body=body)):
                pass  # the number was taken by another mover; the next one is looked for
            self._known.update(part)

    def drop(self) -> None:
        for document in list(self._documents()):
            self._store.drop_document(COPIED, document.name)

    def _next(self) -> str:
        self._records += 1
        return f"{self._token}-{self._records:010}"

    def _documents(self) -> Iterator[Document]:
        after: str | None = None
        while found := self._reader.documents(COPIED, limit=MAX_PAGE, after=after):
            yield from (document for document in found if document.name.startswith(self._token))
            after = found[-1].name
