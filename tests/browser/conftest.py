"""What the tests with a browser share: the browser, and on each engine a system to look at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.scene import PATIENCE_MS, Scene, Sight, browsing, playing
from tests.urls import url_of

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with playing(url_of(request.param, tmp_path_factory.mktemp("browser"))) as found:
        yield found


@pytest.fixture
def sight(browser: Browser, scene: Scene) -> Iterator[Sight]:
    found = Sight(browser, scene.address)
    yield found
    found.close()
    assert found.complaints == []
