"""Requests with large jobs in the memory of a real server: small requests cost little."""

from __future__ import annotations

import json
import os
import re
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from select import select
from socket import create_connection, socket
from typing import Any, Final

import httpx2
import pytest

from forebay.app.codec import encode_call
from forebay.domain.access import Grant, Quota
from forebay.domain.job import JobId, Need, NewJob, QueueName, WorkerId
from forebay.domain.lifecycle import JobState
from forebay.service.keys import Keys
from forebay.stores.opening import open_engine
from forebay.stores.protocol import Engine, Want
from tests.cli.calling import DEADLINE, command, environment
from tests.urls import SHARED, url_of

MIB: Final = 1_048_576
ALLOWED: Final = 64 * MIB
MOST_WAITS: Final = 200
QUEUE: Final = QueueName("a")


class Measured:
    """A server as a program of its own, with a client that may use one queue."""

    def __init__(self, pid: int, address: str, token: str, engine: Engine) -> None:
        self._proc = Path(f"/proc/{pid}")
        self.token = token
        self.engine = engine
        self.host, _, port = address.removeprefix("http://").rpartition(":")
        self.port = int(port)
        headers = {"Authorization": f"Bearer {token}"}
        self.client = httpx2.Client(base_url=address, headers=headers, timeout=DEADLINE)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.client.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def connect(self, path: str) -> socket:
        """A connection on which this was asked for."""
        head = f"GET {path} HTTP/1.1\r\nHost: {self.host}\r\nAuthorization: Bearer {self.token}\r\n\r\n"
        connection = create_connection((self.host, self.port), DEADLINE)
        connection.sendall(head.encode())
        return connection

    def enqueue(self, jobs: int) -> list[JobId]:
        """Large jobs that came through this server, so that its page cache is as full as it gets."""
        body = {"task": "t", "queue": QUEUE}
        return [
            JobId(self.ask("POST", "/v1/jobs", body | {"args": [random_text(1_000_000)]})["id"])
            for _ in range(jobs)
        ]

    @contextmanager
    def within(self, allowed: int = ALLOWED) -> Iterator[None]:
        """Fail if the server has taken more than this at any moment of the block."""
        self.ask("GET", f"/v1/queues/{QUEUE}")  # what is loaded at the first request is loaded
        (self._proc / "clear_refs").write_text("5")  # the peak is what is used now
        before = self._peak()
        yield
        assert self._peak() - before < allowed

    def _peak(self) -> int:
        found = re.search(r"VmHWM:\s+(\d+) kB", (self._proc / "status").read_text())
        assert found is not None
        return int(found[1]) * 1_024


@pytest.fixture(params=SHARED)
def measured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Measured]:
    url = url_of(request.param, tmp_path)
    engine = open_engine(url)
    store, reader = engine.store(), engine.reader()
    store.save_queue(QUEUE, {})
    grants = [Grant.parse(f"{role}:{QUEUE}") for role in ("produce", "consume", "view")]
    quota = Quota(max_waits=MOST_WAITS)
    token = Keys(store, reader, actor="test").create("a", grants, quota=quota).token
    reader.close()
    store.close()
    process = subprocess.Popen(
        command("server", "--port", "0", "--url", url, "--keys"),
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        found = Measured(process.pid, address, token, engine)
        yield found
        found.client.close()
    finally:
        process.kill()
        process.communicate()


def random_text(size: int) -> str:
    return b64encode(os.urandom(size * 3 // 4)).decode()


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
    endings = [{"id": job_id, "lease": "1-nobody"}] * 300

    with measured.within():
        answer = measured.ask("POST", "/v1/settle", {"endings": endings})

    assert len(answer["settled"]) == 300
    assert {one["problem"]["code"] for one in answer["settled"]} == {"lease_lost"}


def test_ends_of_large_jobs_do_not_read_their_payloads(measured: Measured) -> None:
    ids = insert(measured.engine, 100)

    with measured.within(ALLOWED // 4):
        endings = [{"id": job_id, "lease": "1-nobody"} for job_id in ids]
        measured.ask("POST", "/v1/settle", {"endings": endings})


def test_calls_that_wait_for_one_large_job_do_not_read_its_payload(measured: Measured) -> None:
    [job_id] = insert(measured.engine, 1)

    with measured.within(), ExitStack() as stack:
        path = f"/v1/jobs/{job_id}/wait"
        waiting = [stack.enter_context(measured.connect(path)) for _ in range(MOST_WAITS + 1)]
        # One too many is refused when all others wait.
        [refused], _, _ = select(waiting, (), (), DEADLINE)
        assert refused.recv(12) == b"HTTP/1.1 429"
        measured.ask("GET", f"/v1/jobs/{job_id}")


def test_a_graph_of_large_jobs_is_small(measured: Measured) -> None:
    [parent] = insert(measured.engine, 1)
    insert(measured.engine, 100, depends_on=(Need(parent),))

    with measured.within(ALLOWED // 2):
        found = measured.ask("GET", f"/v1/jobs/{parent}/graph?limit=500")

    assert len(found["jobs"]) == 101


def test_a_claim_of_many_large_jobs_is_answered_in_parts(measured: Measured) -> None:
    ids = measured.enqueue(70)
    claimed = list[str]()

    with measured.within():
        while len(claimed) < len(ids):
            answer = measured.client.post(
                "/v1/claim", json={"queues": [QUEUE], "most": 1_000, "wait_seconds": 20}
            )
            assert len(answer.content) < 6 * MIB
            jobs = json.loads(answer.content)["jobs"]
            assert all(len(job["args"][0]) > 900_000 for job in jobs)
            claimed += (job["id"] for job in jobs)

    assert claimed == ids


def test_an_exchange_of_many_large_jobs_is_answered_in_parts(measured: Measured) -> None:
    ids = measured.enqueue(70)
    engine = open_engine(f"http://{measured.host}:{measured.port}", key=measured.token)
    claimed = list[JobId]()

    with measured.within(), closing(engine.store()) as remote:
        while len(claimed) < len(ids):
            answer = remote.exchange(WorkerId("w"), wants=[Want(QUEUE, 1_000)], room=1_000)
            assert all(len(job.payload) > 900_000 for job in answer.jobs)
            claimed += (job.id for job in answer.jobs)

    assert claimed == ids
    with closing(measured.engine.reader()) as reader:
        assert {job.state for job in reader.jobs(ids, with_payload=False) if job} == {JobState.RUNNING}
