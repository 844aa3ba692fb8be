"""Requests with large jobs in the memory of a real server: small requests cost little."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from select import select
from typing import Any, Final

import pytest

from forebay.domain.api_key import Grant, Quota
from forebay.domain.job import Dependency, JobId, NewJob, WorkerId
from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease
from forebay.domain.progress import MAX_STEP_BYTES, ProgressUpdate, StepResult
from forebay.errors import PayloadError
from forebay.payload.codec import encode_call, encode_result
from forebay.service.api_keys import ApiKeyAdmin
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.factory import open_engine
from tests.cli.command_runner import DEADLINE
from tests.security.measured import ALLOWED, MIB, QUEUE, Measured, random_text, server_process
from tests.urls import SHARED, url_of

# The bounds are those of the service; the contract shows that each engine ends a claim at so many bytes.
pytestmark = pytest.mark.engine("sqlite")

MOST_WAITS: Final = 200


@pytest.fixture(params=SHARED)
def measured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Measured]:
    url = url_of(request.param, tmp_path)
    engine = open_engine(url)
    with closing(engine.store()) as store, closing(engine.reader()) as reader:
        store.save_queue(QUEUE, {})
        grants = [Grant.parse(f"{role}:{QUEUE}") for role in ("produce", "consume", "view")]
        token = (
            ApiKeyAdmin(store, reader, actor="test")
            .create("a", grants, quota=Quota(max_waits=MOST_WAITS))
            .token
        )
    with server_process(url, tmp_path) as address:
        found = Measured(address.pid, address.http, token, engine)
        yield found
        found.client.close()


def insert(engine: Engine, jobs: int, size: int = 1_000_000, **fields: Any) -> list[JobId]:
    """Jobs with payloads of about this size."""
    store = engine.store()
    try:
        ids = []
        for _ in range(jobs):
            payload = encode_call((random_text(size),), {})
            [receipt] = store.insert([NewJob(task="t", queue=QUEUE, payload=payload, **fields)])
            assert receipt.id is not None
            ids.append(receipt.id)
        return ids
    finally:
        store.close()


def test_ends_of_one_large_job_cost_its_size_once(measured: Measured) -> None:
    [job_id] = insert(measured.engine, 1)
    outcomes = [{"id": job_id, "lease": "1-absent"}] * 300

    with measured.within():
        answer = measured.ask("POST", "/v1/settle", {"outcomes": outcomes})

    assert len(answer["settled"]) == 300
    assert {one["problem"]["code"] for one in answer["settled"]} == {"lease_lost"}


def test_ends_of_large_jobs_do_not_read_their_payloads(measured: Measured) -> None:
    ids = insert(measured.engine, 100)

    with measured.within(ALLOWED // 4):
        outcomes = [{"id": job_id, "lease": "1-absent"} for job_id in ids]
        measured.ask("POST", "/v1/settle", {"outcomes": outcomes})


def test_calls_that_wait_for_one_large_job_do_not_read_its_payload(measured: Measured) -> None:
    [job_id] = insert(measured.engine, 1)

    with measured.within(), ExitStack() as stack:
        path = f"/v1/jobs/{job_id}/wait"
        waiting = [stack.enter_context(measured.connect(path)) for _ in range(MOST_WAITS + 1)]
        # One too many is refused when all others wait.
        [refused], _, _ = select(waiting, (), (), DEADLINE)
        assert refused.recv(12) == b"HTTP/1.1 429"
        measured.ask("GET", f"/v1/jobs/{job_id}")


def test_steps_of_one_job_are_read_within_the_bound(measured: Measured) -> None:
    insert(measured.engine, 1, size=10)
    engine = open_engine(f"http://{measured.host}:{measured.port}", key=measured.token)
    with closing(engine.store()) as remote, closing(engine.reader()) as reader:
        [job] = remote.settle_and_claim(WorkerId("w"), claims=[QueueClaim(QUEUE, 1)], room=1).jobs
        refused = 0
        for number in range(100):
            step = StepResult(name=str(number), result=encode_result(random_text(1_000_000)))
            update = ProgressUpdate(lease=Lease(job.id, job.attempt), steps=(step,))
            try:
                remote.settle_and_claim(WorkerId("w"), updates=[update])
            except PayloadError:
                refused += 1

        with measured.within():
            assert len(reader.progress(job.id).steps) == 100 - refused == MAX_STEP_BYTES // 1_000_000


def test_a_graph_of_large_jobs_is_small(measured: Measured) -> None:
    [parent] = insert(measured.engine, 1)
    insert(measured.engine, 100, depends_on=(Dependency(parent),))

    with measured.within(ALLOWED // 2):
        found = measured.ask("GET", f"/v1/jobs/{parent}/graph?limit=500")

    assert len(found["jobs"]) == 101


def test_a_claim_of_many_large_jobs_is_answered_in_parts(measured: Measured) -> None:
    ids = measured.enqueue(70)
    claimed = list[str]()

    with measured.within():
        while len(claimed) < len(ids):
            answer = measured.client.post(
                "/v1/claim", json={"queues": [QUEUE], "limit": 1_000, "wait_seconds": 20}
            )
            assert len(answer.content) < 6 * MIB
            jobs = json.loads(answer.content)["jobs"]
            assert all(len(job["args"][0]) > 900_000 for job in jobs)
            claimed += (job["id"] for job in jobs)

    assert claimed == ids


def test_a_settle_and_claim_of_many_large_jobs_is_answered_in_parts(measured: Measured) -> None:
    ids = measured.enqueue(70)
    engine = open_engine(f"http://{measured.host}:{measured.port}", key=measured.token)
    claimed = list[JobId]()

    with measured.within(), closing(engine.store()) as remote:
        while len(claimed) < len(ids):
            answer = remote.settle_and_claim(WorkerId("w"), claims=[QueueClaim(QUEUE, 1_000)], room=1_000)
            assert all(len(job.payload) > 900_000 for job in answer.jobs)
            claimed += (job.id for job in answer.jobs)

    assert claimed == ids
    with closing(measured.engine.reader()) as reader:
        assert {job.state for job in reader.jobs(ids, with_payload=False) if job} == {JobState.RUNNING}


def test_a_look_at_many_large_jobs_is_answered_in_parts(measured: Measured) -> None:
    ids = insert(measured.engine, 70)
    engine = open_engine(f"http://{measured.host}:{measured.port}", key=measured.token)
    requested = [*ids, JobId("unknown"), *ids]

    with measured.within(), closing(engine.reader()) as remote:
        found = remote.jobs(requested)

    assert [job and job.id for job in found] == [*ids, None, *ids]
    assert all(len(job.payload) > 900_000 for job in found if job)
