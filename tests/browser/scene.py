"""A system to look at, a server with its page, and a browser that looks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any, Final, NamedTuple

from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from forebay import Forebay, RetryPolicy, chain, current_job, group
from forebay.dashboard.static_files import StaticFiles
from forebay.domain.api_key import Grant
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.server_security import ServerSecurity
from forebay.stores.factory import open_engine
from tests.service.live_server import Served, serving

PATIENCE_MS: Final = 60_000
OPTIONS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run", "--disable-quic", "--disable-dev-shm-usage"),
)
CARD: Final = {"card_token": "4242"}
AXE: Final = Path(__file__).resolve().parents[2] / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"

# Tables with buttons in their last column that do not fit; others may be pushed to and fro.
CUT: Final = """() => [...document.querySelectorAll(".scroll:has(td .button)")]
    .filter(one => one.scrollWidth > one.clientWidth)
    .map(one => `cut: ${one.ariaLabel}`)"""


class Scene(NamedTuple):
    """What the tests of one store share."""

    app: Forebay
    served: Served
    is_mended: Event
    may_go: Event
    dead: str
    flow: str

    @property
    def address(self) -> str:
        return self.served.address

    def die(self, name: str) -> str:
        """The id of a dead letter in the queue money."""
        self.is_mended.clear()
        handle = self.app.enqueue("shop.charge", [name], CARD)
        handle.wait(timeout=PATIENCE_MS / 1_000)
        self.is_mended.set()
        return str(handle.id)

    def strand(self, parcels: int) -> None:
        """So many dead letters of one kind in the queue parcels, and no others."""
        self.served.done("POST", "/v1/dead-letters/purge", {"where": {"queues": ["parcels"]}})
        self.is_mended.clear()
        handles = [self.app.enqueue("shop.ship", [number]) for number in range(parcels)]
        for one in handles:
            one.wait(timeout=PATIENCE_MS / 1_000)
        self.is_mended.set()


def add_failing_tasks(app: Forebay, is_mended: Event) -> None:
    """Two tasks that fail until they are mended."""

    @app.task(name="shop.charge", queue="money", retry_policy=RetryPolicy(max_retries=0))
    def charge(name: str, card_token: str = "") -> str:
        if not is_mended.is_set():
            raise ConnectionError(f"the bank of {name} does not answer")
        return f"charged {name}"

    @app.task(name="shop.ship", queue="parcels", retry_policy=RetryPolicy(max_retries=0))
    def ship(number: int) -> int:
        if not is_mended.is_set():
            raise TimeoutError(f"carrier {number} does not answer")
        return number


@contextmanager
def playing(url: str) -> Iterator[Scene]:
    """An app with a worker, jobs of every kind, and a server without keys."""
    app, is_mended, may_go = Forebay(url), Event(), Event()
    add_failing_tasks(app, is_mended)

    @app.task(name="shop.count", queue="reports")
    def count(page: int) -> int:
        return page

    @app.task(name="shop.total", queue="reports")
    def total() -> int:
        return sum(current_job().parent_results())

    @app.task(name="shop.hold", queue="reports")
    def hold() -> None:
        may_go.wait(PATIENCE_MS / 1_000)

    @app.task(name="shop.mail", queue="mail")
    def mail(to: str) -> None:
        return None

    with app:
        app.schedules.save("nightly", mail, ["all@example.com"], cron="0 3 * * *")
        with app.run_worker(threads=2):
            handles = [app.enqueue("shop.charge", [name], CARD) for name in ("ada", "grace", "tony")]
            flow = app.workflow(chain(group(*(count.job(page) for page in range(3))), total.job())).enqueue()
            flow.results(timeout=60)
            for one in handles:
                one.wait(timeout=60)
            mail.using(delay=86_400, tags=["newsletter"]).enqueue("ada@example.com")
            with serving(open_engine(url), around=StaticFiles) as served:
                yield Scene(app, served, is_mended, may_go, str(handles[0].id), str(flow.last[0].id))
            may_go.set()


@contextmanager
def guarded(url: str) -> Iterator[tuple[Served, dict[str, str]]]:
    """A server that asks for keys, and the tokens of a viewer and of an admin."""
    engine = open_engine(url)
    store, reader = engine.store(), engine.reader()
    keys = ApiKeyAdmin(store, reader, actor="ann")
    store.save_queue("mail")  # type: ignore[arg-type]  # a plain text names it
    tokens = {role: keys.create(role, [Grant.parse(role)]).token for role in ("view", "admin")}
    with serving(engine, security=ServerSecurity(requires_keys=True), around=StaticFiles) as served:
        yield served, tokens
    store.close()
    reader.close()


@contextmanager
def browsing() -> Iterator[Browser]:
    with sync_playwright() as player:
        browser = player.chromium.launch(
            executable_path=os.environ["FOREBAY_CHROMIUM"], headless=True, args=list(OPTIONS)
        )
        yield browser
        browser.close()


class Sight:
    """A page that minds its console."""

    def __init__(self, browser: Browser, address: str, **options: Any) -> None:
        self._context = browser.new_context(
            viewport={"width": 1280, "height": 860}, timezone_id="UTC", locale="en-GB", **options
        )
        self._address = address
        self.forgiven = ""
        self.complaints: list[str] = []
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _hear(self, message: ConsoleMessage) -> None:
        # A browser tells its console of every answer that is a refusal, also of those that a test asks for.
        is_forgiven = self.forgiven and re.search(self.forgiven, message.text)
        if message.type in ("error", "warning") and not is_forgiven:
            self.complaints.append(message.text)

    def open(self, view: str) -> Page:
        self.page.goto(f"{self._address}/dashboard/{view}")
        self.page.wait_for_selector("h1")
        return self.page

    def faults(self) -> list[str]:
        """What is serious for who cannot see or point well, by axe."""
        # Not by a script tag: the policy of the page lets no other script in.
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate("async () => (await axe.run()).violations")
        return [
            f"{one['id']}: {node['html'][:160]}"
            for one in found
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"]
        ]

    def cut(self) -> list[str]:
        """Tables whose buttons are out of sight."""
        found: list[str] = self.page.evaluate(CUT)
        return found

    def close(self) -> None:
        self._context.close()
