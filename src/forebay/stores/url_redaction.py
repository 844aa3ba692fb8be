"""Redaction of store URLs: no password is shown or logged."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

# From the first colon after the scheme, if there is one, up to the last @. A password may contain signs
# without escapes, and a mistyped address contains its password all the same.
_PASSWORD: Final = re.compile(
    r"\A((?:{0}|(?!{0}))[^:]*:).*@".format(r"[a-z][a-z0-9+.-]*://"), re.DOTALL | re.IGNORECASE
)
# An address inside an address; where its signs are escaped, so is its password. Text that only looks like an
# address is part of a password.
_REDIS_OPTION: Final = re.compile(
    r"(postgres(?:ql)?://(?:[^:@/?#]*(?::[^@]*)?@)?[^@/?#]*/?[^@/?#:]*\?(?:[^@#]*&)?redis=)"
    r"((?:redis|valkey|unix)s?(?:\+sentinel)?(?::|%3A)[^&#]*)(.*)",
    re.DOTALL | re.IGNORECASE,
)
_SECRET_OPTION: Final = re.compile(
    r"([?&;][^=&;#]*(?:pass|pwd|secret|token|key)[^=&;#]*=)[^&;#]*", re.IGNORECASE
)


def redact_url(url: str) -> str:
    """Return the address without its passwords, as it may be shown and logged."""
    match = _REDIS_OPTION.fullmatch(url)
    if match is None:
        return _redact_text(url)
    # Each address by itself: else the text between two passwords would be taken for one.
    prefix, redis, suffix = match.groups()
    return f"{_redact_text(prefix)}{_redact_text(unquote(redis))}{_redact_text(suffix)}"


def _redact_text(url: str) -> str:
    return _SECRET_OPTION.sub(r"\1***", _PASSWORD.sub(r"\1***@", url))
