"""ASGI scope of a request to a mounted app, rewritten as if the app were not mounted."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final
from urllib.parse import quote, unquote

Scope = MutableMapping[str, Any]
BASE: Final = "forebay.base"  # in the scope: the path of the mount as browsers see it; empty without a mount
# The keys that ASGI defines. Frameworks add their own, for parts of their own app.
_OF_ASGI: Final = frozenset(
    {
        *("type", "asgi", "http_version", "method", "scheme", "query_string", "headers"),
        *("client", "server", "extensions"),
    }
)


def local_scope(scope: Scope, mount_path: str | None = None) -> dict[str, Any]:
    """Return the scope as if the request had been made to the app alone, with the path of the mount under
    BASE.

    Most frameworks add the path of the mount to `root_path` and leave `path` whole. Some strip or rewrite it:
    then `mount_path` names the mount, and the raw path that the client sent is used. Behind a proxy that has
    stripped a prefix, the path begins with what was added to `app_root_path`.
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
