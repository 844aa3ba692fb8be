"""What operators can ask of the service."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from forebay.domain.job import NewJob, QueueName, WorkerId
from forebay.domain.worker import WorkerInfo
from forebay.payload.codec import encode_call, frame
from forebay.payload.encryption_keys import EncryptionKeys
from tests.service.live_server import Served


def died(served: Served, queue: str, **fields: Any) -> str:
    """The id of a job in the dead letters."""
    job = served.claimed(queue, **fields)
    path = f"/v1/jobs/{job['id']}/nack"
    served.done("POST", path, {"lease": job["lease"], "requeue": False, "error": "broken"})
    job_id: str = job["id"]
    return job_id


@pytest.mark.shows(
    "R-HTTP-15", "R-HTTP-16", "R-QUEUE-01", "R-QUEUE-03", "R-QUEUE-06", "R-QUEUE-10", "R-QUEUE-11"
)
def test_a_queue_is_created_configured_paused_and_shown(served: Served) -> None:
    settings = {"lease_seconds": 60, "max_length": 5, "mode": "fifo"}
    name = f"{served.queue()}-new"

    made = served.done("POST", "/v1/queues", {"name": name, "settings": settings})
    again = served.post("/v1/queues", {"name": name})
    changed = served.done("PATCH", f"/v1/queues/{name}", {"max_length": None, "weight": 3})
    states = [
        served.done("POST", f"/v1/queues/{name}/{verb}")["state"] for verb in ("pause", "drain", "resume")
    ]
    served.enqueue(name)

    assert (made["state"], made["settings"]["lease_seconds"]) == ("active", 60)
    assert (again.status_code, again.json()["code"]) == (409, "illegal_state")
    assert (changed["settings"]["max_length"], changed["settings"]["weight"]) == (None, 3)
    assert changed["settings"]["mode"] == "fifo"
    assert states == ["paused", "draining", "active"]
    shown = served.done("GET", f"/v1/queues/{name}")
    assert (shown["counts"]["pending"], shown["counts"]["live"]) == (1, 1)
    assert shown in served.done("GET", "/v1/queues")["queues"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("PATCH", "", {"weight": 2}),
        ("DELETE", "", None),
        ("POST", "/pause", None),
        ("POST", "/purge", {}),
        ("POST", "/requeue", {}),
    ],
)
@pytest.mark.shows("R-HTTP-27")
def test_a_queue_that_is_not_there_is_not_found(plain: Served, method: str, path: str, body: Any) -> None:
    answer = plain.ask(method, f"/v1/queues/nowhere{path}", body)

    assert (answer.status_code, answer.json()["code"]) == (404, "queue_not_found")


def test_settings_that_cannot_be_are_refused(plain: Served) -> None:
    queue = plain.queue()

    odd = plain.ask("PATCH", f"/v1/queues/{queue}", {"min_priority": 50, "max_priority": -50})
    low = plain.ask("PATCH", f"/v1/queues/{queue}", {"weight": 0})

    assert (odd.status_code, odd.json()["code"]) == (422, "invalid")
    assert (low.status_code, low.json()["field"]) == (400, "weight")


@pytest.mark.shows("R-QUEUE-04", "R-HTTP-15")
def test_a_queue_with_jobs_is_deleted_by_force_alone(served: Served) -> None:
    queue = served.queue()
    job_id = served.enqueue(queue)

    refused = served.ask("DELETE", f"/v1/queues/{queue}")
    dropped = served.done("DELETE", f"/v1/queues/{queue}?force=true")
    paused = served.post(f"/v1/queues/{queue}/pause")

    assert (refused.status_code, refused.json()["code"]) == (409, "queue_not_empty")
    assert dropped == {"name": queue, "live_jobs": 1}
    assert served.job(job_id)["state"] == "dead"
    assert (paused.status_code, paused.json()["code"]) == (409, "illegal_state")


@pytest.mark.shows("R-HTTP-17", "R-QUEUE-07", "R-QUEUE-08", "R-QUEUE-09", "R-DLQ-13")
def test_jobs_of_a_queue_are_purged_and_put_back_by_a_filter(served: Served) -> None:
    queue = served.queue()
    dead = died(served, queue)
    high, low = served.enqueue(queue, priority=9), served.enqueue(queue)
    where = {"priority_from": 5}

    tried = served.done("POST", f"/v1/queues/{queue}/purge", {"where": where, "dry_run": True})
    purged = served.done("POST", f"/v1/queues/{queue}/purge", {"where": where})
    revived = served.done("POST", f"/v1/queues/{queue}/requeue", {})

    assert tried == {"matched": 1, "matched_is_exact": True, "affected": 0, "dry_run": True, "busy": 0}
    assert (purged["matched"], purged["affected"], revived["affected"]) == (1, 1, 1)
    assert served.ask("GET", f"/v1/jobs/{high}").status_code == 404
    assert [served.job(job_id)["state"] for job_id in (low, dead)] == ["pending", "pending"]


@pytest.mark.shows("R-HTTP-23", "R-ENQ-45", "R-ENQ-47", "R-HTTP-24")
def test_jobs_are_searched_page_by_page(served: Served) -> None:
    queue = served.queue()
    ids = [served.enqueue(queue, metadata={"n": n % 2}, tags=["s"]) for n in range(5)]
    where = {"queues": [queue], "metadata": {"n": 0}, "tags": ["s"], "states": ["pending"]}

    first = served.done("POST", "/v1/jobs/search", {"where": where, "limit": 2, "with_total": True})
    second = served.done("POST", "/v1/jobs/search", {"where": where, "limit": 2, "after": first["after"]})

    assert [job["id"] for job in first["jobs"] + second["jobs"]] == [ids[4], ids[2], ids[0]]
    assert (first["total"], first["total_is_exact"], first["has_more"]) == (3, True, True)
    assert (second["total"], second["has_more"]) == (None, False)


@pytest.mark.parametrize(("action", "state"), [("cancel", "cancelled"), ("delete", None)])
def test_all_jobs_that_fit_are_changed_at_once(plain: Served, action: str, state: str | None) -> None:
    queue = plain.queue()
    ids = [plain.enqueue(queue) for _ in range(3)]
    body = {"action": action, "where": {"queues": [queue]}}

    tried = plain.done("POST", "/v1/jobs/bulk", {**body, "dry_run": True})
    done = plain.done("POST", "/v1/jobs/bulk", body)

    assert (tried["matched"], tried["affected"], done["matched"], done["affected"]) == (3, 0, 3, 3)
    answers = [plain.ask("GET", f"/v1/jobs/{job_id}").json() for job_id in ids]
    assert {answer.get("state") for answer in answers} == {state}


def test_everything_must_be_meant(plain: Served) -> None:
    answer = plain.post("/v1/jobs/bulk", {"action": "delete"})
    meant = plain.done("POST", "/v1/jobs/bulk", {"action": "delete", "all": True, "dry_run": True})

    assert (answer.status_code, answer.json()["field"]) == (422, "where")
    assert meant["affected"] == 0


@pytest.mark.shows(
    "R-HTTP-20",
    "R-HTTP-21",
    "R-HTTP-22",
    "R-HTTP-35",
    "R-HTTP-36",
    "R-HTTP-37",
    "R-DLQ-06",
    "R-DLQ-07",
    "R-DLQ-09",
    "R-DLQ-10",
    "R-DLQ-11",
)
def test_dead_letters_are_listed_revived_and_purged(served: Served) -> None:
    queue, other = served.queue(), served.queue()
    one, two, three = (died(served, queue, task=task) for task in ("a", "a", "b"))
    where = {"queues": [queue], "tasks": ["a"]}

    listed = served.done("POST", "/v1/dead-letters/search", {"where": where, "with_total": True})
    moved = served.done("POST", f"/v1/jobs/{one}/revive", {"queue": other, "delay_seconds": 60})
    revived = served.done("POST", "/v1/dead-letters/revive", {"where": where})
    alive = served.ask("DELETE", f"/v1/jobs/{served.claim(queue)[0]['id']}")
    purged = served.done("POST", "/v1/dead-letters/purge", {"where": {"queues": [queue]}})

    assert ([job["id"] for job in listed["jobs"]], listed["total"]) == ([two, one], 2)
    assert (moved["state"], served.job(one)["queue"], served.job(one)["failures"]) == ("scheduled", other, 0)
    assert (revived["affected"], purged["affected"]) == (1, 1)
    assert (alive.status_code, alive.json()["code"]) == (409, "illegal_state")
    assert served.ask("GET", f"/v1/jobs/{three}").status_code == 404
    assert served.done("DELETE", f"/v1/jobs/{one}")["applied"]


@pytest.mark.shows("R-TEST-47", "R-DLQ-08")
def test_a_dead_letter_is_put_back_by_hand_and_completes(served: Served) -> None:
    queue = served.queue()
    job_id = died(served, queue)

    answer = served.done("POST", f"/v1/jobs/{job_id}/revive", {})
    [job] = served.claim(queue)
    served.done("POST", f"/v1/jobs/{job_id}/ack", {"lease": job["lease"], "result": "at last"})
    unknown = served.post("/v1/jobs/unknown/revive", {})

    assert (answer["id"], answer["applied"], answer["state"]) == (job_id, True, "pending")
    assert (job["id"], job["attempt"], job["failures"]) == (job_id, 2, 0)
    assert served.done("GET", f"/v1/jobs/{job_id}/result")["result"] == "at last"
    assert (unknown.status_code, unknown.json()["code"]) == (404, "job_not_found")


@pytest.mark.shows("R-HTTP-36")
def test_a_job_is_replayed_with_other_arguments_as_a_new_one(served: Served) -> None:
    queue = served.queue()
    old = died(served, queue, args=[1], kwargs={"k": 1}, metadata={"m": 1}, unique_key="u")

    same = served.done("POST", f"/v1/jobs/{old}/replay", {})
    other = served.done("POST", f"/v1/jobs/{old}/replay", {"args": [2], "kwargs": {}, "priority": 5})
    half = served.post(f"/v1/jobs/{old}/replay", {"args": [2]})

    first, second = served.job(same["id"]), served.job(other["id"])
    assert (first["args"], first["kwargs"], first["metadata"]) == ([1], {"k": 1}, {"m": 1})
    assert (second["args"], second["priority"], second["parent_id"]) == ([2], 5, old)
    assert [(one["kind"], one["detail"]) for one in first["events"]] == [("replayed", f"like {old}")]
    assert served.job(old)["state"] == "dead"
    assert (half.status_code, half.json()["field"]) == (422, "args")


@pytest.mark.shows("R-HTTP-36", "R-SER-18")
def test_a_job_is_not_replayed_with_the_blob_of_another_one(served: Served) -> None:
    queue = served.queue()
    store = served.service.pool.engine.store()
    job = NewJob(task="t", queue=QueueName(queue), payload=frame(b"", blob="of/the/first"))
    [receipt] = store.insert([job])
    store.close()

    copied = served.post(f"/v1/jobs/{receipt.id}/replay")
    other = served.post(f"/v1/jobs/{receipt.id}/replay", {"args": [2], "kwargs": {}})

    assert (copied.status_code, copied.json()["field"]) == (422, "payload")
    assert "the blob of another job" in copied.json()["detail"]
    assert other.is_success


@pytest.mark.shows("R-SCHED-21")
def test_a_schedule_is_saved_paused_fired_and_removed(served: Served) -> None:
    queue = served.queue()
    path = f"/v1/schedules/nightly-{queue}"
    body = {"task": "report", "queue": queue, "args": [1], "cron": "0 2 * * *", "overlap": "skip"}

    saved = served.done("PUT", path, body)
    paused = served.done("POST", f"{path}/pause")
    resumed = served.done("POST", f"{path}/resume")
    fired = served.done("POST", f"{path}/fire")
    again = served.done("POST", f"{path}/fire")
    runs = served.done("GET", f"{path}/history")["runs"]

    assert (saved["when"], saved["task"], saved["args"]) == ("0 2 * * *", "report", [1])
    assert (paused["is_paused"], resumed["is_paused"], resumed["next_run_at"]) == (
        True,
        False,
        saved["next_run_at"],
    )
    assert (fired["queue"], fired["is_duplicate"], again["is_duplicate"]) == (queue, False, True)
    assert [(run["status"], run["job_id"]) for run in runs][-1] == ("enqueued", fired["id"])
    names = [one["name"] for one in served.done("GET", "/v1/schedules")["schedules"]]
    assert saved["name"] in names
    assert served.done("DELETE", path) == {"applied": True}
    for method, more in (
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/fire"),
        ("POST", "/pause"),
        ("GET", "/history"),
    ):
        answer = served.ask(method, f"{path}{more}")
        assert (answer.status_code, answer.json()["code"]) == (404, "schedule_not_found")


@pytest.mark.parametrize("times", [{}, {"cron": "never"}, {"cron": "* * * * *", "every_seconds": 5}])
def test_a_schedule_without_sensible_times_is_refused(plain: Served, times: dict[str, Any]) -> None:
    answer = plain.ask("PUT", "/v1/schedules/odd", {"task": "t", **times})

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


def test_limits_are_set_listed_and_removed(served: Served) -> None:
    scope = f"queue:{served.queue()}"

    limit = served.done("PUT", "/v1/limits", {"scope": scope, "concurrency": 2, "rate": 5, "per_seconds": 60})
    listed = served.done("GET", "/v1/limits")["limits"]
    gone = [served.done("DELETE", f"/v1/limits/{scope}")["applied"] for _ in range(2)]
    odd = served.ask("PUT", "/v1/limits", {"scope": "nonsense", "rate": 1})

    assert limit == {"scope": scope, "concurrency": 2, "rate": 5, "per_seconds": 60, "burst": None}
    [shown] = [one for one in listed if one["scope"] == scope]
    usage = {"state": "open", "running": 0, "tokens": 10, "waiting": 0, "waiting_workers": []}
    assert shown == limit | usage
    assert gone == [True, False]
    assert (odd.status_code, odd.json()["code"]) == (422, "invalid")


@pytest.mark.shows("R-RATE-11")
def test_a_limit_says_which_jobs_and_workers_wait_for_it(served: Served) -> None:
    queue = served.queue()
    served.done("PUT", "/v1/limits", {"scope": f"queue:{queue}", "rate": 1, "per_seconds": 3_600, "burst": 1})
    for _ in range(3):
        served.enqueue(queue)
    worker = WorkerId(f"on {queue}")
    with closing(served.service.pool.engine.store()) as store:
        store.heartbeat(WorkerInfo(id=worker, queues=(QueueName(queue),), slots=1))
    assert len(served.claim(queue, limit=5)) == 1

    listed = served.done("GET", "/v1/limits")["limits"]

    [shown] = [one for one in listed if one["scope"] == f"queue:{queue}"]
    assert (shown["state"], shown["running"], shown["tokens"], shown["waiting"]) == ("out_of_tokens", 1, 0, 2)
    assert worker in shown["waiting_workers"]
    served.done("DELETE", f"/v1/limits/queue:{queue}")


@pytest.mark.shows("R-HTTP-33")
def test_workers_are_listed_and_asked(served: Served) -> None:
    store = served.service.pool.engine.store()
    worker = WorkerId(f"w-{served.queue()}")
    store.heartbeat(WorkerInfo(id=worker, host="here", queues=(QueueName("mail"),), slots=4))

    listed = served.done("GET", "/v1/workers?active_only=false")["workers"]
    body = {"kind": "pause", "workers": [worker], "queue": "mail"}
    [command] = served.done("POST", "/v1/workers/commands", body)["commands"]
    [taken] = store.take_commands([worker])
    store.answer_command(taken.id, "paused")
    [known] = served.done("GET", f"/v1/workers/commands?ids={command['id']}&ids=unknown")["commands"]
    unknown = served.post("/v1/workers/commands", {"kind": "stop", "workers": ["absent"]})
    store.remove_worker(worker)
    store.close()

    [shown] = [one for one in listed if one["id"] == worker]
    assert (shown["host"], shown["queues"], shown["slots"]) == ("here", ["mail"], 4)
    assert (command["kind"], command["response"], known["response"]) == ("pause", None, "paused")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "worker_not_found")


@pytest.mark.shows("R-QUEUE-14", "R-SEC-12")
def test_what_operators_do_is_written_down(served: Served) -> None:
    queue = served.queue()

    served.done("POST", f"/v1/queues/{queue}/pause")

    reader = served.service.pool.engine.reader()
    found = [event for _, event in reader.audit(limit=50) if event.queue == queue and event.actor]
    reader.close()
    [event] = found
    assert (event.actor or "").startswith("anonymous@127.0.0.1")


def test_a_job_is_not_replayed_in_a_queue_for_which_it_is_not_encrypted(served: Served) -> None:
    queue, other = served.queue(), served.queue()
    payload = EncryptionKeys({"k": bytes(32)}).encrypt(encode_call([1], {}), "payload t", queue=queue)
    with closing(served.service.pool.engine.store()) as store:
        [receipt] = store.insert([NewJob(task="t", queue=QueueName(queue), payload=payload)])

    same = served.post(f"/v1/jobs/{receipt.id}/replay", {})
    moved = served.post(f"/v1/jobs/{receipt.id}/replay", {"queue": other})

    assert same.status_code == 201
    assert moved.status_code == 422
    assert f"encrypted for queue {queue}, not for queue {other}" in moved.json()["detail"]
