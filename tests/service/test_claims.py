"""What consumers can ask of the service, on every engine."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime
from typing import Any

import msgspec
import pytest

from forebay.domain.job import QueueName
from forebay.domain.queue import QueueState
from tests.service.live_server import PATIENCE, Held, Served, serving
from tests.worker.support import eventually


def seconds_between(earlier: str, later: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


@pytest.mark.shows("R-HTTP-08", "R-HTTP-10", "R-DONE-03", "R-LEASE-08")
def test_a_job_is_claimed_and_acknowledged(served: Served) -> None:
    queue = served.queue()
    job_id = served.enqueue(queue, args=[7], kwargs={"to": "ada"}, correlation_id="c")

    [job] = served.claim(queue)
    answer = served.done("POST", f"/v1/jobs/{job_id}/ack", {"lease": job["lease"], "result": 8})
    again = served.done("POST", f"/v1/jobs/{job_id}/ack", {"lease": job["lease"], "result": 8})

    assert (job["id"], job["task"], job["attempt"]) == (job_id, "t", 1)
    assert (job["args"], job["kwargs"], job["correlation_id"]) == ([7], {"to": "ada"}, "c")
    assert answer["is_kept"]
    assert again["is_kept"]  # an answer may get lost, and is asked for again
    assert served.job(job_id)["state"] == "completed"


@pytest.mark.shows("R-HTTP-09")
def test_a_batch_is_claimed_in_order_from_several_queues_and_settled(served: Served) -> None:
    first, second = served.queue(), served.queue()
    ids = [served.enqueue(queue) for queue in (first, first, second)]

    jobs = served.done("POST", "/v1/claim", {"queues": [first, second], "limit": 9})["jobs"]
    outcomes: list[dict[str, Any]] = [
        {"outcome": "completed"},
        {"outcome": "failed", "error": "no"},
        {"outcome": "snoozed"},
    ]
    outcomes[2]["delay_seconds"] = 60
    ends = [
        {"id": job["id"], "lease": job["lease"], **more} for job, more in zip(jobs, outcomes, strict=True)
    ]
    unknown = {"id": "unknown", "lease": "1-x"}
    answer = served.done("POST", "/v1/settle", {"outcomes": [*ends, unknown]})

    assert [job["id"] for job in jobs] == ids
    assert [one["is_kept"] for one in answer["settled"]] == [True, True, True, False]
    assert answer["settled"][3]["problem"]["code"] == "job_not_found"
    assert [served.job(job_id)["state"] for job_id in ids] == ["completed", "retrying", "scheduled"]


@pytest.mark.shows("R-HTTP-08")
def test_a_claim_can_be_for_some_tasks_only(served: Served) -> None:
    queue = served.queue()
    served.enqueue(queue, task="other")
    wanted = served.enqueue(queue, task="mine")

    [job] = served.claim(queue, limit=5, tasks=["mine"])

    assert job["id"] == wanted
    assert [one["task"] for one in served.claim(queue, limit=5)] == ["other"]


@pytest.mark.shows("R-HTTP-11", "R-HTTP-05", "R-DONE-13")
def test_a_failed_attempt_is_tried_again_after_its_own_time_or_never(served: Served) -> None:
    queue = served.queue()
    soon, never = served.claimed(queue), served.claimed(queue)

    served.done(
        "POST",
        f"/v1/jobs/{soon['id']}/nack",
        {"lease": soon["lease"], "error": "busy", "error_type": "Busy", "retry_after_seconds": 0},
    )
    served.done("POST", f"/v1/jobs/{never['id']}/nack", {"lease": never["lease"], "requeue": False})

    [again] = served.claim(queue, wait_seconds=20)
    assert (again["id"], again["attempt"], again["failures"]) == (soon["id"], 2, 1)
    [attempt] = served.job(soon["id"])["attempts"]
    assert (attempt["error_type"], attempt["error"], attempt["outcome"]) == ("Busy", "busy", "failed")
    assert served.job(never["id"])["state"] == "dead"


@pytest.mark.shows("R-HTTP-28", "R-DONE-19")
def test_what_is_said_without_the_lease_is_refused(served: Served) -> None:
    job = served.claimed(served.queue())
    served.done("POST", f"/v1/jobs/{job['id']}/cancel", {"force": True})

    for what, more in (("ack", {}), ("nack", {}), ("heartbeat", {}), ("extend", {"additional_seconds": 5})):
        answer = served.post(f"/v1/jobs/{job['id']}/{what}", {"lease": job["lease"], **more})
        assert (answer.status_code, answer.json()["code"]) == (409, "lease_lost"), what
    end = {"id": job["id"], "lease": job["lease"]}
    [one] = served.done("POST", "/v1/settle", {"outcomes": [end]})["settled"]
    assert (one["is_kept"], one["problem"]["code"]) == (False, "lease_lost")
    assert served.job(job["id"])["state"] == "dead"


def test_what_contradicts_an_earlier_end_is_refused(served: Served) -> None:
    queue = served.queue()
    done, failed = served.claimed(queue), served.claimed(queue)
    served.done("POST", f"/v1/jobs/{done['id']}/ack", {"lease": done["lease"]})
    served.done("POST", f"/v1/jobs/{failed['id']}/nack", {"lease": failed["lease"]})

    for job, what in ((done, "nack"), (failed, "ack")):
        answer = served.post(f"/v1/jobs/{job['id']}/{what}", {"lease": job["lease"]})
        assert (answer.status_code, answer.json()["code"]) == (409, "lease_lost")
    ends = [
        {"id": job["id"], "lease": job["lease"], "outcome": outcome}
        for job, outcome in ((done, "completed"), (done, "failed"), (failed, "failed"), (failed, "completed"))
    ]
    answers = served.done("POST", "/v1/settle", {"outcomes": ends})["settled"]
    assert [one["is_kept"] for one in answers] == [True, False, True, False]
    assert [served.job(job["id"])["state"] for job in (done, failed)] == ["completed", "retrying"]


@pytest.mark.shows("R-DONE-19")
def test_what_another_worker_says_takes_nothing_from_the_holder(served: Served) -> None:
    job = served.claimed(served.queue())
    attempt, _, _ = job["lease"].partition("-")
    right, forged = ({"id": job["id"], "lease": lease} for lease in (job["lease"], f"{attempt}-another"))

    answer = served.done("POST", "/v1/settle", {"outcomes": [forged, right]})

    assert [one["is_kept"] for one in answer["settled"]] == [False, True]
    assert served.job(job["id"])["state"] == "completed"


@pytest.mark.shows("R-HTTP-12", "R-HTTP-13", "R-LEASE-38", "R-LEASE-40", "R-LEASE-41", "R-LEASE-08")
def test_a_lease_is_kept_by_heartbeats_and_can_be_extended(served: Served) -> None:
    job = served.claimed(served.queue(lease_ms=60_000))
    path = f"/v1/jobs/{job['id']}"

    heartbeat = served.done("POST", f"{path}/heartbeat", {"lease": job["lease"], "done": 3, "total": 9})
    longer = served.done("POST", f"{path}/heartbeat", {"lease": job["lease"], "extend_seconds": 600})
    more = served.done("POST", f"{path}/extend", {"lease": job["lease"], "additional_seconds": 600})
    most = served.done("POST", f"{path}/extend", {"lease": job["lease"], "additional_seconds": 86_400})

    assert (job["heartbeat_seconds"], heartbeat["cancel"]) == (20, None)
    assert 0 < heartbeat["heartbeat_seconds"] <= 20
    assert 400 < seconds_between(heartbeat["lease_expires_at"], longer["lease_expires_at"]) <= 600
    assert 500 < seconds_between(longer["lease_expires_at"], more["lease_expires_at"]) < 700
    # Never more than a day after the attempt has begun.
    assert seconds_between(job["lease_expires_at"], most["lease_expires_at"]) <= 86_400
    progress = served.job(job["id"])["progress"]
    assert (progress["done"], progress["total"]) == (3, 9)


def test_a_heartbeat_says_that_the_job_shall_stop(served: Served) -> None:
    job = served.claimed(served.queue())
    path = f"/v1/jobs/{job['id']}"

    answer = served.done("POST", f"{path}/cancel", {"reason": "enough"})
    heartbeat = served.done("POST", f"{path}/heartbeat", {"lease": job["lease"]})

    assert (answer["state"], heartbeat["cancel"]) == ("running", "enough")


@pytest.mark.shows("R-HTTP-14", "R-ENQ-43")
def test_peeking_takes_nothing(served: Served) -> None:
    queue = served.queue()
    ids = [served.enqueue(queue) for _ in range(3)]

    seen = served.done("GET", f"/v1/queues/{queue}/peek?limit=2")["jobs"]
    unknown = served.ask("GET", "/v1/queues/nowhere/peek")

    assert [job["id"] for job in seen] == ids[:2]
    assert [job["state"] for job in seen] == ["pending", "pending"]
    assert len(served.claim(queue, limit=9)) == 3
    assert (unknown.status_code, unknown.json()["code"]) == (404, "queue_not_found")


@pytest.mark.shows("R-HTTP-29", "R-LEASE-14")
def test_a_claim_waits_for_a_job_that_comes_or_becomes_due(served: Served) -> None:
    queue, other = served.queue(), served.queue()
    with ThreadPoolExecutor(3) as threads:
        waiting = threads.submit(served.claim, queue, wait_seconds=20)
        elsewhere = threads.submit(served.claim, other, wait_seconds=20)
        eventually(lambda: len(served.service.claim_waiters._groups) >= 2)

        now = served.enqueue(queue)
        due = served.enqueue(other, delay_seconds=0.2)

        assert [job["id"] for job in waiting.result(PATIENCE)] == [now]
        assert [job["id"] for job in elsewhere.result(PATIENCE)] == [due]


@pytest.mark.shows("R-HTTP-30", "R-STORE-64", "R-STORE-65")
def test_a_claim_hears_of_jobs_that_came_by_another_door(served: Served) -> None:
    queue = served.queue()
    with ThreadPoolExecutor(1) as threads, serving(served.service.pool.engine) as other:
        waiting = threads.submit(served.claim, queue, wait_seconds=20)
        eventually(lambda: served.service.claim_waiters._groups)

        job_id = other.enqueue(queue)
        [job] = waiting.result(PATIENCE)
        # The server that is asked has not to be the one that has handed it out.
        other.done("POST", f"/v1/jobs/{job_id}/ack", {"lease": job["lease"]})

        assert served.job(job_id)["state"] == "completed"


@pytest.mark.shows("R-EDGE-53")
def test_a_paused_queue_lets_its_consumers_wait_in_vain(served: Served) -> None:
    queue = served.queue()
    served.enqueue(queue)
    store = served.service.pool.engine.store()
    store.save_queue(QueueName(queue), state=QueueState.PAUSED)
    with ThreadPoolExecutor(1) as threads:
        assert served.claim(queue, wait_seconds=0.1) == []
        waiting = threads.submit(served.claim, queue, wait_seconds=20)
        eventually(lambda: served.service.claim_waiters._groups)

        store.save_queue(QueueName(queue), state=QueueState.ACTIVE)

        assert len(waiting.result(PATIENCE)) == 1
    store.close()


def raw_claim(served: Served, queue: str) -> socket.socket:
    """A connection on which a claim waits."""
    host, _, port = served.address.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE)
    body = msgspec.json.encode({"queues": [queue], "limit": 1})
    head = f"POST /v1/claim HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def answered(connection: socket.socket) -> Any:
    """What was said on a connection."""
    with connection.makefile("rb") as lines:
        head = b"".join(iter(lines.readline, b"\r\n")).lower()
        assert head.startswith(b"http/1.1 200")
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return msgspec.json.decode(lines.read(length))


def test_many_who_wait_for_the_same_cost_one_look(plain: Served) -> None:
    queue, many = plain.queue(), 200
    with ExitStack() as connections:
        waiting = [connections.enter_context(raw_claim(plain, queue)) for _ in range(many)]
        eventually(
            lambda: [len(one.waiters) for one in list(plain.service.claim_waiters._groups.values())] == [many]
        )

        plain.done("POST", "/v1/jobs/batch", {"jobs": [{"task": "t", "queue": queue}] * many})

        got = [job["id"] for one in waiting for job in answered(one)["jobs"]]
    assert len(set(got)) == len(got) == many
    assert plain.service.claim_waiters._groups == {}


@pytest.mark.shows("R-HTTP-29")
def test_a_client_that_leaves_waits_no_longer(served: Served) -> None:
    queue = served.queue()
    connection = raw_claim(served, queue)
    eventually(lambda: served.service.claim_waiters._groups)

    connection.close()

    eventually(lambda: not served.service.claim_waiters._groups)
    job_id = served.enqueue(queue)
    assert [job["id"] for job in served.claim(queue)] == [job_id]


@pytest.mark.shows("R-HTTP-29")
def test_a_client_that_leaves_while_the_store_is_asked_gets_no_job(
    plain: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = plain.queue()
    job_id = plain.enqueue(queue)
    with monkeypatch.context() as patch:
        held = Held(patch)
        connection = raw_claim(plain, queue)
        assert held.has_begun.wait(PATIENCE)

        connection.close()
        eventually(lambda: not plain.service.claim_waiters._groups)
        held.may_go.set()

        eventually(lambda: plain.job(job_id)["state"] == "pending")
        [job] = plain.claim(queue, wait_seconds=20)
    assert (job["id"], job["attempt"], job["failures"]) == (job_id, 2, 0)


def test_a_job_that_was_released_goes_back_at_once(served: Served) -> None:
    queue = served.queue()
    job = served.claimed(queue)
    settled_outcome = {"id": job["id"], "lease": job["lease"], "outcome": "released"}

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(served.claim, queue, wait_seconds=20)
        served.done("POST", "/v1/settle", {"outcomes": [settled_outcome]})

        [again] = waiting.result(PATIENCE)
    assert (again["id"], again["attempt"], again["failures"]) == (job["id"], 2, 0)
    assert (job["run_number"], again["run_number"], served.job(job["id"])["run_number"]) == (1, 1, 1)
