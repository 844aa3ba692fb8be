"""Addresses of stores for tests that run on several engines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Final

ENGINES: Final = ("memory", "sqlite", "postgresql", "redis")
SHARED: Final = ("sqlite", "postgresql", "redis")  # those that several processes can open
JOINING: Final = ("sqlite", "postgresql")  # those that can be part of a caller's own transaction
_SUPPORT: Final = {"postgresql": "postgres_support", "redis": "redis_support"}


def url_of(engine: str, folder: Path) -> str:
    """The address of an empty store of this engine, in this folder or on the server of the tests."""
    if engine == "memory":
        return "memory://"
    if engine == "sqlite":
        return f"sqlite:///{folder}/jobs.db"
    # Imported here, so that the other engines are tested while this one cannot even be loaded.
    url: str = import_module(f"tests.stores.{_SUPPORT[engine]}").new_url()
    return url


@contextmanager
def lent_url(engine: str, folder: Path) -> Iterator[str]:
    """The same for one test whose process alone uses the store: it is emptied for the next test, and not
    made anew."""
    if engine in _SUPPORT:
        with import_module(f"tests.stores.{_SUPPORT[engine]}").lent_url() as url:
            yield url
    else:
        if engine == "sqlite":
            import_module("tests.stores.sqlite_support").put_empty(folder / "jobs.db")
        yield url_of(engine, folder)
