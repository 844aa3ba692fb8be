"""Administration of API keys. A key is a document; its secret is shown once."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import asdict

from forebay.domain.api_key import NO_QUOTA, ApiKey, Grant, KeyState, Quota, key_changes
from forebay.domain.job_history import Event, EventKind
from forebay.domain.stored_document import Document
from forebay.errors import ApiKeyNotFound, IllegalTransition, StoreUnavailable
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store

KIND: Final = "api_key"
# Marks a token as one of Forebay for people and for secret scanners.
PREFIX: Final = "fbk_"
SECRET_BYTES: Final = 32
PAGE: Final = 1_000
MAX_ATTEMPTS: Final = 20

_decoder: Final = msgspec.json.Decoder(ApiKey)


class NewKey(NamedTuple):
    """New key with its token, which cannot be read again."""

    key: ApiKey
    token: str


class StoredKey(NamedTuple):
    """Stored key; `revision` is the one that the next write must have seen."""

    key: ApiKey
    revision: int


def digest_of(secret: str) -> str:
    """Return the digest that is stored instead of a secret."""
    # A header may hold bytes that are no text; a guess with such bytes must not raise an internal error.
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def parse_token(token: str) -> tuple[str, str]:
    """Return the name of a key and its secret; two empty texts if this is no token of Forebay."""
    name, dot, secret = token.removeprefix(PREFIX).rpartition(".")
    return (name, secret) if dot and token.startswith(PREFIX) else ("", "")


class ApiKeyAdmin:
    """Administration of API keys. Each change writes its audit event in the same transaction."""

    def __init__(self, store: Store, reader: Reader, *, actor: str) -> None:
        self._store = store
        self._reader = reader
        self._actor = actor

    def create(
        self,
        name: str,
        grants: Sequence[Grant],
        *,
        lasts_ms: int | None = None,
        rate: int | None = None,
        burst: int | None = None,
        tasks: Sequence[str] = (),
        limit_keys: Sequence[str] = (),
        quota: Quota = NO_QUOTA,
    ) -> NewKey:
        """Create a key. The name of an expired or revoked key may be used again."""
        now = self._reader.now()
        token, digest = _new_token(name)
        key = ApiKey(
            name=name,
            grants=tuple(grants),
            digest=digest,
            created_at=now,
            expires_at=None if lasts_ms is None else now + lasts_ms,
            rate=rate,
            burst=burst,
            tasks=tuple(tasks),
            limit_keys=tuple(limit_keys),
            **asdict(quota),
        )
        old = _find_key(self._reader, name)
        if old is not None and old.key.state(now) is KeyState.ACTIVE:
            raise IllegalTransition(
                f"there is a key {name} already; rotate it, revoke it or use another name"
            )
        if not self._save(StoredKey(key, 0 if old is None else old.revision), None, "created"):
            raise IllegalTransition(f"a key {name} was just created by another client; use another name")
        return NewKey(key, token)

    def rotate(self, name: str, *, grace_ms: int = 0) -> NewKey:
        """Give a key a new secret; the old one stays valid for `grace_ms`."""
        token, digest = _new_token(name)
        return NewKey(
            self._update_with_retry(name, lambda key, now: key.rotate(digest, now, grace_ms), "rotated"),
            token,
        )

    def revoke(self, name: str) -> ApiKey:
        """Revoke a key; servers reject it within `auth.KEY_CACHE_SECONDS`."""
        return self._update_with_retry(name, lambda key, now: key.revoke(now), "revoked")

    def get(self, name: str) -> ApiKey:
        """Return a key; raises ApiKeyNotFound."""
        return self._require(name).key

    def _require(self, name: str) -> StoredKey:
        stored = _find_key(self._reader, name)
        if stored is None:
            raise ApiKeyNotFound(f"there is no key {name}; `forebay keys list` shows those there are")
        return stored

    def _update_with_retry(self, name: str, change: Callable[[ApiKey, int], ApiKey], action: str) -> ApiKey:
        for _ in range(MAX_ATTEMPTS):
            stored, now = self._require(name), self._reader.now()
            if stored.key.state(now) is KeyState.REVOKED:
                raise IllegalTransition(f"key {name} was revoked")
            changed = change(stored.key, now)
            if self._save(StoredKey(changed, stored.revision), stored.key, action):
                return changed
        raise StoreUnavailable(f"key {name} was changed by other clients {MAX_ATTEMPTS} times; try again")

    def _save(self, stored: StoredKey, before: ApiKey | None, action: str) -> bool:
        event = Event(
            kind=EventKind.API_KEY_CHANGED,
            actor=self._actor,
            detail=f"{action} {stored.key.name}",
            changes=key_changes(before, stored.key),
        )
        return save_key(self._store, stored, event)


def all_keys(reader: Reader) -> list[StoredKey]:
    """Return every key by name, expired and revoked ones included."""
    found: list[Document] = []
    while True:
        page = reader.documents(KIND, limit=PAGE, after=found[-1].name if found else None)
        found += page
        if len(page) < PAGE:
            return [stored for document in found if (stored := _parse_key(document)) is not None]


def save_key(store: Store, stored: StoredKey, event: Event | None) -> bool:
    """Write a key; return false if another write has changed it since it was read."""
    body = msgspec.json.encode(stored.key).decode()
    document = Document(kind=KIND, name=stored.key.name, body=body, revision=stored.revision)
    return store.save_document(document, event=event)


def _find_key(reader: Reader, name: str) -> StoredKey | None:
    found = reader.documents(KIND, [name])
    return _parse_key(found[0]) if found else None


def _parse_key(document: Document) -> StoredKey | None:
    """Return the key in a document; None for an unreadable one, which is therefore never accepted."""
    try:
        return StoredKey(_decoder.decode(document.body), document.revision)
    except ValueError:
        return None


def _new_token(name: str) -> tuple[str, str]:
    secret = secrets.token_urlsafe(SECRET_BYTES)
    return f"{PREFIX}{name}.{secret}", digest_of(secret)
