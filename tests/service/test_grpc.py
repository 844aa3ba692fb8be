"""The service over gRPC: who is let in, what is refused, how long a call waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from forebay.domain.api_key import Grant
from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.errors import InvalidJob, StoreUnavailable
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.generated import forebay_pb2 as pb
from forebay.service.grpc import server
from forebay.service.grpc.method_table import SERVICES
from forebay.service.grpc.request_messages import (
    DequeueRequest,
    EnqueueRequest,
    SendCommandRequest,
    UpdateQueueConfigRequest,
)
from forebay.service.grpc.servicer import MARGIN_SECONDS, address_of, decode_request, limit_wait
from forebay.service.schema.base import InvalidRequest
from forebay.service.server_security import ServerSecurity
from forebay.service.service import Service
from forebay.stores.factory import open_engine
from tests.service.live_protocols import Spoken, speaking
from tests.service.live_server import PATIENCE
from tests.worker.support import eventually


@pytest.fixture(scope="module")
def spoken() -> Iterator[Spoken]:
    with speaking(open_engine("memory://")) as found:
        yield found


def refused(call: Callable[..., Any], request: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    """How a call ended, and what was told behind it."""
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=PATIENCE, **more)
    error: Any = caught.value
    return error.code().name, dict(error.trailing_metadata())


# Messages


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ({"args_json": "[1,"}, "args_json"),
        ({"args_json": '{"a": 1}'}, "job.args"),
        ({"delay_seconds": float("nan")}, "delay_seconds"),
        ({"timeout_seconds": float("inf")}, "timeout_seconds"),
        ({"without": ["task"]}, "without"),
        ({"without": ["timeout_seconds"], "timeout_seconds": 5}, "without"),
        ({"queue": "no spaces"}, "job.queue"),
    ],
)
def test_a_message_that_says_what_cannot_be_is_refused_with_its_field(
    job: dict[str, Any], field: str
) -> None:
    body = pb.EnqueueRequest(job=pb.NewJob(task="t", **job)).SerializeToString()

    with pytest.raises(InvalidRequest) as caught:
        decode_request(EnqueueRequest, body)

    assert caught.value.field == field


def test_a_moment_beyond_the_calendar_is_refused() -> None:
    message = pb.EnqueueRequest(job=pb.NewJob(task="t"))
    message.job.run_at.seconds = 2**60

    with pytest.raises(InvalidRequest) as caught:
        decode_request(EnqueueRequest, message.SerializeToString())

    assert caught.value.field == "run_at"


def test_what_is_no_message_is_refused(spoken: Spoken) -> None:
    call = spoken.channel.unary_unary("/forebay.v1.Producer/Enqueue")

    code, metadata = refused(call, b"\xff\xff\xff")

    assert (code, metadata["forebay-code"]) == ("INVALID_ARGUMENT", "bad_request")


def test_what_is_left_out_has_its_default_and_what_is_taken_away_is_null() -> None:
    plain = decode_request(EnqueueRequest, pb.EnqueueRequest(job=pb.NewJob(task="t")).SerializeToString())
    without = pb.UpdateQueueConfigRequest(
        name="q", settings=pb.QueueSettings(without=["max_length"], weight=2)
    )
    settings = decode_request(UpdateQueueConfigRequest, without.SerializeToString())

    assert isinstance(plain, EnqueueRequest)
    assert (plain.job.timeout_seconds, plain.job.queue, plain.job.args) == (1_800, "default", [])
    assert isinstance(settings, UpdateQueueConfigRequest)
    assert settings.settings.changes() == {"weight": 2, "max_length": None}


def test_an_empty_list_of_workers_names_no_worker() -> None:
    with pytest.raises(InvalidJob):
        SendCommandRequest(kind="stop", workers=[]).to_command_request()
    with pytest.raises(InvalidJob):
        SendCommandRequest(kind="stop", workers=["w"], all_workers=True).to_command_request()

    assert SendCommandRequest(kind="stop", all_workers=True).to_command_request().workers is None


@pytest.mark.parametrize(
    ("peer", "address"),
    [("ipv4:127.0.0.1:4711", "127.0.0.1"), ("ipv6:%5B::1%5D:4711", "::1"), ("unix:/tmp/x", "")],
)
def test_a_client_is_known_by_its_address(peer: str, address: str) -> None:
    assert address_of(peer) == address


def test_what_contradicts_an_earlier_end_is_aborted(spoken: Spoken) -> None:
    queue = spoken.queue("contradicted")
    job_id = spoken.enqueue(queue)
    [job] = spoken.consumer.Dequeue(pb.DequeueRequest(queues=[queue]), timeout=PATIENCE).jobs
    done = pb.AckTaskRequest(id=job_id, lease=job.lease)
    assert spoken.consumer.AckTask(done, timeout=PATIENCE).is_kept

    with pytest.raises(grpc.RpcError) as refused:
        spoken.consumer.NackTask(pb.NackTaskRequest(id=job_id, lease=job.lease), timeout=PATIENCE)

    assert refused.value.code() is grpc.StatusCode.ABORTED
    assert spoken.consumer.AckTask(done, timeout=PATIENCE).is_kept


# Deadlines


@pytest.mark.shows("R-GRPC-04")
def test_no_call_waits_for_longer_than_its_deadline_leaves() -> None:
    [dequeue] = [method for method in SERVICES["Consumer"] if method.request_type is DequeueRequest]
    request = DequeueRequest(wait_seconds=10)

    waits = [limit_wait(dequeue, request, left) for left in (None, 60.0, 5.0, 0.1)]

    assert [getattr(one, "wait_seconds", None) for one in waits] == [10, 10, 5 - MARGIN_SECONDS, 0]


@pytest.mark.shows("R-GRPC-04", "R-LEASE-14", "R-HTTP-06", "R-DONE-06", "R-DONE-12")
def test_a_claim_and_a_wait_are_answered_when_something_comes(spoken: Spoken) -> None:
    queue = spoken.queue("long")
    claiming = spoken.consumer.Dequeue.future(pb.DequeueRequest(queues=[queue]), timeout=PATIENCE)
    eventually(lambda: any(queue in kind.queues for kind in list(spoken.service.claim_waiters._groups)))

    job_id = spoken.enqueue(queue)
    [job] = claiming.result().jobs
    waiting = spoken.producer.WaitForCompletion.future(
        pb.WaitForCompletionRequest(id=job_id), timeout=PATIENCE
    )
    done = pb.AckTaskRequest(id=job_id, lease=job.lease, result_json='{"n": 1}')
    assert spoken.consumer.AckTask(done, timeout=PATIENCE).is_kept

    assert waiting.result().state == "completed"
    result = spoken.producer.GetTaskResult(pb.GetTaskResultRequest(id=job_id), timeout=PATIENCE)
    assert result.result_json == '{"n":1}'


def test_a_claim_that_is_cancelled_takes_no_job(spoken: Spoken) -> None:
    queue = spoken.queue("left")
    claiming = spoken.consumer.Dequeue.future(pb.DequeueRequest(queues=[queue]), timeout=PATIENCE)
    groups = spoken.service.claim_waiters._groups
    eventually(lambda: any(queue in kind.queues for kind in list(groups)))

    claiming.cancel()
    eventually(lambda: not any(queue in kind.queues for kind in list(groups)))

    assert spoken.state(spoken.enqueue(queue)) == "pending"


# Who is let in


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[Spoken, ApiKeyAdmin]]:
    engine = open_engine("memory://")
    store, reader = engine.store(), engine.reader()
    store.save_queue("mail")  # type: ignore[arg-type]  # a plain text names it
    with speaking(
        engine, security=ServerSecurity(requires_keys=True, rate=Limit(scope="global", rate=1_000))
    ) as found:
        yield found, ApiKeyAdmin(store, reader, actor="test")
    store.close()
    reader.close()


@pytest.mark.parametrize(
    "shown", [(), (("authorization", "Bearer fbk_x.y"),), (("authorization", "Basic x"),)]
)
@pytest.mark.shows("R-GRPC-03", "R-SEC-01")
def test_no_caller_is_let_in_without_a_key(
    guarded: tuple[Spoken, ApiKeyAdmin], shown: tuple[Any, ...]
) -> None:
    spoken, _ = guarded

    for stub, methods in (
        (spoken.producer, "Producer"),
        (spoken.consumer, "Consumer"),
        (spoken.admin, "Admin"),
    ):
        for method in SERVICES[methods]:
            call, request = getattr(stub, method.name), getattr(pb, method.request_type.__name__)()
            answered = (lambda *args, call=call, **more: list(call(*args, **more))) if method.stream else call
            code, metadata = refused(answered, request, metadata=shown)
            assert (code, metadata["forebay-code"]) == ("UNAUTHENTICATED", "unauthenticated"), method.name


def test_a_client_has_one_rate_for_both_protocols(guarded: tuple[Spoken, ApiKeyAdmin]) -> None:
    spoken, keys = guarded
    token = keys.create("slow", [Grant.parse("view")], rate=1, burst=2).token
    shown = (("authorization", f"Bearer {token}"),)
    headers = {"Authorization": f"Bearer {token}"}
    eventually(lambda: spoken.client.get("/v1/workers", headers=headers).status_code == 200)
    eventually(lambda: spoken.client.get("/v1/workers", headers=headers).status_code == 429)

    ends = set()

    def is_refused() -> bool:
        try:
            spoken.admin.ListWorkers(pb.ListWorkersRequest(), metadata=shown, timeout=PATIENCE)
        except grpc.RpcError as exc:
            metadata = dict(exc.trailing_metadata())
            ends.add((exc.code().name, metadata["forebay-code"], metadata["x-ratelimit-remaining"]))
            return int(metadata["retry-after"]) >= 1
        return False

    eventually(is_refused)  # the bucket may get a token between the two calls

    assert ends == {("RESOURCE_EXHAUSTED", "too_many_requests", "0")}


def test_who_has_asked_is_in_the_audit_log(guarded: tuple[Spoken, ApiKeyAdmin]) -> None:
    spoken, keys = guarded
    token = keys.create("boss", [Grant.parse("operate:mail")]).token
    shown = (("authorization", f"Bearer {token}"), ("x-request-id", "r-7"))

    def is_paused() -> bool:
        try:
            call = spoken.admin.PauseQueue.with_call
            _, answer = call(pb.PauseQueueRequest(name="mail"), metadata=shown, timeout=PATIENCE)
        except grpc.RpcError as exc:  # keys are seen within a few seconds
            return exc.code() is not grpc.StatusCode.UNAUTHENTICATED
        return ("x-request-id", "r-7") in [tuple(one) for one in answer.trailing_metadata()]

    eventually(is_paused)

    reader = spoken.service.pool.engine.reader()
    assert ("boss", "r-7") in {(event.actor_name, event.request_id) for _, event in reader.audit()}
    reader.close()


# Faults


def test_a_fault_of_ours_is_told_to_the_log_and_to_no_caller(
    spoken: Spoken, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(spoken.service.queues, "queues", fail)

    with pytest.raises(grpc.RpcError) as caught:
        spoken.admin.ListQueues(pb.ListQueuesRequest(), timeout=PATIENCE)

    error: Any = caught.value
    assert (error.code().name, dict(error.trailing_metadata())["forebay-code"]) == ("INTERNAL", "internal")
    assert "secret" not in error.details()
    assert "secret" in caplog.text


@pytest.mark.shows("R-GRPC-03")
def test_a_store_that_is_away_is_unavailable_and_says_when_to_come_again(
    spoken: Spoken, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(spoken.service.queues, "queues", fail)

    code, metadata = refused(spoken.admin.ListQueues, pb.ListQueuesRequest())

    assert (code, metadata["forebay-code"], metadata["retry-after"]) == (
        "UNAVAILABLE",
        "store_unavailable",
        "1",
    )


# Health and reflection


def test_health_is_told_to_all_callers_as_it_is(
    guarded: tuple[Spoken, ApiKeyAdmin], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoken, _ = guarded
    health = health_pb2_grpc.HealthStub(spoken.channel)
    is_away = Event()
    check = Service.check

    async def check_unless_away(service: Service) -> None:
        if is_away.is_set():
            raise StoreUnavailable("away")
        await check(service)

    monkeypatch.setattr(Service, "check", check_unless_away)
    watching = health.Watch(health_pb2.HealthCheckRequest(service="forebay.v1.Producer"), timeout=PATIENCE)
    seen = [next(watching).status]
    is_away.set()
    seen.append(next(watching).status)
    watching.cancel()

    assert seen == [health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING]
    answer = health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
    assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
    with pytest.raises(grpc.RpcError) as caught:
        health.Check(health_pb2.HealthCheckRequest(service="other"), timeout=PATIENCE)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.shows("R-GRPC-05")
def test_a_client_can_ask_the_server_for_its_messages() -> None:
    with speaking(open_engine("memory://"), security=ServerSecurity(debug=True)) as spoken:
        described = ProtoReflectionDescriptorDatabase(spoken.channel)
        names = set(described.get_services())
        file = described.FindFileContainingSymbol("forebay.v1.Consumer")

    assert {
        "forebay.v1.Producer",
        "forebay.v1.Consumer",
        "forebay.v1.Admin",
        "grpc.health.v1.Health",
    } <= names
    assert file.name == "forebay/v1/forebay.proto"
    assert file.SerializeToString() == pb.DESCRIPTOR.serialized_pb


def test_a_long_problem_in_any_language_arrives(spoken: Spoken, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: Any, **__: Any) -> Any:
        raise InvalidJob("\U0001f6b0" * 5_000, field="task")

    monkeypatch.setattr(spoken.service.jobs, "enqueue", refused)
    with pytest.raises(grpc.RpcError) as caught:
        spoken.enqueue("any")

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert dict(caught.value.trailing_metadata())["forebay-code"] == "invalid"


def test_more_calls_than_a_server_can_bear_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CALLS", 2)
    with speaking(open_engine("memory://")) as spoken:
        request = pb.DequeueRequest(queues=[spoken.queue("q")])
        waiting = [spoken.consumer.Dequeue.future(request, timeout=PATIENCE) for _ in range(2)]
        groups = spoken.service.claim_waiters._groups
        eventually(lambda: [len(group.waiters) for group in list(groups.values())] == [2])

        code, _ = refused(spoken.consumer.Dequeue, request)
        for one in waiting:
            one.cancel()

        eventually(lambda: is_served(spoken))  # there is room again
    assert code == "RESOURCE_EXHAUSTED"


def is_served(spoken: Spoken) -> bool:
    try:
        return bool(spoken.enqueue("q"))
    except grpc.RpcError:
        return False
