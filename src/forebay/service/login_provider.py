"""Protocol of a login provider. Its client needs an extra and is imported late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from forebay.domain.openid_roles import Claims, OpenIdSettings

CALLBACK: Final = "/v1/login/oidc/callback"


class LoginFailed(Exception):
    """Login that did not complete; the text is for the log."""


class LoginProvider(Protocol):
    """Login provider, with `home`, the URL at which browsers reach this server."""

    settings: OpenIdSettings
    home: str

    async def begin(self, secret: str) -> str:
        """Return the URL of the provider at which a login with this secret begins; raises LoginFailed."""
        ...

    async def finish(self, secret: str, answer: Mapping[str, str]) -> Claims:
        """Return the claims about a person, from the provider's redirect; raises LoginFailed."""
        ...
