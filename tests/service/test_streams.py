"""Streams over gRPC: jobs as they come, and a job as it changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import grpc
import pytest

from forebay.domain.api_key import Grant
from forebay.domain.job import Job, JobId
from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.generated import forebay_pb2 as pb
from forebay.service.generated import forebay_pb2_grpc
from forebay.service.schema.job_claims import ClaimRequest, SettleRequest, SettleResponse
from forebay.service.schema.producer_jobs import EnqueueRequest
from forebay.service.schema.queues import CreateQueueRequest
from forebay.service.server_security import ServerSecurity
from forebay.service.service import Service
from forebay.stores.contract.claims_and_results import SettleAndClaimResult
from forebay.stores.factory import open_engine
from forebay.stores.memory.store import MemoryStore
from tests.service.live_protocols import Spoken, speaking
from tests.service.live_server import PATIENCE
from tests.worker.support import eventually


@pytest.fixture(scope="module")
def spoken() -> Iterator[Spoken]:
    with speaking(open_engine("memory://")) as found:
        yield found


def streaming(spoken: Spoken, queue: str, window: int, **more: Any) -> Any:
    request = pb.DequeueStreamRequest(queues=[queue], window=window, lease_seconds=3_600)
    return spoken.consumer.DequeueStream(request, timeout=PATIENCE, **more)


def acked(spoken: Spoken, job: Any) -> bool:
    done = pb.AckTaskRequest(id=job.id, lease=job.lease)
    return bool(spoken.consumer.AckTask(done, timeout=PATIENCE).is_kept)


def running(spoken: Spoken, queue: str) -> int:
    shown = spoken.admin.GetQueue(pb.GetQueueRequest(name=queue), timeout=PATIENCE)
    return int(shown.counts.running)


@pytest.mark.shows("R-GRPC-04")
def test_a_stream_gives_jobs_as_they_come(spoken: Spoken) -> None:
    queue = spoken.queue("come")
    stream = streaming(spoken, queue, 10)

    ids = [spoken.enqueue(queue)]
    seen = [next(stream)]
    ids += [spoken.enqueue(queue), spoken.enqueue(queue)]
    seen += islice(stream, 2)

    assert [job.id for job in seen] == ids
    assert all(acked(spoken, job) for job in seen)
    stream.cancel()


def test_a_stream_has_no_more_jobs_out_than_its_window(spoken: Spoken) -> None:
    queue = spoken.queue("window")
    ids = [spoken.enqueue(queue) for _ in range(5)]
    stream = streaming(spoken, queue, 2)

    first, second = islice(stream, 2)
    assert running(spoken, queue) == 2
    assert acked(spoken, second)
    third = next(stream)
    nack = pb.NackTaskRequest(id=first.id, lease=first.lease, requeue=False)
    spoken.consumer.NackTask(nack, timeout=PATIENCE)
    fourth = next(stream)

    assert [one.id for one in (first, second, third, fourth)] == ids[:4]
    assert running(spoken, queue) == 2
    stream.cancel()


def test_what_another_worker_says_of_a_job_makes_no_room(spoken: Spoken) -> None:
    queue = spoken.queue("foreign")
    spoken.enqueue(queue)
    stream = streaming(spoken, queue, 1)
    job = next(stream)

    with pytest.raises(grpc.RpcError) as caught:
        spoken.consumer.AckTask(pb.AckTaskRequest(id=job.id, lease="1-another"), timeout=PATIENCE)

    assert dict(caught.value.trailing_metadata())["forebay-code"] == "lease_lost"
    assert Lease(JobId(job.id), 1) in spoken.service.claims._windows._streams
    stream.cancel()


def test_what_another_server_has_heard_makes_room_too(spoken: Spoken) -> None:
    queue = spoken.queue("elsewhere")
    ids = [spoken.enqueue(queue) for _ in range(2)]
    stream = streaming(spoken, queue, 1)
    first = next(stream)

    with speaking(spoken.service.pool.engine) as other:
        assert acked(other, first)
        second = next(stream)
        stream.cancel()

    assert [first.id, second.id] == ids


def test_what_is_claimed_for_a_stream_that_is_gone_goes_back_at_once(
    spoken: Spoken, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, groups = spoken.queue("gone"), spoken.service.claim_waiters._groups
    real, streams = MemoryStore.settle_and_claim, list[Any]()

    def settle_and_claim(store: MemoryStore, *args: Any, **more: Any) -> SettleAndClaimResult:
        answer = real(store, *args, **more)
        if answer.jobs and streams:  # they are claimed, and no worker has them yet
            streams.pop().cancel()
            eventually(lambda: not any(queue in kind.queues for kind in list(groups)))
        return answer

    monkeypatch.setattr(MemoryStore, "settle_and_claim", settle_and_claim)
    streams.append(streaming(spoken, queue, 5))
    ids = [spoken.enqueue(queue) for _ in range(3)]

    eventually(lambda: not streams and all(spoken.state(job_id) == "pending" for job_id in ids))
    shown = spoken.producer.GetTaskStatus(pb.GetTaskStatusRequest(id=ids[0]), timeout=PATIENCE)
    assert shown.failures == 0


def test_who_is_cancelled_while_it_gives_jobs_back_has_given_them_back() -> None:
    async def given_back() -> str:
        service = Service(open_engine("memory://"))
        await service.start()
        try:
            await service.queues.create_queue(CreateQueueRequest(name="q"))
            job = await service.jobs.enqueue(EnqueueRequest(task="t", queue="q"))
            answer = await service.claims.claim(ClaimRequest(queues=["q"]))
            may_go, real = asyncio.Event(), service.pool.jobs

            async def jobs(ids: Sequence[JobId], **options: Any) -> list[Job | None]:
                await may_go.wait()
                return await real(ids, **options)

            with pytest.MonkeyPatch.context() as patching:
                patching.setattr(service.pool, "jobs", jobs)
                giving = asyncio.create_task(service.claims.give_back(answer))
                await asyncio.sleep(0)
                giving.cancel()
                await asyncio.wait((giving,))
                may_go.set()
                [found] = (await service.claims.claim(ClaimRequest(queues=["q"]))).jobs
            return "once more" if found.id == job.id and found.attempt == 2 else "something else"
        finally:
            await service.stop()

    assert asyncio.run(given_back()) == "once more"


def test_a_stop_waits_until_jobs_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_engine("memory://")

    async def scene() -> str:
        service, may_go = Service(engine), asyncio.Event()
        await service.start()
        await service.queues.create_queue(CreateQueueRequest(name="q"))
        job = await service.jobs.enqueue(EnqueueRequest(task="t", queue="q"))
        answer = await service.claims.claim(ClaimRequest(queues=["q"]))
        real = service.claims.settle

        async def settle(request: SettleRequest) -> SettleResponse:
            await may_go.wait()
            return await real(request)

        monkeypatch.setattr(service.claims, "settle", settle)
        giving = asyncio.create_task(service.claims.give_back(answer))
        await asyncio.sleep(0)
        giving.cancel()
        stopping = asyncio.create_task(service.stop())
        await asyncio.wait((stopping,), timeout=0.2)  # one that does not wait is over by then
        may_go.set()
        await stopping
        return job.id

    job_id = asyncio.run(scene())
    reader = engine.reader()
    [found] = reader.jobs([JobId(job_id)])
    reader.close()

    assert found is not None
    assert found.state is JobState.PENDING


def test_what_a_stream_has_not_handed_on_goes_back_when_it_ends(
    spoken: Spoken, caplog: pytest.LogCaptureFixture
) -> None:
    queue = spoken.queue("slow")
    large = json.dumps(["x" * 700_000])
    ids = [spoken.enqueue(queue, args_json=large) for _ in range(4)]
    # Its client reads nothing, and takes so little unread that the first is more than enough.
    with grpc.insecure_channel(spoken.target, options=[("grpc.http2.bdp_probe", 0)]) as channel:
        slow = forebay_pb2_grpc.ConsumerStub(channel)
        request = pb.DequeueStreamRequest(queues=[queue], lease_seconds=3_600)
        stream = slow.DequeueStream(request, timeout=PATIENCE)
        eventually(lambda: running(spoken, queue) == 4)
        stream.cancel()

    eventually(lambda: all(spoken.state(job_id) == "pending" for job_id in ids[2:]))
    assert "internal error" not in caplog.text


@pytest.mark.shows("R-SEC-03")
def test_a_stream_ends_with_the_key_that_opened_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.service.auth.KEY_CACHE_SECONDS", 0.0)
    engine = open_engine("memory://")
    store, reader = engine.store(), engine.reader()
    store.save_queue("mail")  # type: ignore[arg-type]  # a plain text names it
    keys = ApiKeyAdmin(store, reader, actor="test")
    shown, root = (
        (("authorization", f"Bearer {keys.create(name, [Grant.parse(grant)]).token}"),)
        for name, grant in (("late", "consume:mail"), ("root", "admin"))
    )
    new = pb.EnqueueRequest(job=pb.NewJob(task="t", queue="mail"))
    with speaking(engine, security=ServerSecurity(requires_keys=True)) as spoken:
        stream = streaming(spoken, "mail", 5, metadata=shown)
        spoken.producer.Enqueue(new, metadata=root, timeout=PATIENCE)
        next(stream)

        keys.revoke("late")
        job_id = spoken.producer.Enqueue(new, metadata=root, timeout=PATIENCE).id

        with pytest.raises(grpc.RpcError) as caught:
            next(stream)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        request = pb.GetTaskStatusRequest(id=job_id)
        left = spoken.producer.GetTaskStatus(request, metadata=root, timeout=PATIENCE)
    store.close()
    reader.close()

    assert left.state == "pending"


def test_a_job_is_shown_whenever_something_has_happened_to_it(spoken: Spoken) -> None:
    queue = spoken.queue("watched")
    job_id = spoken.enqueue(queue)
    watching = spoken.producer.WatchTask(pb.WatchTaskRequest(id=job_id), timeout=PATIENCE)
    seen = [next(watching)]

    [job] = spoken.consumer.Dequeue(pb.DequeueRequest(queues=[queue]), timeout=PATIENCE).jobs
    seen.append(next(watching))
    heartbeat = pb.HeartbeatRequest(id=job_id, lease=job.lease, extend_seconds=3_600, done=1, message="half")
    spoken.consumer.Heartbeat(heartbeat, timeout=PATIENCE)
    while not seen[-1].progress.message:
        seen.append(next(watching))
    assert acked(spoken, job)
    seen += watching

    assert (seen[0].state, seen[1].state, seen[-1].state) == ("pending", "running", "completed")
    assert "half" in {one.progress.message for one in seen}


def test_a_job_that_is_unknown_cannot_be_watched(spoken: Spoken) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        next(spoken.producer.WatchTask(pb.WatchTaskRequest(id="unknown"), timeout=PATIENCE))

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_server_that_stops_sends_those_who_wait_to_another_one() -> None:
    with speaking(open_engine("memory://")) as spoken:
        queue = spoken.queue("stopped")
        job_id = spoken.enqueue(queue)
        full = streaming(spoken, queue, 1)
        jobs = [next(full)]
        waiting = streaming(spoken, queue, 5)
        watching = spoken.producer.WatchTask(pb.WatchTaskRequest(id=job_id), timeout=PATIENCE)
        next(watching)

        spoken.server.should_exit = True
        ends = []
        for stream in (waiting, full, watching):
            with pytest.raises(grpc.RpcError) as caught:
                jobs += stream
            ends.append(caught.value.code())

    assert ends == [grpc.StatusCode.UNAVAILABLE] * 3
