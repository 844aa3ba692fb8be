"""A real browser looks at dead letters and puts them back: part of `make test-browser`."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.scene import Scene, Sight

CAUSE = "TimeoutError: carrier # does not answer"
VIEW = "dead?queue=parcels"


def start_revive(page: Page, **plan: str) -> None:
    """By the keyboard alone."""
    page.get_by_role("button", name=f"Revive gradually: {CAUSE}").press("Enter")
    dialog = page.get_by_role("dialog")
    for label, value in plan.items():
        dialog.get_by_label(label.replace("_", " ")).fill(value)
    dialog.get_by_role("button", name="Start").press("Enter")
    expect(dialog).to_have_count(0)


@pytest.mark.shows("R-DASH-05")
def test_a_group_of_failures_is_revived_with_a_gradual_revive_and_seen_to_complete(
    scene: Scene, sight: Sight
) -> None:
    scene.strand(3)
    page = sight.open(VIEW)
    group = page.get_by_role("list", name="Failure groups").get_by_role("listitem")
    expect(group).to_have_count(1)
    for text in (CAUSE, "3 jobs", "shop.ship", "first", "last", "scene.py:ship"):
        expect(group).to_contain_text(text)

    start_revive(page, Jobs_in_the_first_batch="1", Seconds_between_two_batches="1")

    revive = page.get_by_role("list", name="Gradual revives").get_by_role("listitem").first
    expect(revive).to_contain_text("3 revived, 3 completed")
    expect(revive.locator(".badge")).to_have_text("completed")
    expect(page.get_by_text("No dead letters.")).to_be_visible()
    expect(group).to_have_count(0)
    assert sight.faults() == []


def test_a_gradual_revive_is_paused_resumed_and_stopped(scene: Scene, sight: Sight) -> None:
    scene.strand(2)
    page = sight.open(VIEW)
    page.get_by_role("button", name=f"Revive gradually: {CAUSE}").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Jobs in the first batch").fill("1")
    expect(dialog.get_by_role("status")).to_contain_text("1, then 1; the next batch waits")
    assert sight.faults() == []
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)

    # The second batch would come in an hour: whatever happens meanwhile, the gradual revive does not end by
    # itself.
    start_revive(page, Jobs_in_the_first_batch="1", Seconds_between_two_batches="3600")

    revive = page.get_by_role("list", name="Gradual revives").get_by_role("listitem").first
    for title, state in (("Pause", "paused"), ("Resume", "running"), ("Stop", "stopped")):
        revive.get_by_role("button", name=re.compile(f"^{title} the gradual revive")).click()
        expect(revive.locator(".badge")).to_have_text(state)


@pytest.mark.shows("R-DASH-05", "R-DLQ-12", "R-DASH-21")
def test_dead_letters_are_deleted_by_group_and_by_hand(scene: Scene, sight: Sight) -> None:
    scene.strand(2)
    page = sight.open(VIEW)

    page.get_by_role("button", name=f"Delete: {CAUSE}").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete 2 dead letters").click()
    expect(page.get_by_text("No dead letters.")).to_be_visible()

    scene.strand(2)
    # Without a request: what has died meanwhile is there by itself.
    expect(page.get_by_role("list", name="Failure groups")).to_contain_text("2 jobs")
    page.get_by_role("checkbox", name="Choose all shown").check()
    page.get_by_role("button", name="Delete 2 chosen").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete 2 dead letters").click()
    expect(page.get_by_text("No dead letters.")).to_be_visible()
