"""Stored documents: small texts that a store keeps for other packages without reading them."""

from __future__ import annotations

from typing import Final

import msgspec

from forebay.domain.job_validation import check_kind, check_text
from forebay.errors import ConfigError, InvalidJob

# Kind of documents with secrets, which are encrypted where there is a key.
CHANNEL: Final = "alert-channel"
MAX_NAME: Final = 100
MAX_BODY: Final = 65_536  # bytes as UTF-8


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Text of at most 64 KiB under a kind and a name. `revision` counts its saves; 0 is for one that was
    never saved."""

    kind: str
    name: str
    body: str
    revision: int = 0
    created_at: int = 0
    updated_at: int = 0

    def __post_init__(self) -> None:
        try:
            check_kind(self.kind, "kind")
            check_text("name", self.name, max_length=MAX_NAME)
        except InvalidJob as exc:
            raise ConfigError(f"a document: {exc}") from exc
        try:
            size = len(self.body.encode())
        except UnicodeEncodeError as exc:
            raise ConfigError(f"{self.kind} {self.name} cannot be written as UTF-8: {exc}") from exc
        if size > MAX_BODY:
            raise ConfigError(f"{self.kind} {self.name} has {size:,} bytes, the limit is {MAX_BODY:,}")
        if "\0" in self.body:
            raise ConfigError(f"{self.kind} {self.name} must not contain a zero character")
