"""Values under names that look secret, kept out of what people and other programs are shown."""

from __future__ import annotations

import re
from typing import Any, Final

MASK: Final = "***"

_SECRET: Final = re.compile(
    r"passw|passphrase|secret|token|authorization|credential|(?:api|access|private|secret)[_-]?key",
    re.IGNORECASE,
)
# Alone, or as the last word: `key`, `signingKey`, `host_keys`; but no monkey, and no keyboard.
_KEY: Final = re.compile(r"(?:\A|[^A-Za-z]|(?<=[a-z0-9])(?=K))[Kk](?:ey|EY)s?\Z")


def masked(value: Any) -> Any:
    """Stored JSON with a mask in place of each value whose name contains password, token, secret, key or
    authorization."""
    if type(value) is list:
        return [masked(item) for item in value]
    if type(value) is not dict:
        return value
    if value.get("~") == "map" and type(value.get("v")) is list:
        return {**value, "v": [_pair(pair) for pair in value["v"]]}
    return {name: _under(name, item) for name, item in value.items()}


def holds_mask(value: Any) -> bool:
    """Whether a mask stands in it where `masked` would put one."""
    if type(value) is list:
        return any(holds_mask(item) for item in value)
    if type(value) is not dict:
        return False
    if value.get("~") == "map" and type(value.get("v")) is list:
        pairs = [pair for pair in value["v"] if type(pair) is list and len(pair) == 2]  # noqa: PLR2004 - a pair
        return any(_is_mask(*pair) for pair in pairs)
    return any(_is_mask(name, item) for name, item in value.items())


def is_secret(name: object) -> bool:
    """Whether what stands under this name should not be shown."""
    return isinstance(name, str) and bool(_SECRET.search(name) or _KEY.search(name))


def _under(name: object, value: Any) -> Any:
    return MASK if value is not None and is_secret(name) else masked(value)


def _is_mask(name: object, value: Any) -> bool:
    return (value == MASK and is_secret(name)) or holds_mask(value)


def _pair(pair: Any) -> Any:
    return [pair[0], _under(*pair)] if type(pair) is list and len(pair) == 2 else pair  # noqa: PLR2004 - a pair
