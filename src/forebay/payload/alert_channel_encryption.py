"""Encryption of alert channels in the store.

A stored channel has its name, severity and state in plain text, and masks in place of its secrets. The whole
channel is encrypted in the field `encrypted`. So a process without the key can decide which alerts it takes.
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.domain.alert_channel import Channel
from forebay.domain.stored_document import Document
from forebay.errors import CorruptPayload
from forebay.payload.codec import parse_frame
from forebay.payload.encryption_keys import EncryptionKeys

_FIELD: Final = "encrypted"
_decode: Final = msgspec.json.Decoder(Channel).decode

logger: logging.Logger = logging.getLogger(__name__)


def encrypt_channel(keys: EncryptionKeys, document: Document) -> Document:
    """Return the document with encrypted secrets; unchanged if it has none, or has them encrypted already."""
    if _find_encrypted(document) is not None:
        return document
    encrypted = b64encode(keys.encrypt(document.body.encode(), _associated_text(document))).decode()
    masked = mask_channel(document)
    return document if masked.body == document.body else _with_encrypted(masked, encrypted)


def decrypt_channel(keys: EncryptionKeys, document: Document) -> Document:
    """Return the document with its secrets. Without the key, or after a change, return it with masks, as
    stored."""
    encrypted = _find_encrypted(document)
    if encrypted is None:
        return document
    try:
        parts = parse_frame(b64decode(encrypted, validate=True))
        decrypted = None if parts is None else keys.decrypt(parts[0], parts[1], _associated_text(document))
    except (CorruptPayload, ValueError) as exc:
        logger.warning("%s %s cannot be decrypted: %s", document.kind, document.name, exc)
        return document
    return document if decrypted is None else replace(document, body=decrypted.decode())


def mask_channel(document: Document) -> Document:
    """Return the document with masks in place of its secrets; the encrypted field stays."""
    try:
        channel = _decode(document.body)
    except ValueError:
        return replace(document, body="{}")  # from a later release: any field may be a secret
    masked = replace(document, body=msgspec.json.encode(channel.public_view()).decode())
    encrypted = _find_encrypted(document)
    return masked if encrypted is None else _with_encrypted(masked, encrypted)


def _with_encrypted(masked: Document, encrypted: str) -> Document:
    fields = {**msgspec.json.decode(masked.body), _FIELD: encrypted}
    return replace(masked, body=msgspec.json.encode(fields).decode())


def _find_encrypted(document: Document) -> str | None:
    # A document of a later release, or a changed one, may have any content.
    try:
        body = msgspec.json.decode(document.body)
    except ValueError:
        return None
    value = body.get(_FIELD) if isinstance(body, dict) else None
    return value if isinstance(value, str) else None


def _associated_text(document: Document) -> str:
    return f"document {document.kind} {document.name}"
