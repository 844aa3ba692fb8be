"""What claims of an OpenID provider stand for."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.domain.api_key import Grant
from forebay.domain.openid_roles import GroupGrant, OpenIdSettings, has_groups, user_name
from forebay.errors import ConfigError

OPS = GroupGrant.parse("ops=operate")
MAIL = GroupGrant.parse(" cn=mail,dc=example = operate:mail-* ")


def settings(*groups: GroupGrant, claim: str = "groups", client: str = "forebay") -> OpenIdSettings:
    return OpenIdSettings(
        issuer="https://id.example.org", client_id=client, groups=groups, groups_claim=claim
    )


def test_a_group_is_read_with_its_role() -> None:
    assert GroupGrant("ops", Grant.parse("operate")) == OPS
    assert GroupGrant("cn=mail,dc=example", Grant.parse("operate:mail-*")) == MAIL


@pytest.mark.parametrize("text", ["", "ops", "=operate", " =operate", "ops=root", "ops="])
def test_what_names_no_group_or_no_role_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        GroupGrant.parse(text)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="--oidc-group"):
        settings()
    with pytest.raises(ConfigError, match="--oidc-group"):
        settings(*[OPS] * 101)
    with pytest.raises(ConfigError, match="--oidc-client-id"):
        settings(OPS, client="")


@pytest.mark.parametrize(
    ("claim", "claims"),
    [
        ("groups", {"groups": ["staff", "ops", 7]}),
        ("groups", {"groups": "ops"}),
        ("realm_access.roles", {"realm_access": {"roles": ["ops"]}}),
        ("https://example.org/groups", {"https://example.org/groups": ["ops"]}),
    ],
)
def test_groups_give_roles_wherever_they_stand(claim: str, claims: dict[str, Any]) -> None:
    assert settings(OPS, OPS, MAIL, claim=claim).grants(claims) == (Grant.parse("operate"),)
    assert has_groups(claims, claim)


@pytest.mark.parametrize(
    "claims", [{}, {"groups": None}, {"groups": {"ops": 1}}, {"groups": 7}, {"groups": "o"}]
)
def test_without_one_of_the_groups_there_is_no_role(claims: dict[str, Any]) -> None:
    assert settings(OPS).grants(claims) == ()


def test_claims_that_say_nothing_of_groups_are_known() -> None:
    assert not has_groups({"sub": "ada"}, "groups")
    assert not has_groups({"realm_access": "x"}, "realm_access.roles")
    assert has_groups({"groups": []}, "groups")


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"sub": "1", "email": "ada@example.org", "email_verified": True}, "oidc:ada@example.org"),
        ({"sub": "1", "email": "ada@example.org", "email_verified": False}, "oidc:1"),
        ({"sub": "1", "email": "ada@example.org"}, "oidc:1"),
        ({"sub": "1", "email": 7, "email_verified": True}, "oidc:1"),
        ({"sub": "auth0|1"}, "oidc:auth0|1"),
        ({"sub": "root#1\n"}, "oidc:root%231%0A"),
    ],
)
def test_a_person_is_called_by_a_verified_address_or_the_subject(claims: dict[str, Any], name: str) -> None:
    assert user_name(claims) == name


@pytest.mark.parametrize("subject", [None, "", 7, "x" * 256])
def test_a_person_without_a_subject_has_no_name(subject: Any) -> None:
    with pytest.raises(ConfigError, match="subject"):
        user_name({"sub": subject})
