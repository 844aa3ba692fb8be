"""Cookies of the dashboard, which scripts cannot read.

Over TLS their names have a prefix: browsers accept such a cookie only from this host and over TLS. So neither
a sibling domain nor a page without TLS can plant one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from forebay.service.asgi_mount_scope import BASE

SESSION: Final = "forebay"
LOGIN: Final = "forebay-login"


class Cookie(NamedTuple):
    """Cookie with the attributes for one request."""

    name: str
    path: str
    is_secure: bool

    @classmethod
    def of(cls, scope: Mapping[str, Any], name: str, *, is_secure: bool) -> Cookie:
        """Return the cookie for a request; `is_secure` says that browsers use TLS although the request may
        not show it."""
        base = scope.get(BASE, "")
        if not (is_secure or scope["scheme"] == "https"):
            return cls(name, f"{base}/", is_secure=False)
        # __Host- requires the path /. Under a mount other apps share the host, so the path bounds the cookie.
        return cls(f"__Secure-{name}" if base else f"__Host-{name}", f"{base}/", is_secure=True)

    def find(self, header: str) -> str | None:
        """Return the value in a Cookie header; None if it is missing."""
        pairs = (pair.strip().partition("=") for pair in header.split(";"))
        return next((value for name, _, value in pairs if name == self.name and value), None)

    def header_value(self, value: str, *, same_site: str = "Strict", max_age: int | None = None) -> str:
        """Return the Set-Cookie header; without `max_age` the cookie lasts until the browser is closed."""
        secure = "; Secure" if self.is_secure else ""
        age = "" if max_age is None else f"; Max-Age={max_age}"
        return f"{self.name}={value}; HttpOnly; SameSite={same_site}; Path={self.path}{secure}{age}"
