"""Passwords stay out of what we print: they are in URLs, and URLs are in messages. So do tokens of keys."""

from __future__ import annotations

import re
from typing import Any, Final

HIDDEN: Final = "***"

# These begin with what is rare and never look back: a letter is read once or twice, however long a word is.
# Greedy up to the last @: a password may hold an @ of its own that nobody has escaped.
_USER_INFO: Final = re.compile(r"(?P<start>(?<=[a-z0-9+.-])://[^\s/:@?#]*+):[^\s/?#]*@", re.IGNORECASE)
_WORD: Final = re.compile(r"\S++")
_USER: Final = re.compile(r"(?<=[a-z0-9+.-])://[^\s/:@?#]*+:", re.IGNORECASE)
_OPTIONS: Final = re.compile(r"[?&;][^\s&;'\"]*+")
_SECRET: Final = re.compile("pass|pwd|secret|token|key", re.IGNORECASE)
# Data is not ours to change: only names that mean nothing else.
_DATA_OPTION: Final = re.compile(
    r"(?P<start>[?&;](?:password|passwd|pass|pwd|token|access_token|secret|client_secret"
    r"|api_?key|access_key|secret_key|private_key)=)[^\s&;'\"]*",
    re.IGNORECASE,
)
_TOKEN: Final = re.compile(r"(?P<start>\bfbk_[A-Za-z0-9_.-]{1,50}\.)[A-Za-z0-9_-]{20,}")


class PlainText(str):
    """A text that is printed as it is: the one time that a token is shown."""

    __slots__ = ()


def redact(message: str) -> str:
    """A message of ours with the password of every URL in it hidden, and the secret of every token."""
    message = _TOKEN.sub(rf"\g<start>{HIDDEN}", message)
    return _OPTIONS.sub(_hide_secret, _WORD.sub(_hide_password, message))


def _hide_password(match: re.Match[str]) -> str:
    """A word without the password of a URL in it. In our own messages a URL may be one that nobody can parse,
    with a / or a ? in its password. Data is not treated like that, because http://host:80/?to=me@home has no
    password."""
    before, at, behind = match[0].rpartition("@")
    user = _USER.search(before) if at else None
    return match[0] if user is None else f"{before[: user.end()]}{HIDDEN}@{behind}"


def _hide_secret(match: re.Match[str]) -> str:
    """An option of a URL without its value, if its name looks secret. A ? in the value may begin another."""
    parts = match[0].split("=")
    for place, part in enumerate(parts[:-1]):
        if _SECRET.search(part.partition("?")[2] if place else part):
            return "=".join((*parts[: place + 1], HIDDEN))
    return match[0]


def redact_data(value: Any) -> Any:
    """JSON data, whatever it holds, with the passwords of URLs and our own tokens hidden and everything else
    as it is."""
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
