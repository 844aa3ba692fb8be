"""The engines of the store tests, and apps on them: what is built on the seam must work on each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay import Forebay
from forebay.testing.clock import ManualClock
from tests.stores.conftest import engine, make_engine, other_store, reader, store

__all__ = ["app", "engine", "live_app", "make_engine", "other_store", "reader", "store", "url"]


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that is empty."""
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'app.db'}"


@pytest.fixture
def app(url: str, clock: ManualClock) -> Iterator[Forebay]:
    """An app whose time stands still: nothing is run, only stored."""
    with Forebay(url, clock=clock) as app:
        yield app
        assert app.client.read(lambda reader: reader.health()).problems == ()


@pytest.fixture
def live_app(url: str) -> Iterator[Forebay]:
    """An app on the clock of this machine, for tests that run jobs."""
    with Forebay(url) as app:
        yield app
        assert app.client.read(lambda reader: reader.health()).problems == ()
