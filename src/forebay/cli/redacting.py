"""Passwords stay out of what we print: they are in URLs, and URLs are in messages. So do tokens of keys."""

from __future__ import annotations

import re
from typing import Any, Final

HIDDEN: Final = "***"

# Greedy up to the last @: a password may hold an @ of its own that nobody has escaped.
_USER_INFO: Final = re.compile(r"(?P<start>[a-z][a-z0-9+.-]*://[^\s/:@?#]*):[^\s/?#]*@", re.IGNORECASE)
# In our own messages a URL may be one that nobody can parse, with a / or a ? in its password. Data is not
# treated like that, because http://host:80/?to=me@home has no password.
_ANY_USER_INFO: Final = re.compile(r"(?P<start>[a-z][a-z0-9+.-]*://[^\s/:@?#]*):\S*@", re.IGNORECASE)
_OPTION: Final = re.compile(
    r"(?P<start>[?&;][^\s=&;'\"]*(?:pass|pwd|secret|token|key)[^\s=&;'\"]*=)[^\s&;'\"]*", re.IGNORECASE
)
# Data is not ours to change: only names that mean nothing else.
_DATA_OPTION: Final = re.compile(
    r"(?P<start>[?&;](?:password|passwd|pass|pwd|token|access_token|secret|client_secret"
    r"|api_?key|access_key|secret_key|private_key)=)[^\s&;'\"]*",
    re.IGNORECASE,
)
_TOKEN: Final = re.compile(r"(?P<start>\bfbk_[A-Za-z0-9_.-]{1,50}\.)[A-Za-z0-9_-]{20,}")


class Shown(str):
    """A text that is printed as it is: the one time that a token is shown."""

    __slots__ = ()


def redacted(message: str) -> str:
    """A message of ours with the password of every URL in it hidden, and the secret of every token."""
    message = _TOKEN.sub(rf"\g<start>{HIDDEN}", message)
    return _OPTION.sub(rf"\g<start>{HIDDEN}", _ANY_USER_INFO.sub(rf"\g<start>:{HIDDEN}@", message))


def redacted_data(value: Any) -> Any:
    """JSON data, whatever it holds, with the passwords of URLs and our own tokens hidden and everything else
    as it is."""
    match value:
        case Shown():
            return str(value)
        case str():
            value = _TOKEN.sub(rf"\g<start>{HIDDEN}", value)
            return _DATA_OPTION.sub(rf"\g<start>{HIDDEN}", _USER_INFO.sub(rf"\g<start>:{HIDDEN}@", value))
        case dict():
            return {key: redacted_data(inner) for key, inner in value.items()}
        case list() | tuple():
            return [redacted_data(inner) for inner in value]
        case _:
            return value
