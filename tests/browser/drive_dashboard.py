"""A real browser drives the dashboard: `make test-browser`.

The name keeps this file out of `make test`, which needs no browser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx2
import pytest
from playwright.sync_api import Browser, expect

from forebay.domain.job import QueueName
from tests.browser.scene import PATIENCE_MS, Scene, Sight, browsing, guarded, playing
from tests.urls import url_of

expect.set_options(timeout=PATIENCE_MS)

VIEWS = (
    "",
    "queues",
    "queues/money",
    "jobs",
    "jobs/{dead}",
    "dead",
    "schedules",
    "workers",
    "audit",
    "keys",
    "configuration",
)


# Tables with buttons in their last column that do not fit; others may be pushed to and fro.
CUT = """() => [...document.querySelectorAll(".scroll:has(td .button)")]
    .filter(one => one.scrollWidth > one.clientWidth)
    .map(one => `cut: ${one.ariaLabel}`)"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with playing(url_of(request.param, tmp_path_factory.mktemp("browser"))) as found:
        yield found


@pytest.fixture
def sight(browser: Browser, scene: Scene) -> Iterator[Sight]:
    found = Sight(browser, scene.address)
    yield found
    found.close()
    assert found.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_opens_and_can_be_used_by_everybody(browser: Browser, scene: Scene, scheme: str) -> None:
    sight = Sight(browser, scene.address, color_scheme=scheme)

    faults: dict[str, list[str]] = {}
    for view in VIEWS:
        page = sight.open(view.format(dead=scene.dead))
        expect(page.locator(".link")).to_have_text("Live")
        expect(page.get_by_text("Loading…")).to_have_count(0)
        faults[view] = [*sight.faults(), *page.evaluate(CUT)]

    sight.close()
    assert {view: found for view, found in faults.items() if found} == {}
    assert sight.complaints == []


def test_a_failing_job_is_found_read_revived_and_seen_to_complete(scene: Scene, sight: Sight) -> None:
    scene.is_mended.clear()
    page = sight.open("jobs?state=dead&queue=money&text=bank+of+ada")
    page.get_by_role("link", name=re.compile("^01")).first.click()

    expect(page.locator("h1")).to_contain_text("shop.charge")
    expect(page.get_by_label("Traceback of attempt 1")).to_contain_text("the bank of ada does not answer")
    expect(page.get_by_label("Arguments", exact=True)).to_contain_text('"***"')
    scene.is_mended.set()
    page.get_by_role("button", name="Revive").click()

    expect(page.locator("h1 .badge")).to_have_text("completed")
    expect(page.get_by_label("Result")).to_have_text('"charged ada"')
    expect(page.locator(".timeline")).to_contain_text("revived")


def test_a_cancelled_job_goes_back_to_when_it_was_due(scene: Scene, sight: Sight) -> None:
    page = sight.open("jobs?state=scheduled&tag=newsletter")
    page.get_by_role("link", name=re.compile("^01")).first.click()

    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("h1 .badge")).to_have_text("cancelled")
    page.get_by_role("button", name="Undo").click()

    expect(page.locator("h1 .badge")).to_have_text("scheduled")


def test_what_is_typed_into_a_filter_stays_while_the_page_changes(scene: Scene, sight: Sight) -> None:
    page = sight.open("jobs")
    field = page.get_by_label("Text")

    field.press_sequentially("no such ")
    scene.app.enqueue("shop.count", [1]).wait(timeout=60)
    expect(page.get_by_role("region", name="Jobs").get_by_role("row").nth(1)).to_contain_text("shop.count")
    field.press_sequentially("thing")
    expect(field).to_have_value("no such thing")
    field.press("Enter")

    expect(page.get_by_text("No job fits.")).to_be_visible()


def test_a_queue_with_a_dot_has_an_address_too(scene: Scene, sight: Sight) -> None:
    httpx2.post(f"{scene.address}/v1/queues", json={"name": "daily.post"}).raise_for_status()

    page = sight.open("queues/daily.post")

    expect(page.locator("h1")).to_contain_text("daily.post")
    expect(page.locator("h1 .badge")).to_have_text("active")


def test_a_queue_is_paused_and_goes_on_again(scene: Scene, sight: Sight) -> None:
    page = sight.open("queues")

    page.get_by_role("button", name="Pause mail").click()
    expect(page.get_by_role("row", name=re.compile("^mail")).locator(".badge")).to_have_text("paused")
    [queue] = scene.app.client.read(lambda reader: reader.queues([QueueName("mail")]))
    assert queue.state == "paused"
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("row", name=re.compile("^mail")).locator(".badge")).to_have_text("active")


def test_dead_letters_are_revived_together_after_a_count(scene: Scene, sight: Sight) -> None:
    scene.is_mended.set()
    page = sight.open("dead?queue=money")
    expect(page.get_by_role("region", name="Dead letters")).to_contain_text("does not answer")

    page.get_by_role("button", name="Revive all…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(re.compile(r"\d dead letters? go back"))
    dialog.get_by_role("button", name="Revive").click()

    expect(page.get_by_text("No dead letters fit.")).to_be_visible()
    expect(page.get_by_role("status").last).to_contain_text("revived")


def test_a_schedule_is_edited_with_a_preview(scene: Scene, sight: Sight) -> None:
    sight.forgiven = "status of 422"  # a line that is no cron line
    page = sight.open("schedules")

    page.get_by_role("row", name=re.compile("^nightly")).get_by_role("button", name="Edit").click()
    line = page.get_by_label("Cron line")
    expect(page.locator(".preview li")).to_have_count(5)
    line.fill("99 * * * *")
    expect(page.get_by_role("button", name="Save")).to_be_disabled()
    line.fill("30 4 1 1 *")
    expect(page.locator(".preview li").first).to_contain_text("1 Jan")
    page.get_by_role("button", name="Save").click()

    expect(page.get_by_role("row", name=re.compile("^nightly"))).to_contain_text("30 4 1 1 *")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("row", name=re.compile("^nightly"))).to_contain_text("0 3 * * *")


@pytest.mark.shows("R-DASH-19")
def test_a_job_is_enqueued_by_hand(scene: Scene, sight: Sight) -> None:
    page = sight.open("jobs")

    page.get_by_role("button", name="Enqueue").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Task").fill("shop.count")
    dialog.get_by_label("Queue").select_option("reports")
    dialog.get_by_label("Arguments", exact=True).fill("[41]")
    dialog.get_by_role("button", name="Enqueue it").click()

    expect(page.locator("h1 .badge")).to_have_text("completed")
    expect(page.get_by_label("Result")).to_have_text("41")


def test_a_workflow_is_a_picture(scene: Scene, sight: Sight) -> None:
    page = sight.open(f"jobs/{scene.flow}")

    expect(page.get_by_role("region", name="Workflow of 4 jobs").get_by_role("link")).to_have_count(4)


def test_the_page_fits_a_phone(browser: Browser, scene: Scene) -> None:
    sight = Sight(browser, scene.address)
    sight.page.set_viewport_size({"width": 380, "height": 720})

    for view in VIEWS:
        page = sight.open(view.format(dead=scene.dead))
        expect(page.locator(".link")).to_have_text("Live")
        assert page.evaluate("document.documentElement.scrollWidth") <= 380, view
    sight.close()


@pytest.mark.shows("R-DASH-08")
def test_the_page_polls_while_the_stream_is_down_and_comes_back_to_it(browser: Browser, scene: Scene) -> None:
    sight = Sight(browser, scene.address)
    sight.page.route("**/v1/events/stream**", lambda route: route.abort())

    page = sight.open("queues")
    expect(page.locator(".link")).to_have_text("Polling")
    expect(page.get_by_role("row", name=re.compile("^money"))).to_be_visible()
    page.unroute("**/v1/events/stream**")

    expect(page.locator(".link")).to_have_text("Live")
    sight.close()


@pytest.mark.shows("R-DASH-22")
def test_a_viewer_logs_in_looks_and_is_offered_nothing_else(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    url = url_of("sqlite", tmp_path_factory.mktemp("guarded"))
    with guarded(url) as (served, tokens):
        sight = Sight(browser, served.address)
        sight.forgiven = (
            "status of (401|403)"  # before the login, with a wrong key, and what a viewer may not
        )
        page = sight.open("queues")
        page.get_by_label("API key").fill("fbk_view.wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_have_text("This key does not hold here.")
        page.get_by_label("API key").fill(tokens["view"])
        page.get_by_role("button", name="Log in").click()

        expect(page.get_by_role("row", name=re.compile("^mail"))).to_be_visible()
        expect(page.get_by_role("button", name=re.compile("Pause|New queue"))).to_have_count(0)
        expect(page.get_by_role("link", name="Keys")).to_have_count(0)
        refused = page.evaluate(
            "() => fetch('/v1/queues/mail/pause', {method: 'POST', headers: {'X-Forebay-Page': '1'}})"
            ".then(answer => answer.status)"
        )
        assert refused == 403
        assert page.evaluate("document.cookie") == ""
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("API key")).to_be_visible()
        sight.close()
    assert sight.complaints == []
