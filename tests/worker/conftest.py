"""The engines of the store tests, an app on each, and a rig that plays a coordinator's turns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay import Forebay
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.conftest import engine, make_engine, other_store, postgres, reader, redis, store
from tests.urls import ENGINES, lent_url
from tests.worker.invocations import raising, runner
from tests.worker.rig import Rig

__all__ = [
    "engine",
    "make_engine",
    "other_store",
    "postgres",
    "raising",
    "reader",
    "redis",
    "runner",
    "store",
]


@pytest.fixture(params=ENGINES)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Forebay]:
    """An app on each engine, by the clock of its machine; it leaves a store without problems behind."""
    with lent_url(request.param, tmp_path) as url, Forebay(url) as app:
        yield app
        assert app.client.read(lambda reader: reader.health()).problems == ()


@pytest.fixture
def rig(store: Store, reader: Reader, clock: ManualClock) -> Rig:
    return Rig(store, reader, clock)
