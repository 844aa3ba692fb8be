"""URLs of stores for tests, one for each engine."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from forebay.errors import ConfigError

# Separates the test processes on one server.
_ISOLATION_OPTIONS: Final = {
    "postgresql": "schema",
    "postgres": "schema",
    "redis": "namespace",
    "rediss": "namespace",
    "valkey": "namespace",
    "valkeys": "namespace",
    "unix": "namespace",
}


def trial_url(store: str, folder: Path, name: str = "main") -> str:
    """Return the URL of a store for one test process. `store` is `memory`, `sqlite` (a file in this folder)
    or the URL of a server. There a schema or a namespace is named for this process, unless the URL has one.

    >>> trial_url("memory", Path("/tmp"))
    'memory://'
    >>> trial_url("postgresql://localhost/test", Path("/tmp"), "gw1")
    'postgresql://localhost/test?schema=forebay_test_gw1'
    """
    if store == "memory":
        return "memory://"
    if store == "sqlite":
        return f"sqlite:///{folder / 'jobs.db'}"
    parts = urlsplit(store)
    if not parts.scheme:
        raise ConfigError(f"{store!r} is no store: write memory, sqlite or the address of a server")
    option = _ISOLATION_OPTIONS.get(parts.scheme)
    if option is None or option in dict(parse_qsl(parts.query)):
        return store
    return f"{store}{'&' if parts.query else '?'}{option}=forebay_test_{name}"
