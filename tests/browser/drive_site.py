"""A real browser reads the documentation, from files and from a server: `make test-browser`."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.scene import PATIENCE_MS
from tests.docs.pages import ROOT
from tests.docs.site_build import built

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "site"
    answer = built(ROOT, out)
    assert (answer.returncode, answer.stderr) == (0, "")
    return out


@pytest.fixture(scope="module", params=["files", "a server"])
def address(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    if request.param == "files":
        yield folder.as_uri()
        return
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A page that asks only the site for anything."""
    requested: list[str] = []
    page = browser.new_page()
    page.on("request", lambda request: requested.append(request.url))
    page.goto(f"{address}/index.html")
    yield page
    page.close()
    assert [url for url in requested if not url.startswith((address, "data:"))] == []


@pytest.mark.parametrize(
    ("words", "link"),
    [("dead letter", "Dead letters"), ("enqueue_many", "Enqueueing"), ("lease", "Workers")],
)
def test_the_search_leads_to_the_page(page: Page, words: str, link: str) -> None:
    page.get_by_placeholder("Search").first.fill(words)
    page.keyboard.press("Enter")
    found = page.locator("#search-results").get_by_role("link", name=link, exact=True).first
    expect(found).to_be_visible()

    found.click()

    expect(page.locator("article h1").first).to_contain_text(link)


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", ["index", "guide/tasks", "reference/settings", "reference/python"])
def test_a_page_is_no_wider_than_the_screen(browser: Browser, folder: Path, name: str, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(f"{folder.as_uri()}/{name}.html")

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()
