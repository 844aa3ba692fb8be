"""Browser sessions as documents. The store has the SHA-256 of a session id, never the id.

Every server of a store accepts every session. It caches sessions for `SESSION_CACHE_SECONDS`, as it does
keys.
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
from forebay.domain.job_history import Event, EventKind
from forebay.domain.login_session import LoginSession
from forebay.domain.stored_document import Document
from forebay.errors import SessionNotFound, StoreError, StoreUnavailable
from forebay.service.api_keys import PAGE, SECRET_BYTES, digest_of
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store

T = TypeVar("T")

KIND: Final = "session"
SESSION_CACHE_SECONDS: Final = (
    5.0  # an ended session is rejected on every server after this time at the latest
)
MAX_PER_NAME: Final = 100  # sessions of one name; the oldest is ended first
SHORT: Final = 16  # digits of a digest that people see and type: 64 bits
_MAX_CACHED: Final = 10_000

_decoder: Final = msgspec.json.Decoder(LoginSession)


class StoredSession(NamedTuple):
    """Stored session, under the digest of its id."""

    digest: str
    session: LoginSession
    revision: int

    @property
    def short(self) -> str:
        """Short name of the session, for people."""
        return self.digest[:SHORT]


class ShownSession(NamedTuple):
    """Session id in a request. A background request, which the page makes by itself, does not count as
    use."""

    id: str
    is_background: bool = False


class SessionStore(Protocol):
    """Store calls of the cache."""

    def read_fast(self, call: Callable[[Reader], T]) -> Awaitable[T]: ...

    def write(self, call: Callable[[Store], T]) -> Awaitable[T]: ...


class SessionAdmin:
    """Administration of sessions. Each change writes its audit event in the same transaction."""

    def __init__(self, store: Store, reader: Reader, *, actor: str) -> None:
        self._store = store
        self._reader = reader
        self._actor = actor

    def begin(self, session: LoginSession) -> str:
        """Save a session and return its id. Removes expired sessions, and the oldest of the name beyond the
        maximum."""
        session_id = secrets.token_urlsafe(SECRET_BYTES)
        stored = StoredSession(digest_of(session_id), session, 0)
        self._make_room(session)
        save_session(self._store, stored, self._event("began", stored))
        return session_id

    def list_active(self) -> list[StoredSession]:
        """Return the active sessions, newest first."""
        now = self._reader.now()
        active = [stored for stored in all_sessions(self._reader) if stored.session.is_active(now)]
        return sorted(active, key=lambda stored: stored.session.created_at, reverse=True)

    def end(self, session_id: str) -> None:
        """End the session with this id, if there is one."""
        for document in self._reader.documents(KIND, [digest_of(session_id)]):
            self._drop(filter(None, [_parse_session(document)]), "ended")

    def revoke(self, short: str) -> StoredSession:
        """End the session with this short name; raises SessionNotFound."""
        found = [stored for stored in self.list_active() if stored.short == short]
        if not self._drop(found, "revoked"):
            raise SessionNotFound(
                f"there is no session {short:.60}; `forebay sessions list` shows those there are"
            )
        return found[0]

    def revoke_all(self, name: str | None) -> list[StoredSession]:
        """End all sessions of a name, or of all names."""
        return self._drop(
            [stored for stored in self.list_active() if name in (None, stored.session.name)], "revoked"
        )

    def _make_room(self, session: LoginSession) -> None:
        known = all_sessions(self._reader)
        expired = [stored for stored in known if not stored.session.is_active(session.created_at)]
        for stored in expired:
            self._store.drop_document(KIND, stored.digest)
        active = [stored for stored in known if stored.session.name == session.name and stored not in expired]
        active.sort(key=lambda stored: stored.session.created_at)
        self._drop(active[: max(0, len(active) - MAX_PER_NAME + 1)], "ended")

    def _drop(self, sessions: Iterable[StoredSession], action: str) -> list[StoredSession]:
        return [
            stored
            for stored in sessions
            if self._store.drop_document(KIND, stored.digest, event=self._event(action, stored))
        ]

    def _event(self, action: str, stored: StoredSession) -> Event:
        detail = f"{action} session {stored.short} of {stored.session.name}"
        return Event(kind=EventKind.API_KEY_CHANGED, actor=self._actor, detail=detail)


class SessionCacheEntry(NamedTuple):
    """Result of a read, with its time; `stored` is None if there is no such session."""

    stored: StoredSession | None
    at: float


class SessionCache:
    """Sessions that a server has read.

    Concurrent requests share one read, and there is one read at a time. So guessed ids cost the store little,
    however many come.
    """

    def __init__(self, pool: SessionStore, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._entries: dict[str, SessionCacheEntry] = {}
        self._requested: set[str] = set()
        self._load_lock = asyncio.Lock()

    async def find(self, session_id: str) -> LoginSession | None:
        """Return the session of this id; None if there is none."""
        entry = await self._load_entry(digest_of(session_id))
        return None if entry is None or entry.stored is None else entry.stored.session

    async def use(self, session_id: str, now: int) -> None:
        """Save the time of use, if the saved one is old enough to be worth a write."""
        digest = digest_of(session_id)
        entry = self._entries.get(digest)
        if entry is None or entry.stored is None or not entry.stored.session.is_use_due(now):
            return
        used = entry.stored._replace(session=entry.stored.session.use(now))
        # Before the write, so that concurrent requests do not write the same.
        self._entries[digest] = SessionCacheEntry(used._replace(revision=used.revision + 1), entry.at)
        if not await self._pool.write(partial(save_session, stored=used, event=None)):
            self._entries.pop(digest, None)  # another server has saved the use, or the session was ended

    def forget(self, session_id: str) -> None:
        """Record that a session was ended."""
        # A read in flight may still return it; its entry will be older than this one and lose.
        self._store_entry(digest_of(session_id), SessionCacheEntry(None, self._clock.monotonic()))

    async def _load_entry(self, digest: str) -> SessionCacheEntry | None:
        if not self._is_fresh(digest):
            self._requested.add(digest)
            async with self._load_lock:
                if not self._is_fresh(digest):  # the read of another request may have included it
                    await self._load(digest)
        return self._entries.get(digest)

    async def _load(self, digest: str) -> None:
        self._requested.discard(digest)
        batch = {digest, *islice(self._requested, PAGE - 1)}
        self._requested -= batch
        at = self._clock.monotonic()
        try:
            documents = await self._pool.read_fast(lambda reader: reader.documents(KIND, sorted(batch)))
        except (
            StoreError
        ) as exc:  # the client may be unknown, so the answer does not name the store's address
            raise StoreUnavailable("the store does not answer, so no session can be checked") from exc
        found = {
            stored.digest: stored
            for document in documents
            if (stored := _parse_session(document)) is not None
        }
        for requested in batch:
            self._store_entry(requested, SessionCacheEntry(found.get(requested), at))

    def _store_entry(self, digest: str, entry: SessionCacheEntry) -> None:
        before = self._entries.pop(digest, None)
        self._entries[digest] = before if before is not None and before.at > entry.at else entry
        while len(self._entries) > _MAX_CACHED:
            del self._entries[next(iter(self._entries))]

    def _is_fresh(self, digest: str) -> bool:
        entry = self._entries.get(digest)
        return entry is not None and self._clock.monotonic() - entry.at < SESSION_CACHE_SECONDS


def all_sessions(reader: Reader) -> list[StoredSession]:
    """Return every session in the store, expired ones included."""
    found: list[Document] = []
    while True:
        page = reader.documents(KIND, limit=PAGE, after=found[-1].name if found else None)
        found += page
        if len(page) < PAGE:
            return [stored for document in found if (stored := _parse_session(document)) is not None]


def save_session(store: Store, stored: StoredSession, event: Event | None) -> bool:
    """Write a session; return false if another write has changed it since it was read."""
    body = msgspec.json.encode(stored.session).decode()
    document = Document(kind=KIND, name=stored.digest, body=body, revision=stored.revision)
    return store.save_document(document, event=event)


def _parse_session(document: Document) -> StoredSession | None:
    """Return the session in a document; None for an unreadable one, which is therefore never accepted."""
    try:
        return StoredSession(document.name, _decoder.decode(document.body), document.revision)
    except ValueError:
        return None
