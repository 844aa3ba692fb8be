"""The service tells which jobs another transaction holds, and does the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest

from forebay.app import busy_retry
from forebay.domain.job import JobId, NewJob, QueueName
from forebay.service.generated import forebay_pb2 as pb
from forebay.stores.factory import open_engine
from forebay.stores.postgres.engine import PostgresEngine
from tests.service.live_protocols import Spoken, speaking
from tests.service.live_server import PATIENCE
from tests.stores.support import WORKER, claim, complete
from tests.urls import url_of

QUEUE = "mail"


@pytest.fixture
def engine(tmp_path: Path) -> PostgresEngine:
    engine = open_engine(url_of("postgresql", tmp_path))
    assert isinstance(engine, PostgresEngine)
    return engine


@pytest.fixture
def spoken(engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spoken]:
    monkeypatch.setattr(busy_retry, "BUSY_RETRY_SECONDS", 0.05)
    monkeypatch.setattr("forebay.stores.postgres.row_locks.LOCK_WAIT_SECONDS", 0.05)
    with speaking(engine) as spoken:
        spoken.queue(QUEUE)
        yield spoken


@contextmanager
def open_caller(engine: PostgresEngine) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that is open until the block ends, and then undone."""
    connection = psycopg.connect(engine.address.dsn)
    try:
        yield connection
    finally:
        connection.rollback()
        connection.close()


def take_key(engine: PostgresEngine, caller: psycopg.Connection[Any], key: str = "daily") -> None:
    engine.insert_tx(caller, [NewJob(task="t", payload=b"", queue=QueueName(QUEUE), unique_key=key)])


def lock_row(engine: PostgresEngine, caller: psycopg.Connection[Any], job_id: str) -> None:
    caller.execute(f"select 1 from {engine.address.schema}.ready where id = '{job_id}' for update")


def complete_first(engine: PostgresEngine, caller: psycopg.Connection[Any]) -> JobId:
    """Claim a job and complete it in a transaction that stays open."""
    with closing(engine.store()) as store:
        [job] = claim(store, queue=QueueName(QUEUE))
    engine.complete_tx(caller, WORKER, complete(job))
    return job.id


def done(spoken: Spoken, path: str, body: dict[str, Any]) -> tuple[int, int, int]:
    """How many jobs a bulk request matched, changed, and found busy."""
    answer = spoken.client.post(path, json=body)
    assert answer.is_success, answer.text
    counts = answer.json()
    return counts["matched"], counts["affected"], counts["busy"]


def refusal(spoken: Spoken, method: str, path: str, body: dict[str, Any]) -> tuple[int, str]:
    answer = spoken.client.request(method, path, json=body)
    return answer.status_code, answer.json()["code"]


def test_a_bulk_cancel_says_how_many_jobs_an_open_transaction_holds(
    engine: PostgresEngine, spoken: Spoken
) -> None:
    ids = [spoken.enqueue(QUEUE) for _ in range(5)]
    body = {"action": "cancel", "where": {"queues": [QUEUE]}}
    with open_caller(engine) as caller:
        held = complete_first(engine, caller)
        counts = done(spoken, "/v1/jobs/bulk", body)
        caller.commit()

    assert counts == (5, 4, 1)
    assert [spoken.state(one) for one in ids] == ["completed" if one == held else "cancelled" for one in ids]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/jobs/bulk", {"action": "delete", "where": {"queues": [QUEUE]}}),
        (f"/v1/queues/{QUEUE}/purge", {}),
    ],
)
def test_a_bulk_delete_says_how_many_jobs_an_open_transaction_holds(
    engine: PostgresEngine, spoken: Spoken, path: str, body: dict[str, Any]
) -> None:
    ids = [spoken.enqueue(QUEUE) for _ in range(3)]
    with open_caller(engine) as caller:
        lock_row(engine, caller, ids[1])
        counts = done(spoken, path, body)
    again = done(spoken, path, body)

    assert (counts, again) == ((3, 2, 1), (1, 1, 0))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/jobs/bulk", {"action": "revive", "where": {"queues": [QUEUE]}}),
        (f"/v1/queues/{QUEUE}/requeue", {}),
    ],
)
def test_a_bulk_revival_says_how_many_keys_an_open_transaction_holds(
    engine: PostgresEngine, spoken: Spoken, path: str, body: dict[str, Any]
) -> None:
    spoken.enqueue(QUEUE, unique_key="daily")
    spoken.enqueue(QUEUE)
    done(spoken, "/v1/jobs/bulk", {"action": "cancel", "where": {"queues": [QUEUE]}})
    with open_caller(engine) as caller:
        take_key(engine, caller)
        counts = done(spoken, path, body)
    again = done(spoken, path, body)

    assert (counts, again) == ((2, 1, 1), (1, 1, 0))


def test_grpc_counts_busy_jobs_as_http_does(engine: PostgresEngine, spoken: Spoken) -> None:
    ids = [spoken.enqueue(QUEUE) for _ in range(2)]
    request = pb.BulkTasksRequest(action="delete", where=pb.JobFilter(queues=[QUEUE]))
    with open_caller(engine) as caller:
        lock_row(engine, caller, ids[0])
        counts = spoken.admin.BulkTasks(request, timeout=PATIENCE)

    assert (counts.matched, counts.affected, counts.busy) == (2, 1, 1)


def test_a_request_about_one_busy_job_is_refused_as_busy(engine: PostgresEngine, spoken: Spoken) -> None:
    job_id = spoken.enqueue(QUEUE)
    with open_caller(engine) as caller:
        lock_row(engine, caller, job_id)
        refusals = [
            refusal(spoken, "POST", f"/v1/jobs/{job_id}/cancel", {}),
            refusal(spoken, "PATCH", f"/v1/jobs/{job_id}", {"priority": 3}),
            refusal(spoken, "DELETE", f"/v1/jobs/{job_id}", {}),
        ]

    assert refusals == [(503, "busy")] * 3
    assert spoken.state(job_id) == "pending"


def test_an_enqueue_with_a_key_that_an_open_transaction_holds_is_refused_as_busy_until_it_ends(
    engine: PostgresEngine, spoken: Spoken
) -> None:
    job = {"task": "t", "queue": QUEUE, "unique_key": "daily"}
    with open_caller(engine) as caller:
        take_key(engine, caller)
        refused = refusal(spoken, "POST", "/v1/jobs", job)
        all_or_none = refusal(
            spoken, "POST", "/v1/jobs/batch", {"jobs": [job, {**job, "unique_key": "free"}]}
        )
        other = spoken.client.post("/v1/jobs", json={**job, "unique_key": "other"})
        with pytest.raises(grpc.RpcError) as caught:
            spoken.enqueue(QUEUE, unique_key="daily")
    later = spoken.client.post("/v1/jobs", json=job)

    assert (refused, all_or_none, caught.value.code().name) == ((503, "busy"), (503, "busy"), "ABORTED")
    assert (other.status_code, later.status_code) == (201, 201)


def test_a_batch_that_may_be_stored_in_part_rejects_only_the_job_whose_key_is_held(
    engine: PostgresEngine, spoken: Spoken
) -> None:
    job = {"task": "t", "queue": QUEUE}
    jobs = [job, {**job, "unique_key": "daily"}, job]
    with open_caller(engine) as caller:
        take_key(engine, caller)
        result = spoken.client.post("/v1/jobs/batch", json={"jobs": jobs, "atomic": False}).json()

    assert [one["index"] for one in result["accepted"]] == [0, 2]
    assert [(one["index"], one["problem"]["code"]) for one in result["rejected"]] == [(1, "busy")]


def test_a_store_behind_a_service_tells_of_each_job_of_a_batch_whether_it_is_busy(
    engine: PostgresEngine, spoken: Spoken
) -> None:
    ids = [JobId(spoken.enqueue(QUEUE)) for _ in range(3)]
    with closing(open_engine(spoken.address).store()) as store, open_caller(engine) as caller:
        lock_row(engine, caller, ids[1])
        cancelled = store.cancel(ids[:2])
        deleted = store.delete(ids[1:])

    assert [(one.applied, one.is_busy) for one in cancelled] == [(True, False), (False, True)]
    assert [(one.applied, one.is_busy) for one in deleted] == [(False, True), (True, False)]
