"""Small documents that a store keeps for others without looking into them."""

from __future__ import annotations

from typing import Final

import msgspec

from forebay.domain.job import check_kind, check_text
from forebay.errors import ConfigError, InvalidJob

MAX_NAME: Final = 100
MAX_BODY: Final = 65_536


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A text of at most 64 KiB under a kind and a name. `revision` counts how often it was saved; 0 is for
    one that nobody has saved yet."""

    kind: str
    name: str
    body: str
    revision: int = 0
    created_at: int = 0
    updated_at: int = 0

    def __post_init__(self) -> None:
        try:
            check_kind(self.kind, "kind")
            check_text("name", self.name, most=MAX_NAME)
        except InvalidJob as exc:
            raise ConfigError(f"a document: {exc}") from exc
        if len(self.body) > MAX_BODY:
            raise ConfigError(f"{self.kind} {self.name} is longer than {MAX_BODY} characters")
