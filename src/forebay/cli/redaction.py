"""Redaction of passwords in URLs and of API tokens in everything that commands print."""

from __future__ import annotations

import re
from typing import Any, Final

HIDDEN: Final = "***"

# The patterns begin with a rare sign and use possessive quantifiers: linear time for words of any length.
# Greedy up to the last @: a password may contain an unescaped @.
_USER_INFO: Final = re.compile(r"(?P<start>(?<=[a-z0-9+.-])://[^\s/:@?#]*+):[^\s/?#]*@", re.IGNORECASE)
_WORD: Final = re.compile(r"\S++")
_USER: Final = re.compile(r"(?<=[a-z0-9+.-])://[^\s/:@?#]*+:", re.IGNORECASE)
_OPTIONS: Final = re.compile(r"[?&;][^\s&;'\"]*+")
_SECRET: Final = re.compile("pass|pwd|secret|token|key", re.IGNORECASE)
# In user data only these unambiguous names are redacted.
_DATA_OPTION: Final = re.compile(
    r"(?P<start>[?&;](?:password|passwd|pass|pwd|token|access_token|secret|client_secret"
    r"|api_?key|access_key|secret_key|private_key)=)[^\s&;'\"]*",
    re.IGNORECASE,
)
_TOKEN: Final = re.compile(r"(?P<start>\bfbk_[A-Za-z0-9_.-]{1,50}\.)[A-Za-z0-9_-]{20,}")


class PlainText(str):
    """Text that is printed unredacted: a new token, which is shown once."""

    __slots__ = ()


def redact(message: str) -> str:
    """Hide the passwords of all URLs and the secrets of all tokens in one of our messages."""
    message = _TOKEN.sub(rf"\g<start>{HIDDEN}", message)
    return _OPTIONS.sub(_hide_secret, _WORD.sub(_hide_password, message))


def _hide_password(match: re.Match[str]) -> str:
    """Hide the password of a URL in a word.

    A URL in our own messages may be invalid, with a / or a ? in its password. User data is not treated like
    this, because http://host:80/?to=me@home has no password.
    """
    before, at, after = match[0].rpartition("@")
    user = _USER.search(before) if at else None
    return match[0] if user is None else f"{before[: user.end()]}{HIDDEN}@{after}"


def _hide_secret(match: re.Match[str]) -> str:
    """Hide the value of a URL option whose name looks secret. A ? in the value may start another option."""
    parts = match[0].split("=")
    for index, part in enumerate(parts[:-1]):
        if _SECRET.search(part.partition("?")[2] if index else part):
            return "=".join((*parts[: index + 1], HIDDEN))
    return match[0]


def redact_data(value: Any) -> Any:
    """Hide the passwords of URLs and our own tokens in JSON data; keep everything else."""
    match value:
        case PlainText():
            return str(value)
        case str():
            value = _TOKEN.sub(rf"\g<start>{HIDDEN}", value)
            return _DATA_OPTION.sub(rf"\g<start>{HIDDEN}", _USER_INFO.sub(rf"\g<start>:{HIDDEN}@", value))
        case dict():
            return {key: redact_data(inner) for key, inner in value.items()}
        case list() | tuple():
            return [redact_data(inner) for inner in value]
        case _:
            return value
