"""Check that no page of another site has made a request.

A browser sends the session cookie with every request to this server, whichever page makes it. So a request
that changes something also needs a header, which a page of another site cannot send without CORS permission,
and there is none. Its Origin must be this server, too. Browsers do not send the cookie for such pages in the
first place (SameSite). Each of these defences is sufficient.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from litestar.datastructures import Headers

from forebay.errors import Forbidden

PAGE_HEADER: Final = "X-Forebay-Page"
# Sent by the page with requests that it makes by itself. The event stream always is such a request.
BACKGROUND_HEADER: Final = "X-Forebay-Background"
_PORTS: Final = {"http": 80, "https": 443}
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def check_page(method: str, headers: Headers) -> None:
    """Raise Forbidden for a change that a page of another site may have requested, with the credentials of
    the browser."""
    if method in _SAFE:
        return
    if PAGE_HEADER not in headers:
        raise Forbidden(f"a change with a session cookie needs the header {PAGE_HEADER}")
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != headers.get("host", ""):
        raise Forbidden("a session accepts no changes from pages of other sites")


def check_local(headers: Headers, hosts: frozenset[str]) -> None:
    """Raise Forbidden for a request that a page of another site makes in a browser of this machine.

    A server without keys trusts its machine, and a browser lends that trust to the pages it shows. A page of
    another site names it in Origin. A page whose own name resolves to this machine (DNS rebinding) sends no
    Origin, but names itself in Host.
    """
    host_header = headers.get("host", "")
    host = _hostname(f"//{host_header}")
    origin = headers.get("origin")
    if not _is_ours(host, hosts):
        raise Forbidden(
            f"this server has no keys, and is not known as {host!r:.100}: use its IP address, or start it "
            "with --allowed-host"
        )
    if origin is not None and not is_same_origin(origin, host_header):
        raise Forbidden("this server has no keys, and accepts no requests from pages of other sites")


@lru_cache(maxsize=64)  # nearly all requests have the same one
def _hostname(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


@lru_cache(maxsize=64)
def is_same_origin(origin: str, host_header: str) -> bool:
    """Return whether a page is from the server that it requests.

    Its port counts, because other servers of the same machine may serve pages. A Host without a port means
    the default port of the page's scheme.
    """
    try:
        page = urlsplit(origin)
        server = urlsplit(f"{page.scheme}://{host_header}")
        default_port = _PORTS.get(page.scheme)  # the Origin of a page without one is "null"
        return default_port is not None and (page.hostname, page.port or default_port) == (
            server.hostname,
            server.port or default_port,
        )
    except ValueError:
        return False


@lru_cache(maxsize=64)
def _is_ours(host: str, hosts: frozenset[str]) -> bool:
    if host == "localhost" or host in hosts:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
