"""What is answered without a key: it costs little, tells little, and takes no room of calls with a key."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from threading import Event
from time import monotonic
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from forebay.domain.api_key import Grant
from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.service import server_security
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.generated import forebay_pb2 as pb
from forebay.service.grpc import message_arrival_turns
from forebay.service.grpc import server as grpc_module
from forebay.service.runtime.store_pool import StorePool
from forebay.service.server_security import ServerSecurity
from forebay.stores.contract.reader import Reader
from forebay.stores.factory import open_engine
from tests.service.live_protocols import Spoken, speaking
from tests.service.live_server import PATIENCE, serving
from tests.worker.support import eventually

# Its rate for each address is off: here the looks at the store are counted.
MANY = ServerSecurity(behind_tls_proxy=True)
AWAY = "postgresql://127.0.0.1:1/prod_db?connect_timeout=5"
SERVING = health_pb2.HealthCheckResponse.SERVING


class Looks:
    """Counts the looks at a store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = StorePool.read

        async def read(pool: StorePool, call: Callable[[Reader], Any]) -> Any:
            self.count += 1
            return await real(pool, call)

        monkeypatch.setattr(StorePool, "read", read)


def watch(spoken: Spoken) -> Any:
    stub = health_pb2_grpc.HealthStub(spoken.channel)
    return stub.Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE)


def check(spoken: Spoken) -> Any:
    stub = health_pb2_grpc.HealthStub(spoken.channel)
    return stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE).status


@pytest.mark.shows("R-SEC-10")
def test_the_store_is_looked_at_once_a_second_however_many_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    with speaking(open_engine("memory://"), security=MANY) as spoken:
        looks.count, began = 0, monotonic()
        watches = [watch(spoken) for _ in range(90)]
        assert {next(one).status for one in watches} == {SERVING}
        for _ in range(90):
            assert check(spoken) == SERVING
            assert spoken.client.get("/health/ready").status_code == 200

        # One in each second that has begun, and one more at each end.
        assert looks.count <= monotonic() - began + 2
        for one in watches:
            one.cancel()


@pytest.mark.shows("R-SEC-10")
def test_health_watches_have_a_bound_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_module, "MAX_OPEN_CALLS", 3)
    with speaking(open_engine("memory://"), security=MANY) as spoken:
        watches = [watch(spoken) for _ in range(3)]
        for one in watches:
            assert next(one).status == SERVING

        with pytest.raises(grpc.RpcError) as refused:
            next(watch(spoken))
        spoken.queue("q")
        assert spoken.enqueue("q")
        watches[0].cancel()

        eventually(lambda: is_served(spoken))
        for one in watches:
            one.cancel()
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def is_served(spoken: Spoken) -> bool:
    try:
        return bool(check(spoken) == SERVING)
    except grpc.RpcError:
        return False


@pytest.mark.shows("R-SEC-10")
def test_what_needs_no_key_has_a_rate_for_each_address(monkeypatch: pytest.MonkeyPatch) -> None:
    rate = Limit(scope="global", rate=1, per_ms=3_600_000, burst=6)
    monkeypatch.setattr(server_security, "OPEN_RATE", rate)
    with speaking(open_engine("memory://")) as spoken:
        codes = [spoken.client.get(path).status_code for path in ("/health/live", "/openapi/v1.json") * 2]
        assert [check(spoken), next(watch(spoken)).status] == [SERVING, SERVING]
        refused = spoken.client.get("/health/ready")
        checks: list[Callable[[], Any]] = [lambda: check(spoken), lambda: next(watch(spoken))]
        for call in checks:
            with pytest.raises(grpc.RpcError) as caught:
                call()
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        others = spoken.client.get("/v1/queues").status_code

    assert (codes, refused.status_code, refused.json()["code"]) == ([200] * 4, 429, "too_many_requests")
    assert others == 200  # the rate of other requests is another one


def test_reflection_is_there_only_for_those_who_look_for_a_fault() -> None:
    with speaking(open_engine("memory://")) as spoken, pytest.raises(grpc.RpcError) as caught:
        ProtoReflectionDescriptorDatabase(spoken.channel).get_services()

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.shows("R-SEC-10")
def test_one_connection_has_a_bound_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = tuple(
        (name, 2 if name == "grpc.max_concurrent_streams" else value) for name, value in grpc_module.OPTIONS
    )
    monkeypatch.setattr(grpc_module, "OPTIONS", bounded)
    with speaking(open_engine("memory://")) as spoken, ExitStack() as stack:
        request = pb.DequeueRequest(queues=[spoken.queue("q")])
        waiting = [spoken.consumer.Dequeue.future(request, timeout=PATIENCE) for _ in range(3)]
        for one in waiting:
            stack.callback(one.cancel)
        groups = spoken.service.claim_waiters._groups
        eventually(lambda: [len(group.waiters) for group in list(groups.values())] == [2])

        with grpc.insecure_channel(spoken.target, options=[("grpc.use_local_subchannel_pool", 1)]) as other:
            status = health_pb2_grpc.HealthStub(other).Check(
                health_pb2.HealthCheckRequest(), timeout=PATIENCE
            )
        assert status.status == SERVING
        assert [len(group.waiters) for group in list(groups.values())] == [2]


@pytest.mark.parametrize("requires_keys", [True, False])
def test_a_store_that_is_away_is_named_to_the_log_and_not_to_strangers(
    requires_keys: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with serving(open_engine(AWAY), security=ServerSecurity(requires_keys=requires_keys)) as served:
        answers = [served.client.get("/health/ready") for _ in range(2)]
        if requires_keys:
            answers += [served.client.get("/v1/queues"), served.client.get("/v1/queues")]

    for answer in answers:
        assert answer.status_code == 503
        assert not any(word in answer.text for word in ("prod_db", "127.0.0.1", "postgresql", "refused"))
    messages = [
        one.getMessage() for one in caplog.records if one.name.endswith((".auth", ".store_readiness"))
    ]
    assert len(messages) == (2 if requires_keys else 1)
    assert all("127.0.0.1" in line for line in messages)


@pytest.mark.shows("R-SEC-10")
@pytest.mark.parametrize("method", ["Producer/Enqueue", "Consumer/DequeueStream"])
def test_calls_without_a_key_and_without_a_message_take_no_room(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_module, "MAX_CALLS", 2)
    engine = open_engine("memory://")
    store, reader = engine.store(), engine.reader()
    store.save_queue("q")  # type: ignore[arg-type]  # a plain text names it
    token = ApiKeyAdmin(store, reader, actor="test").create("shop", [Grant.parse("produce")]).token
    is_over = Event()
    with speaking(engine, security=ServerSecurity(requires_keys=True)) as spoken:
        silent = [
            spoken.channel.stream_stream(f"/forebay.v1.{method}")(never_sent(is_over), timeout=PATIENCE)
            for _ in range(2)
        ]
        for one in silent:
            assert one.code() is grpc.StatusCode.UNAUTHENTICATED
        request = pb.EnqueueRequest(job=pb.NewJob(task="t", queue="q"))
        shown = (("authorization", f"Bearer {token}"),)

        assert spoken.producer.Enqueue(request, metadata=shown, timeout=PATIENCE).state == "pending"
        is_over.set()
    store.close()
    reader.close()


def test_a_message_has_a_time_in_which_it_must_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_module, "MAX_OPEN_CALLS", 1)
    monkeypatch.setattr(message_arrival_turns, "ARRIVAL_TIMEOUT_SECONDS", 0.2)
    is_over = Event()
    with speaking(open_engine("memory://")) as spoken:
        codes = [
            spoken.channel.stream_stream(method)(never_sent(is_over), timeout=PATIENCE).code().name
            for method in ("/forebay.v1.Producer/Enqueue", "/grpc.health.v1.Health/Check")
        ]
        is_over.set()

        eventually(lambda: is_served(spoken))  # its place is free again
    assert codes == ["DEADLINE_EXCEEDED", "INVALID_ARGUMENT"]


@pytest.mark.parametrize("method", ["/forebay.v1.Producer/Enqueue", "/grpc.health.v1.Health/Watch"])
@pytest.mark.parametrize("messages", [[], [b"\xff"]])
def test_a_call_that_says_nothing_is_refused(method: str, messages: list[bytes]) -> None:
    with speaking(open_engine("memory://")) as spoken:
        call = spoken.channel.stream_stream(method)(iter(messages), timeout=PATIENCE)

        assert call.code() is grpc.StatusCode.INVALID_ARGUMENT


def never_sent(is_over: Event) -> Iterator[bytes]:
    """The messages of a call that never come."""
    is_over.wait(PATIENCE)
    yield from ()
