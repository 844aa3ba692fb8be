"""Cookies of the dashboard, which scripts cannot read.

Over TLS their names have a prefix: browsers take those only from this very host, and show them only over TLS.
So neither a sibling domain nor a page without TLS can plant one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from forebay.service.mount_scope import BASE

SESSION: Final = "forebay"
LOGIN: Final = "forebay-login"


class Cookie(NamedTuple):
    """A cookie as this request may have it."""

    name: str
    path: str
    is_secure: bool

    @classmethod
    def of(cls, scope: Mapping[str, Any], name: str, *, is_secure: bool) -> Cookie:
        """`is_secure` says that browsers reach the server over TLS, though this request may not show it."""
        base = scope.get(BASE, "")
        if not (is_secure or scope["scheme"] == "https"):
            return cls(name, f"{base}/", is_secure=False)
        # __Host- wants the whole host. Where others share it, the path is the better bound.
        return cls(f"__Secure-{name}" if base else f"__Host-{name}", f"{base}/", is_secure=True)

    def find(self, header: str) -> str | None:
        """Return its value in what a browser shows."""
        pairs = (one.strip().partition("=") for one in header.split(";"))
        return next((value for name, _, value in pairs if name == self.name and value), None)

    def header_value(self, value: str, *, same_site: str = "Strict", max_age: int | None = None) -> str:
        """Return the header that gives it to a browser, until that is closed if no age is given."""
        secure = "; Secure" if self.is_secure else ""
        age = "" if max_age is None else f"; Max-Age={max_age}"
        return f"{self.name}={value}; HttpOnly; SameSite={same_site}; Path={self.path}{secure}{age}"
