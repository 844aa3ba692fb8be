"""Static files of the page, as an ASGI app in front of the service: /dashboard is files, other paths go on.

The page is a client of the API like any other. It gets only scripts and styles here, so it needs no key to be
loaded; the API checks its permissions.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

from forebay.service.asgi_mount_scope import BASE

ROOT: Final = "/dashboard/"
STATIC: Final = Path(__file__).parent / "static"
NOT_BUILT: Final = (
    "The dashboard was not built with this installation. In a checkout `make dashboard` builds it; elsewhere "
    "install Node 22.12 or newer with npm and repeat `pip install --force-reinstall`."
)

# Nothing comes from another host, and nothing is written into the page as code. So a text inside a job can do
# no harm there.
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_PROTECTION: Final = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_IMMUTABLE: Final = "public, max-age=31536000, immutable"  # the name of an asset changes with what is in it
_REVALIDATE: Final = "no-cache"
_NO_BASE: Final = b'<meta name="forebay-base" content=""'

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]


class StaticFile(NamedTuple):
    """File of the page, in memory."""

    content: bytes
    compressed: bytes
    content_type: str
    etag: str
    cache_control: str


class FileResponse(NamedTuple):
    """Response to a request for a file."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


def is_built() -> bool:
    """Return whether this installation has the page."""
    return (STATIC / "index.html").exists()


def is_page(path: str) -> bool:
    """Return whether a path belongs to the page, or redirects to it."""
    return path in ("/", ROOT[:-1]) or path.startswith(ROOT)


class StaticFiles:
    """App that serves the files of the page, and passes other requests to the service."""

    def __init__(self, app: App, folder: Path = STATIC) -> None:
        self._app = app
        self._folder = folder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or not is_page(path) or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        fields = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        response = self._build_response(path, fields, scope.get(BASE, ""))
        headers = {**_PROTECTION, **response.headers, "Content-Length": str(len(response.body))}
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": response.status, "headers": encoded})
        body = b"" if scope["method"] == "HEAD" else response.body
        await send({"type": "http.response.body", "body": body, "more_body": False})

    @cached_property
    def _files(self) -> dict[str, StaticFile]:
        found = (path for path in sorted(self._folder.rglob("*")) if path.is_file())
        return {path.relative_to(self._folder).as_posix(): _read_file(path) for path in found}

    def _index_page(self, base: str) -> StaticFile | None:
        plain = self._files.get("index.html")
        if plain is None or not base:
            return plain
        return _build_file(self._folder / "index.html", _insert_base(plain.content, base))

    def _build_response(self, path: str, request_headers: Mapping[str, str], base: str) -> FileResponse:
        if not path.startswith(ROOT):
            return FileResponse(307, {"Location": base + ROOT})
        name = path.removeprefix(ROOT)
        # Every view has a path of its own, which the script of the page routes. It may contain dots, as names
        # of queues do (mail.daily). Only a file has one before the first slash.
        head = name.partition("/")[0]
        is_view = head != "assets" and "." not in head
        file = self._files.get(name) or (self._index_page(base) if is_view else None)
        if file is None:
            text = {"Content-Type": "text/plain; charset=utf-8"}
            return (
                FileResponse(404, text, b"not found\n")
                if self._files
                else FileResponse(503, text, f"{NOT_BUILT}\n".encode())
            )
        headers = {"ETag": file.etag, "Cache-Control": file.cache_control, "Vary": "Accept-Encoding"}
        if request_headers.get("if-none-match") == file.etag:
            return FileResponse(304, headers)
        headers["Content-Type"] = file.content_type
        if "gzip" not in request_headers.get("accept-encoding", ""):
            return FileResponse(200, headers, file.content)
        return FileResponse(200, {**headers, "Content-Encoding": "gzip"}, file.compressed)


def _insert_base(page: bytes, base: str) -> bytes:
    """Return the page for a mount: its files and its API are below the path of the mount."""
    path = escape(base).encode()
    page = page.replace(b'"' + ROOT.encode(), b'"' + path + ROOT.encode())
    return page.replace(_NO_BASE, _NO_BASE.replace(b'""', b'"' + path + b'"'))


def _read_file(path: Path) -> StaticFile:
    return _build_file(path, path.read_bytes())


def _build_file(path: Path, content: bytes) -> StaticFile:
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    # The system's type of scripts differs, and browsers run only scripts with a JavaScript type.
    kind = "text/javascript" if path.suffix == ".js" else kind
    return StaticFile(
        content=content,
        compressed=gzip.compress(content, mtime=0),
        content_type=f"{kind}; charset=utf-8" if kind.startswith("text/") else kind,
        etag=f'"{hashlib.sha256(content).hexdigest()[:32]}"',
        cache_control=_IMMUTABLE if path.parent.name == "assets" else _REVALIDATE,
    )
