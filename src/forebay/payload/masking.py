"""Masking: values under names that look secret are hidden from logs, command line, dashboard and service."""

from __future__ import annotations

import re
from typing import Any, Final

from forebay.errors import ConfigError

MASK: Final = "***"

_SECRET: Final = re.compile(
    r"passw|passphrase|passcode|pwd|secret|token|authorization|credential|cookie|jwt"
    r"|(?:api|access|private|secret)[_-]?key",
    re.IGNORECASE,
)
# Start of a word in a name, in snake_case, kebab-case and camelCase.
_BEGIN: Final = r"(?:\A|[^A-Za-z]|(?<=[a-z0-9])(?=[A-Z]))"
# As words: `pin`, `cardPin`, `OTP_CODE`, `session_id`; not `shipping`, `author`, `pinned`.
_WORD: Final = re.compile(
    _BEGIN + r"(?i:pin|cvv|cvc|otp|totp|session|auth|dsn|bearer)s?(?![a-z]|(?<=[A-Z])[A-Z])"
)
# Alone, or as the last word: `key`, `signingKey`, `host_keys`; not `monkey`, `keyboard`.
_KEY: Final = re.compile(_BEGIN + r"[Kk](?:ey|EY)s?\Z")
_MAX_NAME: Final = 100
# A name, a separator, and the value: `pin=1234`, `"pin": "1234"`, `Authorization: Bearer x`.
_PAIR: Final = re.compile(
    rf"(?<![A-Za-z0-9_.-])(?P<name>[A-Za-z0-9_.-]{{1,{_MAX_NAME}}})(?P<between>[\"']?[ ]?[=:][ ]?)"
    r"(?:\"[^\"]*\"|'[^']*'|(?:(?:Bearer|Basic) )?[^\s,;&\"')}\]]+)"
)
_USER_INFO: Final = re.compile(r"(?P<start>://[^\s/:@?#]{0,200}):[^\s/?#]{1,500}@")
_own_names: set[str] = set()


def mask_names(*names: str) -> None:
    """Also mask values whose name contains one of these, in this process. Case does not matter."""
    for name in names:
        if not name.strip() or len(name) > _MAX_NAME:
            raise ConfigError(
                f"{name!r:.60} cannot be a masked name: use 1 to {_MAX_NAME} letters, such as iban"
            )
        _own_names.add(name.strip().lower())


def mask(value: Any) -> Any:
    """Return stored JSON with a mask in place of each value whose name looks secret."""
    if type(value) is list:
        return [mask(item) for item in value]
    if type(value) is not dict:
        return value
    if value.get("~") == "map" and type(value.get("v")) is list:
        return {**value, "v": [_mask_pair(pair) for pair in value["v"]]}
    return {name: _mask_field(name, item) for name, item in value.items()}


def contains_mask(value: Any) -> bool:
    """Return whether a mask is where `mask` would put one."""
    if type(value) is list:
        return any(contains_mask(item) for item in value)
    if type(value) is not dict:
        return False
    if value.get("~") == "map" and type(value.get("v")) is list:
        pairs = [pair for pair in value["v"] if type(pair) is list and len(pair) == 2]  # noqa: PLR2004 - a pair
        return any(_is_mask(*pair) for pair in pairs)
    return any(_is_mask(name, item) for name, item in value.items())


def is_secret(name: object) -> bool:
    """Return whether the value of this name should be hidden."""
    if not isinstance(name, str):
        return False
    if _SECRET.search(name) or _WORD.search(name) or _KEY.search(name):
        return True
    return any(own in name.lower() for own in _own_names)


def mask_text(text: str) -> str:
    """Mask the values in a line of text that follow a name that looks secret, and the passwords of URLs."""
    return _USER_INFO.sub(rf"\g<start>:{MASK}@", _PAIR.sub(_mask_match, text))


def _mask_match(match: re.Match[str]) -> str:
    return f"{match['name']}{match['between']}{MASK}" if is_secret(match["name"]) else match[0]


def _mask_field(name: object, value: Any) -> Any:
    return MASK if value is not None and is_secret(name) else mask(value)


def _is_mask(name: object, value: Any) -> bool:
    return (value == MASK and is_secret(name)) or contains_mask(value)


def _mask_pair(pair: Any) -> Any:
    return [pair[0], _mask_field(*pair)] if type(pair) is list and len(pair) == 2 else pair  # noqa: PLR2004 - a pair
