"""Failure groups and gradual revives over HTTP."""

from __future__ import annotations

import pytest

from tests.service.live_server import Served
from tests.service.test_operators import died
from tests.worker.support import eventually


@pytest.mark.shows("R-DLQ-21")
def test_dead_letters_are_shown_by_what_they_died_of_and_one_group_is_revived_or_purged(
    served: Served,
) -> None:
    queue = served.queue()
    one, two = died(served, queue, task="a"), died(served, queue, task="b")
    where = {"queues": [queue]}

    found = served.done("POST", "/v1/dead-letters/failure-groups", {"where": where})

    [group] = found["groups"]
    assert (found["jobs"], found["is_complete"], found["others"]) == (2, True, 0)
    assert (group["message"], group["jobs"], group["tasks"]) == ("Failed: broken", 2, {"b": 1, "a": 1})
    assert group["example_id"] in (one, two)
    assert group["first_at"] <= group["last_at"]
    unknown = served.done("POST", "/v1/dead-letters/revive", {"where": where, "group": "0" * 16})
    requested = served.done(
        "POST", "/v1/dead-letters/revive", {"where": where, "group": group["id"], "dry_run": True}
    )
    a_only = {"queues": [queue], "tasks": ["a"]}
    revived = served.done("POST", "/v1/dead-letters/revive", {"where": a_only, "group": group["id"]})
    purged = served.done("POST", "/v1/dead-letters/purge", {"where": where, "group": group["id"]})
    assert (unknown["matched"], unknown["affected"]) == (0, 0)
    assert (requested["matched"], requested["affected"]) == (2, 0)
    assert (revived["affected"], purged["affected"]) == (1, 1)
    assert served.job(one)["state"] == "pending"
    assert served.ask("GET", f"/v1/jobs/{two}").status_code == 404


@pytest.mark.shows("R-TEST-39")
def test_cp5_6_retry_and_delete_of_dead_jobs_change_their_state(served: Served) -> None:
    queue = served.queue()
    retried, deleted = died(served, queue), died(served, queue)
    assert {served.job(job)["state"] for job in (retried, deleted)} == {"dead"}

    assert served.done("POST", f"/v1/jobs/{retried}/revive", {})["state"] == "pending"
    assert served.done("DELETE", f"/v1/jobs/{deleted}")["applied"] is True

    assert served.job(retried)["state"] == "pending"
    assert served.ask("GET", f"/v1/jobs/{deleted}").status_code == 404
    assert served.done("POST", "/v1/dead-letters/search", {"where": {"queues": [queue]}})["jobs"] == []


def test_a_gradual_revive_revives_what_fits_and_is_controlled(served: Served) -> None:
    queue = served.queue()
    job_id = died(served, queue)

    made = served.done(
        "POST", "/v1/dead-letters/gradual-revives", {"where": {"queues": [queue]}, "initial_batch": 3}
    )
    path = f"/v1/dead-letters/gradual-revives/{made['name']}"

    assert (made["state"], made["queues"], made["initial_batch"], made["every_seconds"]) == (
        "running",
        [queue],
        3,
        30,
    )
    again = served.post("/v1/dead-letters/gradual-revives", {"where": {"queues": [queue]}})
    assert (again.status_code, again.json()["code"]) == (409, "illegal_state")
    eventually(lambda: served.job(job_id)["state"] == "pending")
    shown = eventually(lambda: (one := served.done("GET", path))["revived"] and one)
    assert (shown["batches"], shown["waiting"], shown["completed"], shown["failed_again"]) == (1, 1, 0, 0)
    states = [served.done("POST", f"{path}/{verb}")["state"] for verb in ("pause", "resume", "stop")]
    assert states == ["paused", "running", "stopped"]
    assert made["name"] in [
        one["name"] for one in served.done("GET", "/v1/dead-letters/gradual-revives")["gradual_revives"]
    ]
    unknown = served.ask("GET", "/v1/dead-letters/gradual-revives/ABSENT")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "gradual_revive_not_found")
