"""What helps who looks for a fault, on a server that was started so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from forebay import Forebay
from forebay.domain.api_key import Grant
from forebay.domain.job import NewJob, QueueName, WorkerId
from forebay.domain.worker import WorkerInfo
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.required_roles import REQUIRED_ROLES
from forebay.service.server_security import ServerSecurity
from forebay.stores.factory import open_engine
from tests.service.live_server import Holder, Served, serving
from tests.worker.support import eventually

PATHS = [
    ("GET", "/v1/debug/queues/mine/contents", None),
    ("GET", "/v1/debug/jobs/j/trace", None),
    ("POST", "/v1/debug/jobs/j/inspect", None),
    ("POST", "/v1/debug/sweep", None),
    ("GET", "/v1/debug/workers/w/state", None),
    ("POST", "/v1/debug/workers/w/signal", {"signal": "status"}),
]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(open_engine("memory://"), security=ServerSecurity(debug=True)) as found:
        yield found


@pytest.mark.shows("R-CLI-08")
@pytest.mark.parametrize(("method", "path", "body"), PATHS)
def test_nothing_of_it_is_there_unless_asked_for(plain: Served, method: str, path: str, body: Any) -> None:
    assert plain.ask(method, path, body).json()["code"] == "not_found"


@pytest.mark.shows("R-CLI-08", "R-SEC-04")
def test_it_is_for_administrators() -> None:
    engine = open_engine("memory://")
    store, reader = engine.store(), engine.reader()
    store.save_queue(QueueName("mine"))
    keys = ApiKeyAdmin(store, reader, actor="ann")
    tokens = [keys.create(name, [Grant.parse(name)]).token for name in ("operate", "admin")]
    with serving(engine, security=ServerSecurity(requires_keys=True, debug=True)) as served:
        operator, admin = (Holder(served, token) for token in tokens)
        codes = [
            (served.ask(*request).status_code, operator.code(*request), admin.code(*request)[0])
            for request in PATHS
        ]
        document = served.client.get("/openapi/v1.json").json()
    operations = {
        one["operationId"]
        for path, methods in document["paths"].items()
        for one in methods.values()
        if path.startswith("/v1/debug/")
    }

    assert {(unknown, forbidden) for unknown, forbidden, _ in codes} == {(401, (403, "forbidden"))}
    assert [status for _, _, status in codes] == [200, 404, 404, 202, 404, 404]
    assert len(operations & REQUIRED_ROLES.keys()) == len(PATHS)


@pytest.mark.shows("R-CLI-09", "R-TEST-69")
def test_the_contents_of_a_queue_are_shown(served: Served) -> None:
    queue = served.queue()
    running = served.claimed(queue)
    failed = served.claimed(queue)
    served.done(
        "POST", f"/v1/jobs/{failed['id']}/nack", {"lease": failed["lease"], "retry_after_seconds": 60}
    )
    pending = served.enqueue(queue, kwargs={"password": "p", "to": "ann"})
    store = served.service.pool.engine.store()
    [broken] = store.insert([NewJob(task="t", payload=b"?", queue=QueueName(queue))])
    store.close()
    path = f"/v1/debug/queues/{queue}/contents"

    usual = served.done("GET", path)
    whole = served.done("GET", f"{path}?include_retrying=true&include_running=false&limit=1")

    assert [one["id"] for one in usual["pending"]] == [pending, broken.id]
    assert usual["pending"][0]["kwargs"] == {"password": "***", "to": "ann"}
    assert usual["pending"][1]["payload_error"]
    assert ([one["id"] for one in usual["running"]], usual["retrying"]) == ([running["id"]], None)
    assert [one["id"] for one in whole["retrying"]] == [failed["id"]]
    assert (len(whole["pending"]), whole["running"]) == (1, None)
    assert served.ask("GET", "/v1/debug/queues/unknown/contents").json()["code"] == "queue_not_found"


@pytest.mark.shows("R-CLI-11")
def test_all_that_happened_to_a_job_is_told_in_order(served: Served) -> None:
    queue = served.queue()
    first = served.claimed(queue, metadata={"order": 7})
    path = f"/v1/jobs/{first['id']}"
    served.done(
        "POST", f"{path}/nack", {"lease": first["lease"], "error": "broken", "retry_after_seconds": 0}
    )
    [second] = eventually(lambda: served.claim(queue))
    served.done("POST", f"{path}/ack", {"lease": second["lease"], "result": {"token": "x", "sum": 3}})

    trace = served.done("GET", f"/v1/debug/jobs/{first['id']}/trace")

    happened = [one["what"] for one in trace["timeline"]]
    assert [happened[0], happened[-1]] == ["enqueued", "completed"]
    assert [one["at"] for one in trace["timeline"]] == sorted(one["at"] for one in trace["timeline"])
    assert trace["job"]["metadata"] == {"order": 7}
    assert [one["error"] for one in trace["job"]["attempts"]] == ["broken"]
    assert (trace["result"], trace["result_error"]) == ({"token": "***", "sum": 3}, None)
    assert served.ask("GET", "/v1/debug/jobs/unknown/trace").status_code == 404


@pytest.mark.shows("R-CLI-12")
def test_what_keeps_a_job_is_told_with_what_helps(served: Served) -> None:
    queue = served.queue()
    job_id = served.enqueue(queue)
    served.done("POST", f"/v1/queues/{queue}/pause")

    report = served.done("POST", f"/v1/debug/jobs/{job_id}/inspect")

    assert report["job"]["state"] == "pending"
    assert {"what": f"queue {queue} is paused", "todo": "resume the queue"} in report["diagnosis"]


@pytest.mark.shows("R-CLI-15")
def test_a_sweep_is_begun_and_not_waited_for(served: Served) -> None:
    queue = served.queue()
    lost = served.claimed(queue, lease_seconds=1, max_retries=0)

    def is_settled() -> bool:
        answer = served.ask("POST", "/v1/debug/sweep")
        assert answer.status_code == 202
        return bool(served.job(lost["id"])["attempts"])

    eventually(is_settled)


@pytest.mark.shows("R-CLI-16")
def test_a_worker_is_asked_to_pause_and_to_stop(served: Served) -> None:
    worker, store = "w-asked", served.service.pool.engine.store()
    store.heartbeat(WorkerInfo(id=WorkerId(worker)))
    path = f"/v1/debug/workers/{worker}/signal"

    answers = {
        signal: served.done("POST", path, {"signal": signal})
        for signal in ("status", "pause", "resume", "shutdown")
    }
    taken = [command.kind.value for command in store.take_commands([WorkerId(worker)])]
    store.close()

    assert answers["status"]["command"] is None
    assert answers["status"]["worker"]["id"] == worker
    assert taken == ["pause", "resume", "stop"]
    assert served.ask("POST", path, {"signal": "dance"}).status_code == 400
    assert served.ask("POST", "/v1/debug/workers/x/signal", {"signal": "pause"}).status_code == 404


@pytest.mark.shows("R-CLI-10")
def test_a_worker_says_what_its_threads_do(tmp_path_factory: pytest.TempPathFactory) -> None:
    url = f"sqlite:///{tmp_path_factory.mktemp('debug')}/jobs.db"
    with Forebay(url) as app, serving(app.engine, security=ServerSecurity(debug=True)) as served:
        store = served.service.pool.engine.store()
        store.heartbeat(WorkerInfo(id=WorkerId("w-deaf")))
        store.close()
        with app.run_worker(threads=1) as worker:
            # A worker that has just begun is known with its first heartbeat.
            path = f"/v1/debug/workers/{worker.id}/state?wait_seconds=20"
            report = eventually(lambda: (answer := served.ask("GET", path).json()).get("stacks") and answer)
        deaf = served.done("GET", "/v1/debug/workers/w-deaf/state?wait_seconds=0")

    assert (report["worker"]["id"], deaf["stacks"]) == (worker.id, None)
    assert "forebay" in report["stacks"]
