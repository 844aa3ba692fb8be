"""A real browser drives the dashboard: `make test-browser`.

The name keeps this file out of `make test`, which needs no browser.
"""

from __future__ import annotations

import logging
import re

import httpx2
import pytest
from playwright.sync_api import Browser, expect

from benchmarks.explorer import live_through
from forebay.dashboard.static_files import StaticFiles
from forebay.domain.job import QueueName
from forebay.errors import StoreUnavailable
from forebay.stores.factory import open_engine
from tests.browser.scene import PATIENCE_MS, Scene, Sight, guarded
from tests.service.live_server import serving
from tests.urls import SHARED, url_of

logger = logging.getLogger(__name__)
expect.set_options(timeout=PATIENCE_MS)

# Ten times what is promised, since the machine may have other things to do; `make test-browser
# ARGS=--log-cli-level=info` tells how long it took.
CHANGE_MS = 10_000
LOAD_MS = 20_000

VIEWS = (
    "",
    "queues",
    "queues/money",
    "jobs",
    "jobs/{dead}",
    "dead",
    "schedules",
    "workers",
    "alerts?show=all",
    "audit",
    "keys",
    "configuration",
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_opens_and_is_accessible(browser: Browser, scene: Scene, scheme: str) -> None:
    sight = Sight(browser, scene.address, color_scheme=scheme)

    faults: dict[str, list[str]] = {}
    for view in VIEWS:
        page = sight.open(view.format(dead=scene.dead))
        expect(page.locator(".link")).to_have_text("Live")
        expect(page.get_by_text("Loading…")).to_have_count(0)
        faults[view] = [*sight.faults(), *sight.cut()]

    sight.close()
    assert {view: found for view, found in faults.items() if found} == {}
    assert sight.complaints == []


@pytest.mark.shows("R-DASH-04", "R-DASH-09", "R-DASH-15", "R-NFR-12")
def test_a_failing_job_is_found_read_revived_and_seen_to_complete(scene: Scene, sight: Sight) -> None:
    scene.die("ada")
    page = sight.open("jobs?state=dead&queue=money&text=bank+of+ada")
    page.get_by_role("link", name=re.compile("^01")).first.click()

    expect(page.locator("h1")).to_contain_text("shop.charge")
    expect(page.get_by_label("Traceback of attempt 1")).to_contain_text("the bank of ada does not answer")
    expect(page.get_by_label("Arguments", exact=True)).to_contain_text('"***"')
    began = page.evaluate("performance.now()")
    page.get_by_role("button", name="Revive").click()

    expect(page.locator("h1 .badge")).to_have_text("completed", timeout=CHANGE_MS)
    logger.info("revived, run and shown after %d ms", page.evaluate("performance.now()") - began)
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

    expect(page.get_by_text("No matching jobs.")).to_be_visible()


@pytest.mark.shows("R-DASH-06")
def test_an_alert_is_acknowledged_and_a_rule_changed(scene: Scene, sight: Sight) -> None:
    scene.app.alerts.trigger("deploy", "Release 7 goes out", severity="info")
    sight.forgiven = "status of 422"  # a condition about a metric that is not there
    page = sight.open("alerts?severity=info")

    page.get_by_role("button", name="Acknowledge: Release 7 goes out").first.click()
    expect(page.get_by_role("button", name="Acknowledge: Release 7 goes out")).to_have_count(0)
    page.get_by_role("button", name="Resolve: Release 7 goes out").first.click()
    expect(page.get_by_text("Nothing is wrong.")).to_be_visible()
    page.get_by_label("Show").select_option("Resolved")
    expect(page.get_by_role("region", name="Alerts")).to_contain_text("Release 7 goes out")
    page.get_by_role("searchbox", name="Text").fill("release 8")
    page.get_by_role("searchbox", name="Text").press("Enter")
    expect(page.get_by_text("No alert fits.")).to_be_visible()
    page.get_by_role("button", name="Edit queue-depth").click()
    field = page.get_by_label("Condition")
    field.fill("depth > 7")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("there is no metric 'depth'")).to_be_visible()
    field.fill("queue_depth > 7")
    page.get_by_role("button", name="Save").click()

    expect(page.get_by_role("region", name="Rules")).to_contain_text("queue_depth > 7")
    assert scene.app.alerts.rule("queue-depth").condition == "queue_depth > 7"


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
    sight.open("audit")
    row = page.get_by_role("row").filter(has_text="mail").filter(has_text="paused")
    expect(row.first).to_be_visible()


@pytest.mark.shows("R-DASH-05", "R-DLQ-12")
def test_dead_letters_are_revived_together_after_a_count(scene: Scene, sight: Sight) -> None:
    for name in ("grace", "zoe"):
        scene.die(name)
    page = sight.open("dead?queue=money")
    expect(page.get_by_role("region", name="Dead letters")).to_contain_text("does not answer")

    page.get_by_role("button", name="Revive matching…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(re.compile(r"\d dead letters? go back"))
    dialog.get_by_role("button", name="Revive").click()

    expect(page.get_by_text("No dead letters.")).to_be_visible()
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


@pytest.mark.shows("R-DEP-16", "R-DASH-17")
def test_a_workflow_is_a_picture_that_leads_to_its_jobs(scene: Scene, sight: Sight) -> None:
    page = sight.open(f"jobs/{scene.flow}")

    picture = page.get_by_role("region", name="Workflow of 4 jobs")
    expect(picture.get_by_role("link")).to_have_count(4)
    expect(picture.locator(".dot.s-completed")).to_have_count(4)
    picture.get_by_role("link", name="shop.count, completed").first.click()
    expect(page.locator("h1")).to_contain_text("shop.count")


@pytest.mark.shows("R-DASH-01")
def test_the_overview_shows_queues_workers_and_how_it_went(scene: Scene, sight: Sight) -> None:
    scene.die("eve")

    page = sight.open("")

    expect(page.locator(".tile", has_text="Dead letters").locator("b")).not_to_have_text("0")
    expect(
        page.get_by_role("region", name="Queues").get_by_role("row", name=re.compile("^money"))
    ).to_be_visible()
    expect(page.locator(".cell.alive")).to_contain_text("busy")
    for title in ("Throughput", "Backlog"):
        expect(page.locator(".panel", has=page.get_by_role("heading", name=title))).to_be_visible()


@pytest.mark.shows("R-DASH-02")
def test_a_queue_shows_its_states_its_throughput_and_what_fails(scene: Scene, sight: Sight) -> None:
    scene.die("eve")

    page = sight.open("queues/money")

    expect(page.get_by_role("link", name=re.compile(r"^dead [1-9]"))).to_be_visible()
    expect(page.get_by_role("region", name="Top errors")).to_contain_text("shop.charge")
    expect(page.get_by_role("heading", name="Next jobs")).to_be_visible()
    expect(page.get_by_role("heading", name="Throughput")).to_be_visible()


@pytest.mark.shows("R-DASH-20")
def test_a_job_that_does_not_end_is_taken_away(scene: Scene, sight: Sight) -> None:
    scene.may_go.clear()
    stuck = scene.app.enqueue("shop.hold")
    page = sight.open(f"jobs/{stuck.id}")
    expect(page.locator("h1 .badge")).to_have_text("running")

    page.get_by_role("button", name="Force cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Force cancel").click()

    expect(page.locator("h1 .badge")).to_have_text("dead")
    scene.may_go.set()


@pytest.mark.shows("R-DASH-10")
def test_one_stream_is_enough_for_all_views(scene: Scene, sight: Sight) -> None:
    streams: list[str] = []
    sight.page.on(
        "request", lambda request: streams.append(request.url) if "/events/stream" in request.url else None
    )

    page = sight.open("")
    for title in ("Queues", "Jobs", "Dead letters", "Schedules", "Workers", "Configuration", "Overview"):
        page.get_by_role("navigation").get_by_role("link", name=title).click()
        expect(page.locator("h1")).to_have_text(title)
    expect(page.locator(".link")).to_have_text("Live")

    assert len(streams) == 1


@pytest.mark.shows("R-DASH-11", "R-DASH-07", "R-DASH-17")
def test_what_a_user_prefers_stays_and_limits_and_settings_are_shown(scene: Scene, sight: Sight) -> None:
    limit = {"scope": "task:shop.mail", "concurrency": 3}
    httpx2.put(f"{scene.address}/v1/limits", json=limit).raise_for_status()
    page = sight.open("configuration")

    page.get_by_role("group", name="Charts show").get_by_role("button", name="7d").click()
    page.get_by_role("group", name="Durations as").get_by_role("button", name="p99").click()
    page.get_by_label("Refresh interval (s)").fill("9")
    page.get_by_label("Refresh interval (s)").press("Tab")
    sight.open("configuration")

    for choice in ("7d", "p99"):
        expect(page.get_by_role("button", name=choice)).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_label("Refresh interval (s)")).to_have_value("9")
    expect(page.get_by_role("region", name="Limits")).to_contain_text("task:shop.mail")
    expect(page.get_by_role("region", name="Settings of queues")).to_contain_text("money")
    expect(page.get_by_text("Store answers")).to_be_visible()


@pytest.mark.shows("R-DASH-16", "R-DASH-21")
def test_while_the_store_is_away_the_last_values_stay_and_the_page_says_so(
    scene: Scene, sight: Sight, monkeypatch: pytest.MonkeyPatch
) -> None:
    sight.forgiven = "status of 503"

    def away(call: object) -> None:
        raise StoreUnavailable("the store is away")

    page = sight.open("queues")
    money = page.get_by_role("row", name=re.compile("^money"))
    expect(money).to_be_visible()
    with monkeypatch.context() as patched:
        patched.setattr(scene.served.service.pool, "_breaker", away)
        expect(page.get_by_role("alert")).to_contain_text("What you see may be from before.")
        expect(money).to_be_visible()

    expect(page.get_by_role("alert")).to_have_count(0)


def test_the_page_fits_a_phone(browser: Browser, scene: Scene) -> None:
    sight = Sight(browser, scene.address)
    sight.page.set_viewport_size({"width": 380, "height": 720})

    for view in VIEWS:
        page = sight.open(view.format(dead=scene.dead))
        expect(page.locator(".link")).to_have_text("Live")
        assert page.evaluate("document.documentElement.scrollWidth") <= 380, view
        assert sight.cut() == [], view
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


@pytest.mark.parametrize("engine", SHARED)
@pytest.mark.shows("R-DASH-12", "R-NFR-13", "R-DASH-04")
def test_a_history_of_ten_thousand_jobs_is_searched(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory, engine: str
) -> None:
    opened = open_engine(url_of(engine, tmp_path_factory.mktemp("history")))
    store = opened.store()
    live_through(store, 10_000)
    with serving(opened, around=StaticFiles) as served:
        sight = Sight(browser, served.address)
        page = sight.open("")
        expect(page.get_by_role("row", name=re.compile("^mail"))).to_be_visible(timeout=LOAD_MS)
        logger.info("the first page is there after %d ms", page.evaluate("performance.now()"))
        sight.open("jobs?text=someone1234@")
        expect(page.get_by_role("region", name="Jobs").get_by_role("row")).to_have_count(2)
        expect(page.get_by_text("1 matching, newest first")).to_be_visible()
        sight.open("jobs?task=shop.task_3")
        page.get_by_role("button", name="Older").click()
        expect(page.get_by_role("button", name="Newest")).to_be_visible()
        sight.close()
    store.close()
    assert sight.complaints == []


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
        expect(page.get_by_role("alert")).to_have_text("Invalid API key.")
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
