"""Encryption of alert channels in the store.

A stored channel keeps its name, severity and state in the clear, with masks in the place of its secrets. The
whole of it is encrypted in the field `encrypted`. So a process without the key knows which alerts it wants.
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.domain.alert_channel import Channel
from forebay.domain.document import Document
from forebay.errors import CorruptPayload
from forebay.payload.codec import parse_frame
from forebay.payload.encryption_keys import EncryptionKeys

_FIELD: Final = "encrypted"
_decode: Final = msgspec.json.Decoder(Channel).decode

logger: logging.Logger = logging.getLogger(__name__)


def encrypt_channel(keys: EncryptionKeys, document: Document) -> Document:
    """The document with its secrets encrypted; as it is if it has none, or has them encrypted already."""
    if _find_encrypted(document) is not None:
        return document
    encrypted = b64encode(keys.encrypt(document.body.encode(), _associated_text(document))).decode()
    shown = mask_channel(document)
    return document if shown.body == document.body else _with_encrypted(shown, encrypted)


def decrypt_channel(keys: EncryptionKeys, document: Document) -> Document:
    """The document with its secrets; with masks, as it is stored, without its key or if it was changed."""
    encrypted = _find_encrypted(document)
    if encrypted is None:
        return document
    try:
        parts = parse_frame(b64decode(encrypted, validate=True))
        plain = None if parts is None else keys.decrypt(parts[0], parts[1], _associated_text(document))
    except (CorruptPayload, ValueError) as exc:
        logger.warning("%s %s cannot be decrypted: %s", document.kind, document.name, exc)
        return document
    return document if plain is None else replace(document, body=plain.decode())


def mask_channel(document: Document) -> Document:
    """The document with masks in the place of its secrets; what is encrypted stays encrypted."""
    try:
        channel = _decode(document.body)
    except ValueError:
        return replace(document, body="{}")  # of a later release: secrets may stand anywhere in it
    shown = replace(document, body=msgspec.json.encode(channel.public_view()).decode())
    encrypted = _find_encrypted(document)
    return shown if encrypted is None else _with_encrypted(shown, encrypted)


def _with_encrypted(masked: Document, encrypted: str) -> Document:
    fields = {**msgspec.json.decode(masked.body), _FIELD: encrypted}
    return replace(masked, body=msgspec.json.encode(fields).decode())


def _find_encrypted(document: Document) -> str | None:
    # Of one that a later release wrote, or that was changed, there may be anything.
    try:
        found = msgspec.json.decode(document.body)
    except ValueError:
        return None
    value = found.get(_FIELD) if isinstance(found, dict) else None
    return value if isinstance(value, str) else None


def _associated_text(document: Document) -> str:
    return f"document {document.kind} {document.name}"
