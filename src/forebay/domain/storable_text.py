"""Text that every store can hold."""

from __future__ import annotations


def clean_text(text: str) -> str:
    """Return the text without NUL, and with a question mark for what cannot be encoded as UTF-8.

    Half of a surrogate pair comes from file names that are not UTF-8, and must not cost a log line.
    """
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return without_nul(text)


def without_nul(text: str) -> str:
    """Return the text with a sign in place of each NUL, which some databases cannot store."""
    return text.replace("\x00", "\N{SYMBOL FOR NULL}")


def truncate_bytes(text: str, max_bytes: int) -> str:
    """Return the longest beginning of a clean text that takes at most so many bytes."""
    return text if len(text) * 4 <= max_bytes else text.encode()[:max_bytes].decode(errors="ignore")


def escape_unencodable(text: str) -> str:
    """Return the text with surrogates, which UTF-8 cannot encode, as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
