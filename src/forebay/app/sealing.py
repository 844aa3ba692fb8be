"""Keys that make payloads and results unreadable to whoever has the store and not the keys.

AES-256-GCM. The id of the key stands in the header of what was sealed, so that several keys can be in use:
the first one seals, all of them open. What is sealed is bound to its place (`about`): it opens nowhere else.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from forebay.app.codec import framed
from forebay.errors import ConfigError, CorruptPayload

KEY_BYTES: Final = 32
# With one key and chosen by chance, nonces of this length may be used some billions of times.
_NONCE: Final = 12
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}\Z")


class Keys:
    """The keys of a program by their ids, the newest first; a key is 32 bytes, or the base64 of them.

    Keys({"2026-11": "q83v...", "2026-05": "AAEC..."})
    Keys("2026-11=q83v...,2026-05=AAEC...")
    """

    def __init__(self, keys: Mapping[str, bytes | str] | str) -> None:
        pairs = _pairs(keys) if isinstance(keys, str) else dict(keys)
        if not pairs:
            raise ConfigError("there is no encryption key: give at least one, the newest first")
        aead = _aead()
        self._opening = {_name(key_id, key): aead(key) for key_id, key in _checked(pairs).items()}
        self._newest, self._sealing = next(iter(self._opening.items()))

    @property
    def names(self) -> tuple[str, ...]:
        """What headers call these keys: the id, and a few digits by which another key of this id is known."""
        return tuple(self._opening)

    def sealed(self, data: bytes, about: str) -> bytes:
        """The bytes under the newest key; only `opened` with the same words about them gives them back."""
        nonce = os.urandom(_NONCE)
        return framed(nonce + self._sealing.encrypt(nonce, data, about.encode()), key=self._newest)

    def opened(self, key: str, body: bytes, about: str) -> bytes | None:
        """What was sealed; None without its key. Raises CorruptPayload if it was changed, or moved here."""
        found = self._opening.get(key)
        if found is None:
            return None
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - programs without keys never load it

        try:
            plain: bytes = found.decrypt(body[:_NONCE], body[_NONCE:], about.encode())
        except (InvalidTag, ValueError) as exc:
            raise CorruptPayload(
                f"encrypted with the key {key}, and changed since or brought from elsewhere", field="payload"
            ) from exc
        return plain

    def __repr__(self) -> str:
        return f"<Keys {', '.join(self._opening)}>"


def _pairs(text: str) -> dict[str, bytes | str]:
    pairs: dict[str, bytes | str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        key_id, sign, key = part.partition("=")
        if not sign or key_id in pairs:
            # Whatever it is, it may hold a key: it is not quoted.
            raise ConfigError("encryption keys are written as id=base64,id=base64, each id once")
        pairs[key_id] = key
    return pairs


def _checked(pairs: Mapping[str, bytes | str]) -> dict[str, bytes]:
    checked: dict[str, bytes] = {}
    for key_id, key in pairs.items():
        if not _ID.match(str(key_id)):
            raise ConfigError("the id of an encryption key is 1 to 40 letters, digits, _ or -")
        checked[key_id] = _bytes(key_id, key)
    return checked


def _bytes(key_id: str, key: bytes | str) -> bytes:
    try:
        found = b64decode(key, validate=True) if isinstance(key, str) else bytes(key)
    except (ValueError, TypeError):
        found = b""
    if len(found) != KEY_BYTES:
        raise ConfigError(f"the encryption key {key_id} must be {KEY_BYTES} bytes, or the base64 of them")
    return found


def _name(key_id: str, key: bytes) -> str:
    # So that another key under the same id, by mistake, is known for what it is: jobs wait for the right one
    # instead of going to the dead letters. Eight digits of a hash say nothing about 32 random bytes.
    return f"{key_id}.{sha256(b'forebay key ' + key).hexdigest()[:8]}"


def _aead() -> type:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above
    except ModuleNotFoundError as exc:
        raise ConfigError("encryption needs cryptography: pip install 'forebay[crypto]'") from exc
    return AESGCM
