"""Graphs of jobs that wait for each other, and times of schedules that are not saved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from forebay import Forebay, RetryPolicy
from forebay.domain.api_key import Grant
from forebay.payload.codec import decode_call
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.server_security import ServerSecurity
from forebay.stores.factory import open_engine
from tests.service.live_server import Holder, Served, serving


def diamond(served: Served, queue: str, other: str) -> list[str]:
    """Four jobs: two wait for the first, one of them in another queue, and the last waits for both."""
    jobs = [
        {"task": "first", "queue": queue},
        {"task": "left", "queue": queue, "depends_on": [{"index": 0}]},
        {"task": "right", "queue": other, "depends_on": [{"index": 0}]},
        {"task": "last", "queue": queue, "depends_on": [{"index": 1}, {"index": 2}]},
    ]
    accepted = served.done("POST", "/v1/jobs/batch", {"jobs": jobs})["accepted"]
    return [one["id"] for one in accepted]


def edges(graph: dict[str, Any]) -> set[tuple[str, str]]:
    return {(one["parent"], one["child"]) for one in graph["edges"]}


def test_a_graph_is_the_same_from_wherever_one_looks(served: Served) -> None:
    queue = served.queue()
    first, left, right, last = diamond(served, queue, queue)

    graphs = [served.done("GET", f"/v1/jobs/{one}/graph") for one in (first, right, last)]

    for graph in graphs:
        assert {one["id"] for one in graph["jobs"]} == {first, left, right, last}
        assert edges(graph) == {(first, left), (first, right), (left, last), (right, last)}
        assert graph["is_complete"]
    assert graphs[0]["jobs"][0]["id"] == first
    assert {one["edge"] for one in graphs[0]["edges"]} == {"open"}


def test_a_large_graph_says_that_it_goes_on(served: Served) -> None:
    queue = served.queue()
    first, *_ = diamond(served, queue, queue)

    few = served.done("GET", f"/v1/jobs/{first}/graph?limit=2")
    enough = served.done("GET", f"/v1/jobs/{first}/graph?limit=4")

    assert (len(few["jobs"]), few["is_complete"]) == (2, False)
    assert (len(enough["jobs"]), enough["is_complete"]) == (4, True)


def test_a_job_alone_is_a_graph_of_one_and_an_unknown_one_is_none(plain: Served) -> None:
    job_id = plain.enqueue(plain.queue())

    graph = plain.done("GET", f"/v1/jobs/{job_id}/graph")

    assert ([one["id"] for one in graph["jobs"]], graph["edges"]) == ([job_id], [])
    assert plain.ask("GET", "/v1/jobs/absent/graph").status_code == 404


@pytest.fixture
def guarded() -> Iterator[Served]:
    with serving(open_engine("memory://"), security=ServerSecurity(requires_keys=True)) as served:
        yield served


def test_a_key_for_one_queue_sees_no_job_of_another_in_a_graph(guarded: Served) -> None:
    mine, other = guarded.queue(), guarded.queue()
    engine = guarded.service.pool.engine
    store, reader = engine.store(), engine.reader()
    keys = ApiKeyAdmin(store, reader, actor="ann")
    admin = Holder(guarded, keys.create("admin", [Grant.parse("admin")]).token)
    viewer = Holder(guarded, keys.create("viewer", [Grant.parse(f"view:{mine}")]).token)
    store.close()
    reader.close()
    guarded.client.headers["Authorization"] = admin._headers["Authorization"]
    first, left, right, last = diamond(guarded, mine, other)

    graph = viewer.ask("GET", f"/v1/jobs/{first}/graph").json()

    assert {one["id"] for one in graph["jobs"]} == {first, left, last}
    assert edges(graph) == {(first, left), (left, last)}
    assert viewer.code("GET", f"/v1/jobs/{right}/graph") == (404, "job_not_found")


def test_a_preview_says_when_and_saves_nothing(served: Served) -> None:
    body = {"task": "report", "cron": "30 6 * * 1", "timezone": "Europe/Berlin"}

    schedule = served.done("POST", "/v1/schedules/weekly-preview/preview?runs=3", body)

    assert schedule["when"] == "30 6 * * 1 (Europe/Berlin)"
    assert len(schedule["runs"]) == 3
    assert schedule["runs"] == sorted(schedule["runs"])
    assert served.ask("GET", "/v1/schedules/weekly-preview").status_code == 404


def test_a_preview_of_what_cannot_be_says_why(plain: Served) -> None:
    answer = plain.post("/v1/schedules/x/preview", {"task": "t", "cron": "99 * * * *"})

    assert answer.status_code == 422
    assert "99" in answer.json()["detail"]


def test_a_schedule_tells_all_that_is_needed_to_save_it_again(plain: Served) -> None:
    body = {
        "task": "report",
        "queue": plain.queue(),
        "args": [1],
        "kwargs": {"to": "ann"},
        "priority": 3,
        "metadata": {"team": "a"},
        "every_seconds": 90.0,
        "timezone": "Europe/Berlin",
        "start_at": "2030-01-01T00:00:00Z",
        "end_at": "2031-01-01T00:00:00Z",
        "jitter_seconds": 2.0,
        "catch_up": "latest",
        "catch_up_limit": 3,
        "catch_up_seconds": 60.0,
        "overlap": "skip",
        "max_runs": 7,
    }

    schedule = plain.done("PUT", "/v1/schedules/told", body)

    assert {name: schedule[name] for name in body} == body


def test_a_schedule_keeps_what_a_request_cannot_say(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with Forebay(url) as app, serving(open_engine(url)) as served:
        retry = RetryPolicy(max_retries=1)
        report = app.task(name="report", retry_policy=retry, timeout=7, tags=["night"])(lambda password: None)
        app.schedules.save("nightly", report, ["secret"], cron="0 2 * * *", unique_key="n")
        before = app.schedules.get("nightly")
        body = {"task": "report", "cron": "0 3 * * *", "priority": 5}

        served.done("PUT", "/v1/schedules/nightly", body)
        after = app.schedules.get("nightly")
        served.done("PUT", "/v1/schedules/nightly", {**body, "args": ["other"]})
        last = app.schedules.get("nightly")

    assert before is not None
    assert after is not None
    assert last is not None
    assert after.definition == replace(
        before.definition, cron="0 3 * * *", job=replace(before.definition.job, priority=5)
    )
    assert decode_call(last.definition.job.payload) == (("other",), {})
