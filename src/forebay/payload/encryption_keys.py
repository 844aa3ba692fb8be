"""Encryption keys of payloads and results: only programs with the keys can read them.

The cipher is XAES-256-GCM. The header of the ciphertext names the key, so several keys can be in use: the
first one encrypts, all of them decrypt. The associated data binds the ciphertext to its place: the text
`context`, and all other fields of the header.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from forebay.errors import ConfigError, CorruptPayload
from forebay.payload.codec import frame

if TYPE_CHECKING:
    from forebay.payload.xaes_gcm import Xaes

KEY_BYTES: Final = 32
ALGORITHM: Final = "xaes"
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}\Z")


class EncryptionKeys:
    """The keys of a program by their ids, the newest first; a key is 32 bytes, or the base64 of them.

    EncryptionKeys({"2026-11": "q83v...", "2026-05": "AAEC..."})
    EncryptionKeys("2026-11=q83v...,2026-05=AAEC...")
    """

    def __init__(self, keys: Mapping[str, bytes | str] | str) -> None:
        pairs = _parse_pairs(keys) if isinstance(keys, str) else dict(keys)
        if not pairs:
            raise ConfigError("there is no encryption key: give at least one, the newest first")
        cipher = _load_cipher()
        self._ciphers = {_key_name(key_id, key): cipher(key) for key_id, key in _check_pairs(pairs).items()}
        self._newest_name, self._newest_cipher = next(iter(self._ciphers.items()))

    @property
    def names(self) -> tuple[str, ...]:
        """The key names in headers: the id, and a few digits that tell apart two keys of one id."""
        return tuple(self._ciphers)

    def encrypt(self, data: bytes, context: str, **bindings: str) -> bytes:
        """Encrypt with the newest key. The header contains the `bindings`, and the associated data binds
        them."""
        fields = {"alg": ALGORITHM, **bindings}
        body = self._newest_cipher.encrypt(data, _associated_data(context, fields))
        return frame(body, key=self._newest_name, **fields)

    def decrypt(self, fields: Mapping[str, str], body: bytes, context: str) -> bytes | None:
        """Decrypt a body with these header fields; return None without the key. Raises CorruptPayload if the
        ciphertext was changed, or belongs to another place."""
        cipher = self._ciphers.get(fields["key"])
        if cipher is None:
            return None
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - programs without keys never load it

        decrypt = cipher.decrypt if "alg" in fields else cipher.decrypt_gcm
        try:
            return decrypt(body, _associated_data(context, fields))
        except (InvalidTag, ValueError) as exc:
            raise CorruptPayload(
                f"encrypted with the key {fields['key']}, and changed since or brought from elsewhere",
                field="payload",
            ) from exc

    def __repr__(self) -> str:
        return f"<Keys {', '.join(self._ciphers)}>"


def _parse_pairs(text: str) -> dict[str, bytes | str]:
    pairs: dict[str, bytes | str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        key_id, sign, key = part.partition("=")
        if not sign or key_id in pairs:
            # The text may contain a key, so the message does not quote it.
            raise ConfigError("encryption keys are written as id=base64,id=base64, each id once")
        pairs[key_id] = key
    return pairs


def _check_pairs(pairs: Mapping[str, bytes | str]) -> dict[str, bytes]:
    checked: dict[str, bytes] = {}
    for key_id, key in pairs.items():
        if not _ID.match(str(key_id)):
            raise ConfigError("the id of an encryption key is 1 to 40 letters, digits, _ or -")
        checked[key_id] = _decode_key(key_id, key)
    return checked


def _decode_key(key_id: str, key: bytes | str) -> bytes:
    try:
        decoded = b64decode(key, validate=True) if isinstance(key, str) else bytes(key)
    except (ValueError, TypeError):
        decoded = b""
    if len(decoded) != KEY_BYTES:
        raise ConfigError(f"the encryption key {key_id} must be {KEY_BYTES} bytes, or the base64 of them")
    return decoded


def _key_name(key_id: str, key: bytes) -> str:
    # Detects another key under the same id: jobs wait for the right one instead of going to the dead letters.
    # Eight digits of a hash reveal nothing about 32 random bytes.
    return f"{key_id}.{sha256(b'forebay key ' + key).hexdigest()[:8]}"


def _associated_data(context: str, fields: Mapping[str, str]) -> bytes:
    # Separated by line feeds: neither names nor values contain one, so two places never give the same text.
    bound = (f"{name}={value}" for name, value in fields.items() if name != "key")
    return "\n".join([context, *bound]).encode()


def _load_cipher() -> type[Xaes]:
    try:
        from forebay.payload.xaes_gcm import Xaes  # noqa: PLC0415 - as above
    except ModuleNotFoundError as exc:
        raise ConfigError("encryption needs cryptography: pip install 'forebay[crypto]'") from exc
    return Xaes
