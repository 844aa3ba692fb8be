"""The id of a store. Names of blobs begin with it, and encrypted payloads are bound to it."""

from __future__ import annotations

from typing import Final

from forebay.domain.stored_document import Document
from forebay.errors import Forbidden, StoreUnavailable
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.id_generator import new_id

BLOB_PREFIX_KIND: Final = "blob_prefix"  # the kind of the document
_NAME: Final = "store"
_FORMER: Final = "former"  # prefix of the names of ids that came with a move


class StoreIdentity:
    """The id of one store: a document, created on first use and never removed. A program reads it once.

    After a move the store may have jobs of another store. The id of that store is stored too.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._id: str | None = None
        self._all: frozenset[str] = frozenset()
        self._is_hidden = False

    @property
    def is_read(self) -> bool:
        """True if the id for encryption is known, or known to be unreadable."""
        return self._id is not None or self._is_hidden

    def get_or_create(self) -> str:
        """Return the id; create it if there is none."""
        if self._id is None:
            self._id = self._find() or self._create()
        return self._id

    def require(self) -> str:
        """Return the id, for use inside a caller transaction. Its lock may block other writers, so no id is
        created there. Workers with blobs create one in their first minute."""
        if self._id is None:
            self._id = self._find()
        if self._id is None:
            raise StoreUnavailable("no blob of this store was written yet, and no worker with blobs has run")
        return self._id

    def for_encryption(self, *, create: bool) -> str | None:
        """Return the id that a new payload is bound to. None if it must not be created, and behind a service
        whose API key does not allow reading it."""
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
                # Read again on each miss: a move may have added an id. A payload in its own store misses at
                # most once per program.
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
            created = new_id()
            if store.save_document(Document(kind=BLOB_PREFIX_KIND, name=_NAME, body=created)):
                return created
        finally:
            store.close()
        # Another program was faster, and documents of this kind are never removed.
        stored = self._find()
        if stored is None:
            raise StoreUnavailable("the id of this store was removed while it was read")
        return stored


def copy_identity(old: Reader, store: Store, new: Reader) -> None:
    """Copy the id of the old store of a move to the new one. A store without an id takes over this id; one
    with an id of its own stores both."""
    old_id = _read_own_id(old)
    if old_id is None or _read_own_id(new) == old_id:
        return
    if not store.save_document(Document(kind=BLOB_PREFIX_KIND, name=_NAME, body=old_id)):
        store.save_document(Document(kind=BLOB_PREFIX_KIND, name=f"{_FORMER}.{old_id}", body=old_id))


def _read_own_id(reader: Reader) -> str | None:
    documents = reader.documents(BLOB_PREFIX_KIND, [_NAME])
    return documents[0].body if documents else None


def _read_ids(engine: Engine) -> list[str]:
    reader = engine.reader()
    try:
        return [document.body for document in reader.documents(BLOB_PREFIX_KIND)]
    finally:
        reader.close()
