"""The engines of the store tests: what is built on the store contract must work on each of them."""

from __future__ import annotations

from tests.stores.conftest import engine, make_engine, other_store, postgres, reader, redis, store

__all__ = ["engine", "make_engine", "other_store", "postgres", "reader", "redis", "store"]
