"""`forebay audit`: who did what, and what was before."""

from __future__ import annotations

import json

import pytest

from forebay.stores.contract.store import Store
from tests.cli.command_runner import answer, call, put


@pytest.mark.shows("R-QUEUE-14", "R-HIST-27", "R-SEC-12")
def test_operators_actions_are_shown_with_what_was_before(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer("queues", "create", "mail", "weight=2")
    monkeypatch.setenv("FOREBAY_ACTOR", "ann")
    answer("queues", "pause", "mail")
    job_id = put(store)
    answer("jobs", "cancel", job_id, "--yes")

    cancelled, paused, created = answer("audit")["lines"]

    assert (cancelled["kind"], cancelled["job_id"], cancelled["actor"]) == ("cancel", job_id, "ann")
    assert (paused["before"], paused["after"]) == ({"state": "active"}, {"state": "paused"})
    assert (created["after"], created["actor"].startswith("cli:")) == ({"weight": 2}, True)
    assert "@" in created["actor"]
    assert 'state: "active" -> "paused"' in call("audit", "--kind", "queue_changed").stdout


def test_lines_are_chosen_and_paged(store: Store) -> None:
    for name in ("a", "b", "c"):
        answer("queues", "create", name)

    first = answer("audit", "--limit", "2")
    assert [line["queue"] for line in first["lines"]] == ["c", "b"]
    second = answer("audit", "--limit", "2", "--after", str(first["after"]))
    assert ([line["queue"] for line in second["lines"]], second["after"]) == (["a"], None)
    assert [line["queue"] for line in answer("audit", "--queue", "b", "--since", "1h")["lines"]] == ["b"]
    for nothing in (
        ("--actor", "absent"),
        ("--until", "1h"),
        ("--kind", "limit_changed"),
        ("--request", "r1"),
    ):
        assert answer("audit", *nothing)["lines"] == []


@pytest.mark.shows("R-HIST-29")
def test_all_lines_can_be_taken_away_to_be_kept_longer(store: Store) -> None:
    for name in ("a", "b", "c"):
        answer("queues", "create", name)

    lines = call("audit", "--lines", "--all", "--limit", "1").stdout.splitlines()

    assert [json.loads(line)["queue"] for line in lines] == ["c", "b", "a"]
