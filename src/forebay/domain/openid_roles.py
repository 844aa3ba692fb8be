"""Logins through an OpenID provider: from claims about a person to roles here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from forebay.domain.api_key import MAX_GRANTS, Grant
from forebay.errors import ConfigError

PREFIX: Final = "oidc:"
MAX_SUBJECT: Final = 255  # by OpenID Connect
_PLAIN: Final = "@+:|!~"

Claims = Mapping[str, Any]


class GroupGrant(msgspec.Struct, frozen=True):
    """Role for the members of a group of the provider."""

    group: str
    grant: Grant

    @classmethod
    def parse(cls, text: str) -> GroupGrant:
        """Parse `ops=operate` or `cn=mail,dc=example=operate:mail-*`; raise ConfigError for other texts."""
        group, equals, grant = text.rpartition("=")
        if not (equals and group.strip()):
            raise ConfigError(f"a group and its role are written GROUP=ROLE[:QUEUES], and not {text!r:.100}")
        return cls(group.strip(), Grant.parse(grant.strip()))


class OpenIdSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Provider, and the roles of its groups. `label` is its name on the login page."""

    issuer: str
    client_id: str
    groups: tuple[GroupGrant, ...]
    client_secret: str | None = None
    groups_claim: str = "groups"
    scopes: tuple[str, ...] = ("openid", "email")
    label: str = "single sign-on"

    def __post_init__(self) -> None:
        if not self.client_id:
            raise ConfigError("a login by a provider needs the id of a client there (--oidc-client-id)")
        if not 1 <= len(self.groups) <= MAX_GRANTS:
            raise ConfigError(
                f"a login by a provider needs 1 to {MAX_GRANTS} groups with roles (--oidc-group)"
            )

    def grants(self, claims: Claims) -> tuple[Grant, ...]:
        """Return the roles of a person by their groups; none for a person without any of these groups."""
        groups = groups_in(claims, self.groups_claim)
        return tuple(dict.fromkeys(each.grant for each in self.groups if each.group in groups))


def groups_in(claims: Claims, claim: str) -> frozenset[str]:
    """Return the groups in a claim: a list of texts, or one text. A name with dots may be a path."""
    value = claims.get(claim)
    if value is None:
        value = _value_at(claims, claim.split("."))
    values: Iterable[Any] = value if isinstance(value, list) else (value,)
    return frozenset(name for name in values if isinstance(name, str))


def has_groups(claims: Claims, claim: str) -> bool:
    """Return whether the claims say anything about groups."""
    return claims.get(claim) is not None or _value_at(claims, claim.split(".")) is not None


def user_name(claims: Claims) -> str:
    """Return the name of a person in the audit log: the e-mail address if the provider has verified it,
    else the subject. A # would end the name in the log, so it is escaped, like all unusual characters."""
    email, subject = claims.get("email"), claims.get("sub")
    is_verified = claims.get("email_verified") is True
    name = email if is_verified and isinstance(email, str) and email else subject
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_SUBJECT:
        raise ConfigError(f"the provider names no subject of 1 to {MAX_SUBJECT} characters")
    return PREFIX + quote(name, safe=_PLAIN)


def _value_at(claims: Claims, path: list[str]) -> Any:
    value: Any = claims
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
