"""One server for each engine, shared by all tests of a process: each test has queues of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.stores.factory import open_engine
from tests.service.live_server import Served, serving
from tests.urls import ENGINES, url_of


@pytest.fixture(scope="session", params=ENGINES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server on each engine in turn."""
    url = url_of(request.param, tmp_path_factory.mktemp("service"))
    with serving(open_engine(url)) as found:
        yield found


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server where the engine does not matter."""
    with serving(open_engine("memory://")) as found:
        yield found
