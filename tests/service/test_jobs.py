"""What producers can ask of the service, on every engine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from forebay.domain.job import NewJob, QueueName
from forebay.stores.factory import open_engine
from forebay.testing.manual_clock import ManualClock
from tests.service.live_server import Served, serving


@pytest.mark.shows("R-HTTP-01", "R-ENQ-04", "R-ENQ-05", "R-HTTP-05", "R-DONE-13")
def test_a_job_is_enqueued_and_shown(served: Served) -> None:
    queue = served.queue()
    run_at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()  # noqa: TID251 - the server's clock is real

    first = served.done("POST", "/v1/jobs?position=true", {"task": "mail.send", "queue": queue, "args": [1]})
    later = served.enqueue(queue, run_at=run_at, kwargs={"to": "ada"}, priority=7, tags=["x"], max_retries=1)

    assert first["state"] == "pending"
    assert (first["is_duplicate"], first["position"], first["position_is_exact"]) == (False, 0, True)
    job = served.job(later)
    assert (job["state"], job["status"], job["is_final"]) == ("scheduled", "pending", False)
    assert (job["kwargs"], job["priority"], job["tags"], job["max_retries"]) == ({"to": "ada"}, 7, ["x"], 1)
    assert (job["attempts"], job["dependants"], job["depends_on"]) == ([], [], [])


@pytest.mark.shows("R-IDEM-01", "R-IDEM-05")
def test_the_same_idempotency_key_gives_the_first_answer_again(served: Served) -> None:
    queue, other = served.queue(), served.queue()
    headers = {"Idempotency-Key": "order-7"}
    body = {"task": "t", "queue": queue}

    first = served.done("POST", "/v1/jobs", body, headers=headers)
    again = served.done("POST", "/v1/jobs", body, headers=headers)
    in_body = served.done("POST", "/v1/jobs", {**body, "idempotency_key": "order-7"})
    elsewhere = served.done("POST", "/v1/jobs", {**body, "queue": other}, headers=headers)

    assert again == {**first, "is_duplicate": True}
    assert in_body["id"] == first["id"]
    assert (elsewhere["id"] != first["id"], elsewhere["is_duplicate"]) == (True, False)


@pytest.mark.shows("R-IDEM-01")
def test_an_idempotency_key_is_not_for_another_job(served: Served) -> None:
    queue = served.queue()
    body = {"task": "t", "queue": queue, "kwargs": {"a": 1, "b": 2}, "idempotency_key": "order-7"}
    first = served.done("POST", "/v1/jobs", body)

    shuffled = served.done("POST", "/v1/jobs", {**body, "kwargs": {"b": 2, "a": 1}})
    for other in ({"task": "u"}, {"kwargs": {"a": 2}}):
        refused = served.post("/v1/jobs", {**body, **other})
        assert (refused.status_code, refused.json()["code"]) == (409, "duplicate")
        assert refused.json()["holder"] == first["id"]
    jobs = [body, {**body, "task": "u"}, {"task": "new", "queue": queue}]
    batch = served.done("POST", "/v1/jobs/batch", {"jobs": jobs})

    assert (shuffled["id"], shuffled["is_duplicate"]) == (first["id"], True)
    assert [(one["index"], one["is_duplicate"]) for one in batch["accepted"]] == [(0, True), (2, False)]
    assert [one["problem"]["holder"] for one in batch["rejected"]] == [first["id"]]


def test_header_and_body_must_not_name_different_keys(plain: Served) -> None:
    body = {"task": "t", "idempotency_key": "a"}

    answer = plain.post("/v1/jobs", body, headers={"Idempotency-Key": "b"})

    assert (answer.status_code, answer.json()["field"]) == (422, "idempotency_key")


@pytest.mark.shows("R-HTTP-02", "R-ENQ-07", "R-ENQ-08", "R-ENQ-09")
def test_a_batch_is_stored_whole_or_not_at_all(served: Served) -> None:
    queue, other = served.queue(), served.queue()
    good = [{"task": "a", "queue": queue}, {"task": "b", "queue": other}]

    stored = served.done("POST", "/v1/jobs/batch", {"jobs": good})
    refused = served.post("/v1/jobs/batch", {"jobs": [*good, {"task": "c", "queue": "nowhere"}]})

    assert [one["queue"] for one in stored["accepted"]] == [queue, other]
    assert stored["rejected"] == []
    assert (refused.status_code, refused.json()["code"]) == (404, "queue_not_found")
    assert [job["task"] for job in served.claim(queue, limit=9)] == ["a"]


@pytest.mark.shows("R-ENQ-10")
def test_a_batch_that_is_not_atomic_says_which_jobs_were_rejected(served: Served) -> None:
    queue = served.queue(max_priority=5)
    jobs = [
        {"task": "a", "queue": queue},
        {"task": "b", "queue": "nowhere"},
        {"task": "c", "queue": queue, "args": [{"~": "nonsense", "v": 1}]},
        {"task": "d", "queue": queue, "priority": 6},
        {"task": "e", "queue": queue},
    ]

    answer = served.done("POST", "/v1/jobs/batch", {"jobs": jobs, "atomic": False})

    assert [one["index"] for one in answer["accepted"]] == [0, 4]
    codes = [(one["index"], one["problem"]["code"]) for one in answer["rejected"]]
    assert codes == [(1, "queue_not_found"), (2, "payload"), (3, "invalid")]


@pytest.mark.shows("R-DONE-13")
def test_jobs_of_a_batch_may_depend_on_each_other(served: Served) -> None:
    queue = served.queue()
    jobs: list[dict[str, Any]] = [{"task": "first", "queue": queue}]
    jobs.append({"task": "second", "queue": queue, "depends_on": [{"index": 0}]})

    [first, second] = served.done("POST", "/v1/jobs/batch", {"jobs": jobs})["accepted"]
    assert [one["state"] for one in (first, second)] == ["pending", "blocked"]
    third = served.enqueue(queue, depends_on=[{"id": second["id"], "on_failure": "ignore"}])

    assert [one["id"] for one in served.job(first["id"])["dependants"]] == [second["id"]]
    assert served.job(second["id"])["state"] == "blocked"
    assert served.job(third)["depends_on"] == [{"id": second["id"], "edge": "open", "on_failure": "ignore"}]


@pytest.mark.parametrize("need", [{}, {"id": "a", "index": 0}, {"index": 0}])
def test_a_dependency_names_one_job_that_stands_before(plain: Served, need: dict[str, Any]) -> None:
    answer = plain.post("/v1/jobs", {"task": "t", "queue": plain.queue(), "depends_on": [need]})

    assert (answer.status_code, answer.json()["field"]) == (422, "depends_on")


@pytest.mark.shows("R-HTTP-27", "R-ENQ-32")
def test_a_job_for_a_queue_that_is_not_there_is_refused(served: Served) -> None:
    alone = served.post("/v1/jobs", {"task": "t", "queue": "nowhere"})
    parent = served.enqueue(served.queue())
    behind = served.post("/v1/jobs", {"task": "t", "queue": "nowhere", "depends_on": [{"id": parent}]})

    for answer in (alone, behind):
        assert (answer.status_code, answer.json()["code"]) == (404, "queue_not_found")


@pytest.mark.shows("R-HTTP-03", "R-CANCEL-02")
def test_a_job_that_waits_is_cancelled_once(served: Served) -> None:
    job_id = served.enqueue(served.queue())

    done = served.done("POST", f"/v1/jobs/{job_id}/cancel", {"reason": "no more"})
    again = served.post(f"/v1/jobs/{job_id}/cancel")

    assert (done["state"], served.job(job_id)["reason"]) == ("cancelled", "no more")
    assert (again.status_code, again.json()["code"]) == (409, "illegal_state")


@pytest.mark.shows("R-HTTP-04", "R-CANCEL-07")
def test_a_job_that_waits_can_be_updated(served: Served) -> None:
    queue = served.queue()
    job_id = served.enqueue(queue, delay_seconds=3_600, metadata={"a": 1, "b": 2})
    path = f"/v1/jobs/{job_id}"
    soon = (datetime.now(UTC) + timedelta(hours=2)).isoformat()  # noqa: TID251 - the server's clock is real

    served.done("PATCH", path, {"priority": 9, "metadata": {"a": None}, "run_at": soon})
    updated = served.job(job_id)
    served.done("PATCH", path, {"delay_seconds": 0})

    assert (updated["priority"], updated["metadata"], updated["state"]) == (9, {"b": 2}, "scheduled")
    assert served.job(job_id)["state"] == "pending"
    both = served.ask("PATCH", path, {"delay_seconds": 1, "run_at": soon})
    assert (both.status_code, both.json()["field"]) == (422, "run_at")


@pytest.mark.shows("R-JOB-28")
def test_a_job_that_waits_can_be_moved_to_a_queue_that_there_is(served: Served) -> None:
    here, there = served.queue(), served.queue()
    job_id = served.enqueue(here)
    path = f"/v1/jobs/{job_id}"

    nowhere = served.ask("PATCH", path, {"queue": "no-such-queue"})
    moved = served.done("PATCH", path, {"queue": there})

    assert (nowhere.status_code, nowhere.json()["code"]) == (404, "queue_not_found")
    assert (moved["applied"], served.job(job_id)["queue"]) == (True, there)
    served.done("POST", f"/v1/queues/{here}/drain")
    back = served.ask("PATCH", path, {"queue": here})
    assert (back.status_code, back.json()["code"]) == (409, "illegal_state")
    assert f"queue {here} is draining" in back.json()["detail"]


@pytest.mark.shows("R-HTTP-06", "R-HTTP-07", "R-DONE-06", "R-DONE-12", "R-HTTP-29")
def test_waiting_for_a_job_and_its_result(served: Served) -> None:
    queue = served.queue()
    job = served.claimed(queue)
    path = f"/v1/jobs/{job['id']}"

    early = served.ask("GET", f"{path}/result")
    waited = served.done("GET", f"{path}/wait?timeout_seconds=0")
    served.done("POST", f"{path}/ack", {"lease": job["lease"], "result": {"n": [1, None]}})
    final = served.done("GET", f"{path}/wait")

    assert (early.status_code, early.json()["code"]) == (409, "not_final")
    assert (waited["state"], final["state"], final["is_final"]) == ("running", "completed", True)
    assert served.done("GET", f"{path}/result") == {"id": job["id"], "result": {"n": [1, None]}}


@pytest.mark.parametrize(("body", "code"), [({"requeue": False}, "job_failed"), (None, "job_cancelled")])
def test_a_job_that_did_not_complete_has_no_result(
    plain: Served, body: dict[str, Any] | None, code: str
) -> None:
    job = plain.claimed(plain.queue())
    path = f"/v1/jobs/{job['id']}"
    if body is None:
        outcome = {"id": job["id"], "lease": job["lease"], "outcome": "cancelled"}
        plain.done("POST", "/v1/settle", {"outcomes": [outcome]})
    else:
        plain.done("POST", f"{path}/nack", {"lease": job["lease"], **body})

    answer = plain.ask("GET", f"{path}/result")

    assert (answer.status_code, answer.json()["code"]) == (409, code)


@pytest.mark.parametrize("path", ["", "/wait", "/result"])
@pytest.mark.shows("R-HTTP-27")
def test_a_job_that_is_not_there_is_not_found(served: Served, path: str) -> None:
    answer = served.ask("GET", f"/v1/jobs/unknown{path}")

    assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")


def test_values_that_json_has_no_word_for_travel_as_tags(plain: Served) -> None:
    day = {"~": "date", "v": "2030-01-31"}

    job = plain.claimed(plain.queue(), args=[day], kwargs={"~": 1, "k": [day]})
    plain.done("POST", f"/v1/jobs/{job['id']}/ack", {"lease": job["lease"], "result": day})

    assert (job["args"], job["kwargs"]) == ([day], {"~": 1, "k": [day]})
    assert plain.done("GET", f"/v1/jobs/{job['id']}/result")["result"] == day


@pytest.mark.shows("R-SEC-05")
def test_what_looks_secret_is_told_to_the_claimer_and_to_no_other_client(plain: Served) -> None:
    queue, args, kwargs = plain.queue(), [{"token": "t1"}], {"password": "p1", "to": "ann"}
    job_id = plain.enqueue(queue, args=args, kwargs=kwargs)
    schedule = {"task": "t", "queue": queue, "args": args, "kwargs": kwargs, "every_seconds": 3_600}

    shown = (plain.job(job_id), plain.done("PUT", f"/v1/schedules/{queue}", schedule))
    [claimed] = plain.claim(queue)
    again = [
        plain.ask("PUT", f"/v1/schedules/{queue}", {**schedule, "args": shown[1]["args"]}),
        plain.post(f"/v1/jobs/{job_id}/replay", {"args": [], "kwargs": shown[0]["kwargs"]}),
    ]

    for answer in again:  # what was masked is not stored as if it were the secret
        assert (answer.status_code, answer.json()["code"]) == (422, "payload")
    for one in shown:
        assert (one["args"], one["kwargs"]) == ([{"token": "***"}], {"password": "***", "to": "ann"})
    assert (claimed["args"], claimed["kwargs"]) == (args, kwargs)


def test_a_payload_that_the_service_cannot_read_is_given_as_it_is_stored_to_who_claims_it(
    plain: Served,
) -> None:
    queue = plain.queue()
    store = plain.service.pool.engine.store()
    store.insert([NewJob(task="t", queue=QueueName(queue), payload=b"raw")])

    [job] = plain.claim(queue)

    shown = plain.job(job["id"])
    assert (job["args"], job["payload_base64"]) == ([], "cmF3")
    assert (shown["args"], shown["payload_base64"]) == ([], None)
    assert "does not begin" in job["payload_error"] == shown["payload_error"]


@pytest.mark.shows("R-HTTP-25", "R-RATE-03", "R-RATE-04", "R-ENQ-33")
def test_a_queue_that_pushes_back_says_when_to_come_again(served: Served) -> None:
    full, slow = served.queue(max_length=1), served.queue(enqueue_rate=1, enqueue_burst=1)
    served.enqueue(full)
    served.enqueue(slow)

    too_long = served.post("/v1/jobs", {"task": "t", "queue": full})
    too_fast = served.post("/v1/jobs", {"task": "t", "queue": slow})

    assert (too_long.status_code, too_long.json()["code"]) == (429, "queue_full")
    assert (too_fast.status_code, too_fast.json()["code"]) == (429, "rate_limited")
    assert int(too_fast.headers["Retry-After"]) >= 1


@pytest.mark.shows("R-TEST-57", "R-RATE-04")
def test_a_queue_takes_twice_its_rate_at_once_and_as_many_as_it_may_hold() -> None:
    with serving(open_engine("memory://", clock=ManualClock())) as served:
        full, slow = served.queue(max_length=2), served.queue(enqueue_rate=1)
        done = served.claimed(full)
        served.done(
            "POST", f"/v1/jobs/{done['id']}/ack", {"lease": done["lease"]}
        )  # so its throughput is known

        burst = [served.post("/v1/jobs", {"task": "t", "queue": slow}) for _ in range(3)]
        depth = [served.post("/v1/jobs", {"task": "t", "queue": full}) for _ in range(3)]

    for answers, code in ((burst, "rate_limited"), (depth, "queue_full")):
        assert [answer.status_code for answer in answers] == [201, 201, 429]
        assert answers[2].json()["code"] == code
        assert int(answers[2].headers["Retry-After"]) >= 1
