"""A request to an app that is mounted in another one, as the app would get it alone."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final
from urllib.parse import quote, unquote

Scope = MutableMapping[str, Any]
BASE: Final = "forebay.base"  # in the scope: the path under which a browser finds the app; empty where alone
# What ASGI itself says of a request. The frameworks put more into it, for parts of their own app.
_OF_ASGI: Final = frozenset(
    {
        *("type", "asgi", "http_version", "method", "scheme", "query_string", "headers"),
        *("client", "server", "extensions"),
    }
)


def local_scope(scope: Scope, mount_path: str | None = None) -> dict[str, Any]:
    """The request as if it had been made to the app alone, and under BASE where that was.

    Most frameworks add the path of the mount to `root_path` and leave the whole path as it is. Some cut it
    off, or change it on the way: then `mount_path` says it, and what the client has sent is looked at. Behind
    a
    proxy that has cut off a prefix, the path begins with what was added to `app_root_path`.
    """
    base = (scope.get("root_path", "") if mount_path is None else mount_path).rstrip("/")
    path = scope["path"]
    if mount_path is not None and scope.get("raw_path"):
        path = unquote(scope["raw_path"].partition(b"?")[0].decode("latin-1"))
    outer = scope.get("app_root_path", "").rstrip("/") if mount_path is None else ""
    for front in (base, base.removeprefix(outer)):
        if path == front or path.startswith(f"{front}/"):
            path = path[len(front) :]
            break
    known = {name: value for name, value in scope.items() if name in _OF_ASGI}
    path = path or "/"
    return {**known, "path": path, "raw_path": quote(path).encode(), "root_path": "", BASE: quote(base)}
