"""The engines of the store tests, and apps on them: operations must work on each engine."""

from __future__ import annotations

from tests.app.conftest import app, live_app, url
from tests.stores.conftest import engine, make_engine, other_store, postgres, reader, redis, store

__all__ = [
    "app",
    "engine",
    "live_app",
    "make_engine",
    "other_store",
    "postgres",
    "reader",
    "redis",
    "store",
    "url",
]
