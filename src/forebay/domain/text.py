"""Text as every store can hold it."""

from __future__ import annotations

from forebay.errors import ConfigError


def clean_text(text: str) -> str:
    """The text without NUL, and with a question mark for what cannot be written as UTF-8.

    Half of a surrogate pair comes from file names that are not UTF-8, and must not cost anybody a log line.
    """
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return without_nul(text)


def without_nul(text: str) -> str:
    """The text with a sign in place of each NUL, which some databases cannot hold."""
    return text.replace("\x00", "\N{SYMBOL FOR NULL}")


def truncate_bytes(text: str, max_bytes: int) -> str:
    """The longest beginning of a clean text that takes at most so many bytes."""
    return text if len(text) * 4 <= max_bytes else text.encode()[:max_bytes].decode(errors="ignore")


def check_actor(name: str) -> None:
    """Raise ConfigError for a name that the audit log would show as another one."""
    if "#" in name:
        raise ConfigError(
            f"{name!r:.100} cannot be an actor of the audit log: leave out the #, which begins a request id"
        )
