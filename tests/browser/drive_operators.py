"""A real browser controls queues, jobs and workers, ten of them at once: part of `make test-browser`."""

from __future__ import annotations

import re
from contextlib import ExitStack, closing
from time import monotonic
from typing import Final

import pytest
from playwright.sync_api import Browser, expect

from benchmarks.explorer import live_through
from forebay.dashboard.static_files import StaticFiles
from forebay.stores.factory import open_engine
from tests.browser.scene import Scene, Sight
from tests.service.live_server import serving
from tests.urls import url_of

USERS: Final = 10
SECONDS: Final = 30


@pytest.mark.shows("R-DASH-18")
def test_who_has_cancelled_revived_or_deleted_a_job_stands_in_the_audit_log(
    scene: Scene, sight: Sight
) -> None:
    later = {"task": "shop.mail", "queue": "mail", "args": ["ada@example.com"], "delay_seconds": 86_400}
    job_id = scene.served.done("POST", "/v1/jobs", later)["id"]
    page = sight.open(f"jobs/{job_id}")
    badge = page.locator("h1 .badge")

    page.get_by_role("button", name="Cancel").click()
    expect(badge).to_have_text("cancelled")
    page.get_by_role("button", name="Revive").click()
    expect(badge).not_to_have_text("cancelled")
    sight.open(f"audit?job={job_id}")
    for kind in ("cancel", "revived"):
        expect(page.get_by_role("cell", name=kind, exact=True)).to_be_visible()
    # A job that is deleted takes its history along; that it was deleted stays.
    sight.open(f"jobs/{job_id}")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete it").click()
    expect(page.locator("h1")).to_have_text("Jobs")
    sight.open(f"audit?job={job_id}")
    expect(page.get_by_role("cell", name="deleted", exact=True)).to_be_visible()


@pytest.mark.shows("R-DASH-18")
def test_who_has_paused_a_queue_stands_in_the_audit_log(scene: Scene, sight: Sight) -> None:
    page = sight.open("queues")
    state = page.get_by_role("row", name=re.compile("^reports")).locator(".badge")

    for title, word in (("Pause reports", "paused"), ("Resume reports", "active")):
        page.get_by_role("button", name=title).click()
        expect(state).to_have_text(word)

    sight.open("audit?kind=queue_changed&queue=reports")
    for word in ("paused", "active"):
        expect(page.get_by_role("row").filter(has_text=f"→ {word}").first).to_be_visible()


@pytest.mark.shows("R-DASH-03")
def test_workers_show_what_they_run_what_it_costs_and_what_failed(scene: Scene, sight: Sight) -> None:
    scene.die("eve")
    scene.may_go.clear()
    try:
        held = scene.app.enqueue("shop.hold")
        page = sight.open("workers")

        row = page.get_by_role("region", name="Workers").get_by_role("row").nth(1)
        expect(row.get_by_role("link", name=re.compile(f"^{held.id[:12]}"))).to_be_visible()
        expect(row).to_contain_text(re.compile(r" for \d+ m?s"))
        expect(row).to_contain_text(re.compile(r"\d %"))
        expect(row).to_contain_text("MiB")
        assert sight.cut() == []
        expect(page.locator(".cell.alive").first).to_have_attribute("style", re.compile("--heat"))
        failed = page.get_by_role("region", name="Recent failures").get_by_role("row")
        expect(failed.filter(has_text="shop.charge").first).to_contain_text("the bank of")
    finally:
        scene.may_go.set()


def test_a_range_of_a_chart_is_selected_and_all_of_it_shown_again(scene: Scene, sight: Sight) -> None:
    page = sight.open("queues/money")
    chart = page.get_by_role("img", name=re.compile("^Throughput"))
    over = chart.locator(".u-over")
    expect(over).to_be_visible()
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box is not None

    def point(share: float) -> tuple[float, float]:
        return box["x"] + share * box["width"], box["y"] + box["height"] / 2

    def minute_at(share: float) -> int:
        """What the legend says where the mouse is, in minutes of the day."""
        page.mouse.move(*point(share))
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        legend = chart.locator(".u-legend .u-value").first
        expect(legend).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))
        hours, minutes, _ = (legend.text_content() or "").split(":")
        return int(hours) * 60 + int(minutes)

    before = minute_at(0.02)
    page.mouse.move(*point(0.5))
    page.mouse.down()
    page.mouse.move(*point(0.75), steps=5)
    page.mouse.up()
    selected = minute_at(0.02)
    over.dblclick(position={"x": box["width"] / 2, "y": box["height"] / 2})
    again = minute_at(0.02)

    assert 20 <= (selected - before) % (24 * 60) <= 40  # of an hour, half is left out
    assert (again - before) % (24 * 60) <= 10


@pytest.mark.shows("R-RATE-11")
def test_a_limit_shows_its_tokens_its_state_and_whom_it_holds_up(scene: Scene, sight: Sight) -> None:
    limit = {"scope": "task:shop.count", "rate": 1, "per_seconds": 3_600, "burst": 1}
    scene.served.done("PUT", "/v1/limits", limit)
    try:
        for number in range(3):
            scene.app.enqueue("shop.count", [number])
        page = sight.open("configuration")

        row = page.get_by_role("region", name="Limits").get_by_role("row").filter(has_text="task:shop.count")
        cells = row.get_by_role("cell")
        expect(cells.nth(1)).to_have_text("out_of_tokens")
        expect(cells.nth(3)).to_have_text("1 in 1 h")
        expect(cells.nth(4)).to_have_text("0 of 1")
        expect(cells.nth(5)).to_have_text("2")
        row.get_by_role("link", name="1 worker").click()
        worker = page.get_by_role("region", name="Workers").get_by_role("row").nth(1)
        expect(worker).to_contain_text("limited by task:shop.count")
    finally:
        scene.served.done("DELETE", "/v1/limits/task:shop.count")
    sight.open("configuration")
    expect(row).to_have_count(0)


@pytest.mark.shows("R-RATE-11")
def test_a_queue_says_how_many_requests_came_too_fast(scene: Scene, sight: Sight) -> None:
    queue = scene.served.queue(enqueue_rate=1, enqueue_burst=1)
    for status in (201, 429, 429):
        assert scene.served.post("/v1/jobs", {"task": "t", "queue": queue}).status_code == status

    page = sight.open(f"queues/{queue}")

    expect(page.get_by_text("This server has refused 2 requests since its start")).to_be_visible()


@pytest.mark.shows("R-DASH-13")
def test_ten_people_look_on_for_half_a_minute_with_more_than_ten_thousand_jobs(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    opened = open_engine(url_of("sqlite", tmp_path_factory.mktemp("crowd")))
    with closing(opened.store()) as store:
        live_through(store, 10_500)
    with serving(opened, around=StaticFiles) as served, ExitStack() as leaving:
        crowd = [Sight(browser, served.address) for _ in range(USERS)]
        for sight in crowd:
            leaving.callback(sight.close)
            expect(sight.open("jobs").get_by_text(re.compile(r"10,\d{3} matching"))).to_be_visible()
        until, turns = monotonic() + SECONDS, 0

        while turns < USERS or monotonic() < until:
            page = crowd[turns % USERS].page
            # All see what comes; one of them looks for it.
            job_id = served.enqueue("mail", task=f"shop.new_{turns}")
            for sight in crowd:
                expect(sight.page.get_by_role("region", name="Jobs")).to_contain_text(job_id[:12])
            page.get_by_label("Task").fill(f"shop.new_{turns}")
            page.get_by_label("Task").press("Enter")
            expect(page.get_by_text("1 matching, newest first")).to_be_visible()
            page.get_by_role("button", name="Clear").click()
            turns += 1

    assert [sight.complaints for sight in crowd] == [[]] * USERS
