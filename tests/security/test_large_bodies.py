"""Large and hostile bodies keep no other client of the service waiting."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Event, current_thread
from typing import Any, Final
from zlib import crc32

import httpx2
import pytest

from forebay.domain.api_key import Grant
from forebay.domain.job import NewJob, QueueName
from forebay.payload import typed_json
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.generated import forebay_pb2 as pb
from forebay.service.runtime.codec_threads import LARGE, Converter
from forebay.service.server_security import ServerSecurity
from forebay.stores.factory import open_engine
from tests.service.live_protocols import Spoken, speaking
from tests.service.live_server import PATIENCE, Holder, Served, serving

MODULUS: Final = 2**61 - 1
BOUND: Final = 10.0  # seconds: a busy machine takes a part of one, comparing each with each took minutes
USUAL: Final = "?usual=way"  # not on the fast path
UUID: Final = "0188c0de-0000-7000-8000-00000000abcd"


def colliding(count: int) -> Any:
    return {"~": "set", "v": [{"~": "int", "v": hex((n + 1) * MODULUS)} for n in range(count)]}


def tagged(size: int) -> Any:
    return [{"~": "uuid", "v": UUID}, "x" * size]


class Seen:
    """Names of the threads that have read a tag."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: set[str] = set()
        kind, read = typed_json._READERS["uuid"]

        def noted(text: str) -> Any:
            self.threads.add(current_thread().name.partition("_")[0])
            return read(text)

        monkeypatch.setitem(typed_json._READERS, "uuid", (kind, noted))

    def taken(self) -> set[str]:
        found, self.threads = self.threads, set()
        return found


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(monkeypatch)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(open_engine("memory://"), security=ServerSecurity(requires_keys=True)) as found:
        yield found


@pytest.fixture(scope="module")
def holder(served: Served) -> Holder:
    """A client with a key for one queue."""
    engine = served.service.pool.engine
    with closing(engine.store()) as store, closing(engine.reader()) as reader:
        store.save_queue(QueueName("a"))
        grants = [Grant.parse("produce:a"), Grant.parse("consume:a")]
        return Holder(served, ApiKeyAdmin(store, reader, actor="ann").create("small", grants).token)


@pytest.fixture(scope="module")
def plain() -> Iterator[Served]:
    with serving(open_engine("memory://")) as found:
        yield found


@pytest.fixture(scope="module")
def spoken() -> Iterator[Spoken]:
    with speaking(open_engine("memory://")) as found:
        yield found


def answered_off_loop(served: Served, holder: Holder, path: str, body: Any) -> httpx2.Response:
    """The answer to a request, while another client is answered again and again."""
    with ThreadPoolExecutor(1) as threads, httpx2.Client(base_url=served.address, timeout=BOUND) as other:
        request = threads.submit(holder.ask, "POST", path, body)
        while True:
            is_last = request.done()
            assert other.get("/health/live").status_code == 200
            if is_last:
                return request.result()


@pytest.mark.parametrize("count", [10_000, 100_000])
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs" + USUAL])
def test_colliding_arguments_delay_no_other_request(
    served: Served, holder: Holder, path: str, count: int
) -> None:
    answer = answered_off_loop(served, holder, path, {"task": "t", "queue": "a", "args": [colliding(count)]})

    assert answer.status_code == 422
    assert answer.json()["code"] == "payload"


def test_colliding_arguments_in_a_batch_are_refused_one_by_one(served: Served, holder: Holder) -> None:
    job = {"task": "t", "queue": "a"}
    jobs = [job, {**job, "args": [colliding(10_000)]}, {**job, "args": [colliding(100_000)]}]

    answer = answered_off_loop(served, holder, "/v1/jobs/batch", {"jobs": jobs, "atomic": False}).json()

    assert [one["index"] for one in answer["accepted"]] == [0]
    assert ["same hash" in one["problem"]["detail"] for one in answer["rejected"]] == [True, False]
    assert "bytes, the limit is" in answer["rejected"][1]["problem"]["detail"]


def test_a_colliding_result_delays_no_other_request(served: Served, holder: Holder) -> None:
    holder.enqueue("a")
    [job] = holder.ask("POST", "/v1/claim", {"queues": ["a"], "wait_seconds": 0}).json()["jobs"]
    path = f"/v1/jobs/{job['id']}/ack"

    refused = answered_off_loop(served, holder, path, {"lease": job["lease"], "result": colliding(23_000)})
    kept = holder.ask("POST", path, {"lease": job["lease"], "result": colliding(50)})

    assert (refused.status_code, refused.json()["code"]) == (422, "payload")
    assert kept.status_code == 200


@pytest.mark.parametrize(
    "args", [[colliding(23_000)], json.loads("[" * 150 + "]" * 150)], ids=["colliding", "deep"]
)
def test_what_is_stored_already_delays_no_other_request(served: Served, holder: Holder, args: Any) -> None:
    body = json.dumps({"v": 1, "args": args, "kwargs": {}}).encode()
    payload = b"fb1 %08x\n%b" % (crc32(b"\n" + body), body)
    with closing(served.service.pool.engine.store()) as store:
        [receipt] = store.insert([NewJob(task="t", queue=QueueName("a"), payload=payload)])

    claim = {"queues": ["a"], "limit": 1_000, "wait_seconds": 0}
    jobs = answered_off_loop(served, holder, "/v1/claim", claim).json()["jobs"]

    [job] = [job for job in jobs if job["id"] == receipt.id]
    assert job["payload_error"]
    assert job["payload_base64"]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs" + USUAL])
@pytest.mark.parametrize(("size", "is_off_loop"), [(10, False), (LARGE, True)])
def test_large_bodies_are_read_off_the_loop(
    plain: Served, seen: Seen, path: str, size: int, is_off_loop: bool
) -> None:
    queue = plain.queue()
    job = {"task": "t", "queue": queue, "args": [tagged(size)]}

    plain.done("POST", path, job)
    enqueued = seen.taken()
    plain.done("POST", path.replace("jobs", "jobs/batch"), {"jobs": [job]})
    batched = seen.taken()
    [first, second] = plain.claim(queue, limit=2)
    claimed = seen.taken()
    plain.done("POST", f"/v1/jobs/{first['id']}/ack", {"lease": first["lease"], "result": tagged(size)})
    acked = seen.taken()
    outcome = {"id": second["id"], "lease": second["lease"], "result": tagged(size)}
    plain.done("POST", "/v1/settle", {"outcomes": [outcome]})
    settled = seen.taken()
    shown = plain.done("GET", f"/v1/jobs/{first['id']}/result")["result"]

    assert shown == first["args"][0] == tagged(size)
    found = (enqueued, batched, claimed, acked, settled, seen.taken())
    assert [threads == {"forebay-converter"} for threads in found] == [is_off_loop] * 6
    assert all(found)


@pytest.mark.parametrize(("size", "is_off_loop"), [(10, False), (LARGE, True)])
def test_large_messages_are_read_off_the_loop(
    spoken: Spoken, seen: Seen, size: int, is_off_loop: bool
) -> None:
    queue = spoken.queue(f"size-{size}")
    text = json.dumps([tagged(size)])

    spoken.enqueue(queue, args_json=text)
    enqueued = seen.taken()
    answer = spoken.consumer.Dequeue(pb.DequeueRequest(queues=[queue]), timeout=PATIENCE)
    claimed = seen.taken()
    [job] = answer.jobs
    spoken.enqueue(queue, args_json=text)
    seen.taken()
    stream = spoken.consumer.DequeueStream(pb.DequeueStreamRequest(queues=[queue]), timeout=PATIENCE)
    streamed = next(stream)
    stream.cancel()

    assert json.loads(job.args_json) == json.loads(streamed.args_json) == json.loads(text)
    found = (enqueued, claimed, seen.taken())
    assert [threads == {"forebay-converter"} for threads in found] == [is_off_loop] * 3
    assert all(found)


def test_who_leaves_while_a_large_answer_is_made_leaves_no_job_behind(
    plain: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = plain.queue()
    plain.enqueue(queue, args=["x" * LARGE])
    is_made, may_go = Event(), Event()
    real = Converter.run

    async def held(converter: Converter, size: int, call: Any, *args: Any) -> Any:
        def wait() -> Any:
            is_made.set()
            assert may_go.wait(PATIENCE)
            return call(*args)

        return await real(converter, size, wait) if size > LARGE else call(*args)

    monkeypatch.setattr(Converter, "run", held)
    body = json.dumps({"queues": [queue], "wait_seconds": 0}).encode()
    address = httpx2.URL(plain.address)
    with socket.create_connection((address.host, address.port or 0), timeout=PATIENCE) as leaving:
        leaving.sendall(
            b"POST /v1/claim HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        leaving.sendall(body)
        assert is_made.wait(PATIENCE)
    monkeypatch.undo()
    [again] = plain.claim(queue, wait_seconds=20)
    may_go.set()

    assert again["run_number"] == 1
