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
from forebay.domain.session import Session
from forebay.errors import SessionNotFound, StoreError, StoreUnavailable
from forebay.service.keys import PAGE, SECRET_BYTES, digest_of
from forebay.stores.protocol import Reader, Store

T = TypeVar("T")

KIND: Final = "session"
SEEN_SECONDS: Final = 5.0  # a session that was ended opens nothing after this time, on every server
MOST_EACH: Final = 100  # of one name; the oldest gives way
SHORT: Final = 16  # letters of a digest that people see and type: 64 bits
_MOST_KNOWN: Final = 10_000

_decoder: Final = msgspec.json.Decoder(Session)


class Kept(NamedTuple):
    """A session as it is stored, under the digest of its id."""

    digest: str
    session: Session
    revision: int

    @property
    def short(self) -> str:
        """What people call it."""
        return self.digest[:SHORT]


class ShownSession(NamedTuple):
    """The id of a session in a request. A request in the background is no use: its page asked by itself."""

    id: str
    is_background: bool = False


class ReadsAndWrites(Protocol):
    """What the cache needs of the store."""

    def holding(self, call: Callable[[Reader], T]) -> Awaitable[T]: ...

    def write(self, call: Callable[[Store], T]) -> Awaitable[T]: ...


class Sessions:
    """Begin, list and end sessions, each with its line in the audit log in the same transaction."""

    def __init__(self, store: Store, reader: Reader, *, actor: str) -> None:
        self._store = store
        self._reader = reader
        self._actor = actor

    def begin(self, session: Session) -> str:
        """Save a session and return its id. Removes those that are over, and the oldest of too many."""
        session_id = secrets.token_urlsafe(SECRET_BYTES)
        kept = Kept(digest_of(session_id), session, 0)
        self._make_room(session)
        save(self._store, kept, self._event("began", kept))
        return session_id

    def active(self) -> list[Kept]:
        """Return those that have not come to their end, the newest first."""
        now = self._reader.now()
        found = [kept for kept in all_sessions(self._reader) if kept.session.is_active(now)]
        return sorted(found, key=lambda kept: kept.session.created_at, reverse=True)

    def end(self, session_id: str) -> None:
        """End the session with this id, if there is one."""
        for document in self._reader.documents(KIND, [digest_of(session_id)]):
            self._drop(filter(None, [_kept(document)]), "ended")

    def revoke(self, short: str) -> Kept:
        """End the session that people call so; raises SessionNotFound."""
        found = [kept for kept in self.active() if kept.short == short]
        if not self._drop(found, "revoked"):
            raise SessionNotFound(
                f"there is no session {short:.60}; `forebay sessions list` shows those there are"
            )
        return found[0]

    def revoke_of(self, name: str | None) -> list[Kept]:
        """End all sessions of a name, or all there are."""
        return self._drop([kept for kept in self.active() if name in (None, kept.session.name)], "revoked")

    def _make_room(self, session: Session) -> None:
        found = all_sessions(self._reader)
        is_over = [kept for kept in found if not kept.session.is_active(session.created_at)]
        for kept in is_over:
            self._store.drop_document(KIND, kept.digest)
        others = [kept for kept in found if kept.session.name == session.name and kept not in is_over]
        others.sort(key=lambda kept: kept.session.created_at)
        self._drop(others[: max(0, len(others) - MOST_EACH + 1)], "ended")

    def _drop(self, found: Iterable[Kept], what: str) -> list[Kept]:
        return [
            kept
            for kept in found
            if self._store.drop_document(KIND, kept.digest, event=self._event(what, kept))
        ]

    def _event(self, what: str, kept: Kept) -> Event:
        detail = f"{what} session {kept.short} of {kept.session.name}"
        return Event(kind=EventKind.KEY, actor=self._actor, detail=detail)


class Entry(NamedTuple):
    """What was read of a session, and when; `kept` is None where there is none."""

    kept: Kept | None
    at: float


class SessionCache:
    """What a server knows of sessions.

    Requests that ask for sessions at the same time share one read, and there is one read at a time. So
    invented ids cost the store little, however many are tried.
    """

    def __init__(self, desk: ReadsAndWrites, clock: Clock) -> None:
        self._desk = desk
        self._clock = clock
        self._known: dict[str, Entry] = {}
        self._asked: set[str] = set()
        self._reading = asyncio.Lock()

    async def find(self, session_id: str) -> Session | None:
        """Return the session of this id; None where there is none."""
        entry = await self._entry(digest_of(session_id))
        return None if entry is None or entry.kept is None else entry.kept.session

    async def use(self, session_id: str, now: int) -> None:
        """Save that a session is used now, if that is worth a write."""
        digest = digest_of(session_id)
        entry = self._known.get(digest)
        if entry is None or entry.kept is None or not entry.kept.session.is_use_due(now):
            return
        kept = entry.kept
        used = kept._replace(session=kept.session.use(now))
        # Before the write: requests that come meanwhile need not write the same.
        self._known[digest] = Entry(used._replace(revision=kept.revision + 1), entry.at)
        if not await self._desk.write(partial(save, kept=used, event=None)):
            self._known.pop(digest, None)  # another server has saved it, or it was ended

    def forget(self, session_id: str) -> None:
        """Take note that a session was ended."""
        # A read that is under way may still have found it: its entry would be older than this one.
        self._note(digest_of(session_id), Entry(None, self._clock.monotonic()))

    async def _entry(self, digest: str) -> Entry | None:
        if not self._is_fresh(digest):
            self._asked.add(digest)
            async with self._reading:
                if not self._is_fresh(digest):  # a read for another request may have brought it
                    await self._read(digest)
        return self._known.get(digest)

    async def _read(self, digest: str) -> None:
        self._asked.discard(digest)
        asked = {digest, *islice(self._asked, PAGE - 1)}
        self._asked -= asked
        at = self._clock.monotonic()
        try:
            documents = await self._desk.holding(lambda reader: reader.documents(KIND, sorted(asked)))
        except StoreError as exc:  # the caller may be a stranger, who is told nothing of the store's address
            raise StoreUnavailable("the store does not answer, so no session can be checked") from exc
        found = {kept.digest: kept for one in documents if (kept := _kept(one)) is not None}
        for one in asked:
            self._note(one, Entry(found.get(one), at))

    def _note(self, digest: str, entry: Entry) -> None:
        before = self._known.pop(digest, None)
        self._known[digest] = before if before is not None and before.at > entry.at else entry
        while len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]

    def _is_fresh(self, digest: str) -> bool:
        entry = self._known.get(digest)
        return entry is not None and self._clock.monotonic() - entry.at < SEEN_SECONDS


def all_sessions(reader: Reader) -> list[Kept]:
    """Every session in the store, those that are over among them."""
    found: list[Document] = []
    while True:
        page = reader.documents(KIND, limit=PAGE, after=found[-1].name if found else None)
        found += page
        if len(page) < PAGE:
            return [kept for one in found if (kept := _kept(one)) is not None]


def save(store: Store, kept: Kept, event: Event | None) -> bool:
    """Write a session; false if it is another one by now."""
    body = msgspec.json.encode(kept.session).decode()
    document = Document(kind=KIND, name=kept.digest, body=body, revision=kept.revision)
    return store.save_document(document, event=event)


def _kept(document: Document) -> Kept | None:
    """None for one that cannot be read, which therefore opens nothing."""
    try:
        return Kept(document.name, _decoder.decode(document.body), document.revision)
    except ValueError:
        return None
