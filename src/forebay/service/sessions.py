"""Sessions of browsers as documents: the store keeps the SHA-256 of an id, never the id.

Every server of a store knows every session. It believes what it has read for `SEEN_SECONDS`, as with keys.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from forebay.clock import Clock
from forebay.domain.document import Document
from forebay.domain.history import Event, EventKind
from forebay.domain.session import LoginSession
from forebay.errors import SessionNotFound, StoreError, StoreUnavailable
from forebay.service.api_keys import PAGE, SECRET_BYTES, digest_of
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store

T = TypeVar("T")

KIND: Final = "session"
SESSION_CACHE_SECONDS: Final = 5.0  # a session that was ended opens nothing after this time, on every server
MAX_PER_NAME: Final = 100  # of one name; the oldest gives way
SHORT: Final = 16  # letters of a digest that people see and type: 64 bits
_MAX_CACHED: Final = 10_000

_decoder: Final = msgspec.json.Decoder(LoginSession)


class StoredSession(NamedTuple):
    """A session as it is stored, under the digest of its id."""

    digest: str
    session: LoginSession
    revision: int

    @property
    def short(self) -> str:
        """What people call it."""
        return self.digest[:SHORT]


class ShownSession(NamedTuple):
    """The id of a session in a request. A request in the background is no use: its page asked by itself."""

    id: str
    is_background: bool = False


class SessionStore(Protocol):
    """What the cache needs of the store."""

    def read_fast(self, call: Callable[[Reader], T]) -> Awaitable[T]: ...

    def write(self, call: Callable[[Store], T]) -> Awaitable[T]: ...


class SessionAdmin:
    """Begin, list and end sessions, each with its line in the audit log in the same transaction."""

    def __init__(self, store: Store, reader: Reader, *, actor: str) -> None:
        self._store = store
        self._reader = reader
        self._actor = actor

    def begin(self, session: LoginSession) -> str:
        """Save a session and return its id. Removes those that are over, and the oldest of too many."""
        session_id = secrets.token_urlsafe(SECRET_BYTES)
        kept = StoredSession(digest_of(session_id), session, 0)
        self._make_room(session)
        save_session(self._store, kept, self._event("began", kept))
        return session_id

    def list_active(self) -> list[StoredSession]:
        """Return those that have not come to their end, the newest first."""
        now = self._reader.now()
        found = [kept for kept in all_sessions(self._reader) if kept.session.is_active(now)]
        return sorted(found, key=lambda kept: kept.session.created_at, reverse=True)

    def end(self, session_id: str) -> None:
        """End the session with this id, if there is one."""
        for document in self._reader.documents(KIND, [digest_of(session_id)]):
            self._drop(filter(None, [_parse_session(document)]), "ended")

    def revoke(self, short: str) -> StoredSession:
        """End the session that people call so; raises SessionNotFound."""
        found = [kept for kept in self.list_active() if kept.short == short]
        if not self._drop(found, "revoked"):
            raise SessionNotFound(
                f"there is no session {short:.60}; `forebay sessions list` shows those there are"
            )
        return found[0]

    def revoke_all(self, name: str | None) -> list[StoredSession]:
        """End all sessions of a name, or all there are."""
        return self._drop(
            [kept for kept in self.list_active() if name in (None, kept.session.name)], "revoked"
        )

    def _make_room(self, session: LoginSession) -> None:
        found = all_sessions(self._reader)
        is_over = [kept for kept in found if not kept.session.is_active(session.created_at)]
        for kept in is_over:
            self._store.drop_document(KIND, kept.digest)
        others = [kept for kept in found if kept.session.name == session.name and kept not in is_over]
        others.sort(key=lambda kept: kept.session.created_at)
        self._drop(others[: max(0, len(others) - MAX_PER_NAME + 1)], "ended")

    def _drop(self, sessions: Iterable[StoredSession], action: str) -> list[StoredSession]:
        return [
            kept
            for kept in sessions
            if self._store.drop_document(KIND, kept.digest, event=self._event(action, kept))
        ]

    def _event(self, action: str, stored: StoredSession) -> Event:
        detail = f"{action} session {stored.short} of {stored.session.name}"
        return Event(kind=EventKind.API_KEY_CHANGED, actor=self._actor, detail=detail)


class SessionCacheEntry(NamedTuple):
    """What was read of a session, and when; `kept` is None where there is none."""

    stored: StoredSession | None
    at: float


class SessionCache:
    """What a server knows of sessions.

    Requests that ask for sessions at the same time share one read, and there is one read at a time. So
    invented ids cost the store little, however many are tried.
    """

    def __init__(self, pool: SessionStore, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._entries: dict[str, SessionCacheEntry] = {}
        self._requested: set[str] = set()
        self._load_lock = asyncio.Lock()

    async def find(self, session_id: str) -> LoginSession | None:
        """Return the session of this id; None where there is none."""
        entry = await self._load_entry(digest_of(session_id))
        return None if entry is None or entry.stored is None else entry.stored.session

    async def use(self, session_id: str, now: int) -> None:
        """Save that a session is used now, if that is worth a write."""
        digest = digest_of(session_id)
        entry = self._entries.get(digest)
        if entry is None or entry.stored is None or not entry.stored.session.is_use_due(now):
            return
        kept = entry.stored
        used = kept._replace(session=kept.session.use(now))
        # Before the write: requests that come meanwhile need not write the same.
        self._entries[digest] = SessionCacheEntry(used._replace(revision=kept.revision + 1), entry.at)
        if not await self._pool.write(partial(save_session, stored=used, event=None)):
            self._entries.pop(digest, None)  # another server has saved it, or it was ended

    def forget(self, session_id: str) -> None:
        """Take note that a session was ended."""
        # A read that is under way may still have found it: its entry would be older than this one.
        self._store_entry(digest_of(session_id), SessionCacheEntry(None, self._clock.monotonic()))

    async def _load_entry(self, digest: str) -> SessionCacheEntry | None:
        if not self._is_fresh(digest):
            self._requested.add(digest)
            async with self._load_lock:
                if not self._is_fresh(digest):  # a read for another request may have brought it
                    await self._load(digest)
        return self._entries.get(digest)

    async def _load(self, digest: str) -> None:
        self._requested.discard(digest)
        asked = {digest, *islice(self._requested, PAGE - 1)}
        self._requested -= asked
        at = self._clock.monotonic()
        try:
            documents = await self._pool.read_fast(lambda reader: reader.documents(KIND, sorted(asked)))
        except StoreError as exc:  # the caller may be a stranger, who is told nothing of the store's address
            raise StoreUnavailable("the store does not answer, so no session can be checked") from exc
        found = {kept.digest: kept for one in documents if (kept := _parse_session(one)) is not None}
        for one in asked:
            self._store_entry(one, SessionCacheEntry(found.get(one), at))

    def _store_entry(self, digest: str, entry: SessionCacheEntry) -> None:
        before = self._entries.pop(digest, None)
        self._entries[digest] = before if before is not None and before.at > entry.at else entry
        while len(self._entries) > _MAX_CACHED:
            del self._entries[next(iter(self._entries))]

    def _is_fresh(self, digest: str) -> bool:
        entry = self._entries.get(digest)
        return entry is not None and self._clock.monotonic() - entry.at < SESSION_CACHE_SECONDS


def all_sessions(reader: Reader) -> list[StoredSession]:
    """Every session in the store, those that are over among them."""
    found: list[Document] = []
    while True:
        page = reader.documents(KIND, limit=PAGE, after=found[-1].name if found else None)
        found += page
        if len(page) < PAGE:
            return [kept for one in found if (kept := _parse_session(one)) is not None]


def save_session(store: Store, stored: StoredSession, event: Event | None) -> bool:
    """Write a session; false if it is another one by now."""
    body = msgspec.json.encode(stored.session).decode()
    document = Document(kind=KIND, name=stored.digest, body=body, revision=stored.revision)
    return store.save_document(document, event=event)


def _parse_session(document: Document) -> StoredSession | None:
    """None for one that cannot be read, which therefore opens nothing."""
    try:
        return StoredSession(document.name, _decoder.decode(document.body), document.revision)
    except ValueError:
        return None
