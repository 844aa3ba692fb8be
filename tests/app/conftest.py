"""The engines of the store tests, and apps on them: what is built on the store contract must work on each of
them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay import Forebay
from tests.clocks import FollowedClock
from tests.stores import postgres_support, redis_support
from tests.stores.conftest import engine, make_engine, other_store, postgres, reader, redis, store
from tests.urls import ENGINES, lent_url

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


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a store that is empty."""
    with lent_url(request.param, tmp_path) as url:
        yield url


@pytest.fixture
def app(url: str, clock: FollowedClock) -> Iterator[Forebay]:
    """An app whose time stands still: nothing is run, only stored."""
    if url.startswith("postgresql"):
        postgres_support.follow(clock, url)
    elif url.startswith("redis"):
        redis_support.follow(clock, url)
    with Forebay(url, clock=clock) as app:
        yield app
        assert app.client.read(lambda reader: reader.health()).problems == ()


@pytest.fixture
def live_app(url: str) -> Iterator[Forebay]:
    """An app on the clock of this machine, for tests that run jobs."""
    with Forebay(url) as app:
        yield app
        assert app.client.read(lambda reader: reader.health()).problems == ()
