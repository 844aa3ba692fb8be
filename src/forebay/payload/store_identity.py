"""The id of a store. Names of blobs begin with it, and encrypted payloads are bound to it."""

from __future__ import annotations

from typing import Final

from forebay.domain.document import Document
from forebay.errors import Forbidden, StoreUnavailable
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.ids import new_id

BLOB_PREFIX_KIND: Final = "blob_prefix"  # the kind of the document
_NAME: Final = "store"
_FORMER: Final = "former"  # names of ids that came with a move begin with it


class StoreIdentity:
    """The id of one store: a document, made at the first use and never removed. A program reads it once.

    After a move the store may hold jobs of another store. That store's id is kept beside its own.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._id: str | None = None
        self._all: frozenset[str] = frozenset()
        self._is_hidden = False

    @property
    def is_read(self) -> bool:
        """Whether the id for encryption is known, or known to be out of reach."""
        return self._id is not None or self._is_hidden

    def get_or_create(self) -> str:
        """The id, made if there is none."""
        if self._id is None:
            self._id = self._find() or self._create()
        return self._id

    def require(self) -> str:
        """The id, for use inside a transaction of the caller: its lock may block other writers, so none is
        made there. Workers with blobs make one in their first minute."""
        if self._id is None:
            self._id = self._find()
        if self._id is None:
            raise StoreUnavailable("no blob of this store was written yet, and no worker with blobs has run")
        return self._id

    def for_encryption(self, *, create: bool) -> str | None:
        """The id that a new payload is bound to. None where it must not be made, and behind a service whose
        API key does not allow to read it."""
        if not self.is_read:
            try:
                self._id = self.get_or_create() if create else self._find()
            except Forbidden:
                self._is_hidden = True  # the payload is bound to its queue all the same
        return self._id

    def is_ours(self, store_id: str) -> bool:
        """Return whether a payload that is bound to this id belongs here."""
        if store_id not in self._all and not self._is_hidden:
            try:
                # Read again on each miss: a move may have brought an id meanwhile. A payload that is in its
                # place misses at most once per program.
                self._all = frozenset(_read_ids(self._engine))
            except Forbidden:
                self._is_hidden = True
        return self._is_hidden or store_id in self._all

    def _find(self) -> str | None:
        reader = self._engine.reader()
        try:
            return _read_own_id(reader)
        finally:
            reader.close()

    def _create(self) -> str:
        store = self._engine.store()
        try:
            made = new_id()
            if store.save_document(Document(kind=BLOB_PREFIX_KIND, name=_NAME, body=made)):
                return made
        finally:
            store.close()
        # Another program was faster, and documents of this kind are never removed.
        found = self._find()
        if found is None:
            raise StoreUnavailable("the id of this store was removed while it was asked for")
        return found


def copy_identity(old: Reader, store: Store, new: Reader) -> None:
    """Let the new store of a move know the id of the old one. A store without an id takes over that of the
    old store; one with its own keeps the other beside it."""
    came = _read_own_id(old)
    if came is None or _read_own_id(new) == came:
        return
    if not store.save_document(Document(kind=BLOB_PREFIX_KIND, name=_NAME, body=came)):
        store.save_document(Document(kind=BLOB_PREFIX_KIND, name=f"{_FORMER}.{came}", body=came))


def _read_own_id(reader: Reader) -> str | None:
    found = reader.documents(BLOB_PREFIX_KIND, [_NAME])
    return found[0].body if found else None


def _read_ids(engine: Engine) -> list[str]:
    reader = engine.reader()
    try:
        return [document.body for document in reader.documents(BLOB_PREFIX_KIND)]
    finally:
        reader.close()
