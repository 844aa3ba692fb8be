"""What a server needs of a provider of logins. The client itself needs an extra, and is loaded late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from forebay.domain.openid import Claims, OpenIdSettings

CALLBACK: Final = "/v1/login/oidc/callback"


class LoginFailed(Exception):
    """A login that did not come to its end; the text is for the log."""


class LoginProvider(Protocol):
    """A provider, and the address `home` at which browsers find this server."""

    settings: OpenIdSettings
    home: str

    async def begin(self, secret: str) -> str:
        """Return the address of the provider at which a login with this secret begins; raises LoginFailed."""
        ...

    async def finish(self, secret: str, answer: Mapping[str, str]) -> Claims:
        """Return the claims about a person for what the provider has sent their browser back with; raises
        LoginFailed."""
        ...
