"""Check of texts: the in-memory engine refuses what an engine that writes UTF-8 could not store."""

from __future__ import annotations

from forebay.errors import StoreRefused


def check_writable(*texts: str | None) -> None:
    """Raise StoreRefused for text that an engine which writes UTF-8 could not store."""
    for text in texts:
        if text is None or text.isascii():
            continue
        try:
            text.encode()
        except UnicodeEncodeError as exc:
            raise StoreRefused(f"this text cannot be written as UTF-8: {text!r:.60}") from exc
