"""Quotas of clients: one key cannot take all of a server, over HTTP or gRPC."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Final

import grpc
import httpx2
import pytest

from forebay.domain.api_key import Grant, Quota
from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.errors import TooManyRequests
from forebay.service import client_rates_and_quotas
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.client_rates_and_quotas import ClientRateLimiter
from forebay.service.generated import forebay_pb2 as pb
from forebay.service.generated import forebay_pb2_grpc
from forebay.service.resources.job_claims import group_key_of
from forebay.service.schema.job_claims import ClaimRequest
from forebay.service.server_security import ServerSecurity
from forebay.stores.factory import open_engine
from forebay.testing.manual_clock import ManualClock
from tests.service.live_protocols import Spoken, speaking
from tests.service.live_server import PATIENCE
from tests.worker.support import eventually

ROLES: Final = [Grant.parse(role) for role in ("produce", "consume", "view")]
CLAIM: Final = {"queues": ["mail"], "wait_seconds": 20}


@pytest.fixture(scope="module")
def spoken() -> Iterator[Spoken]:
    engine = open_engine("memory://")
    store = engine.store()
    store.save_queue("mail")  # type: ignore[arg-type]  # a plain text names it
    store.close()
    with speaking(engine, security=ServerSecurity(requires_keys=True)) as found:
        yield found


@pytest.fixture
def make_key(spoken: Spoken, request: pytest.FixtureRequest) -> Callable[..., dict[str, str]]:
    """Makes a key of this quota, and answers the headers that show it."""
    engine = spoken.service.pool.engine

    def make(name: str, **quota: int) -> dict[str, str]:
        store, reader = engine.store(), engine.reader()
        token = ApiKeyAdmin(store, reader, actor="test").create(name, ROLES, quota=Quota(**quota)).token
        store.close()
        reader.close()
        headers = {"Authorization": f"Bearer {token}"}
        eventually(lambda: spoken.client.get("/v1/workers", headers=headers).status_code == 200)
        return headers

    return make


def refused(spoken: Spoken, path: str, headers: dict[str, str], body: Any = None) -> str:
    """Why a request is refused that is one too many."""
    answer = spoken.client.request("GET" if body is None else "POST", path, json=body, headers=headers)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (429, "too_many_requests")
    assert int(answer.headers["Retry-After"]) >= 1
    return str(problem["detail"])


def test_a_key_has_so_many_requests_that_wait(spoken: Spoken, make_key: Callable[..., Any]) -> None:
    headers = make_key("waits", max_waits=2)
    shown = (("authorization", headers["Authorization"]),)
    job = spoken.client.post("/v1/jobs", json={"task": "t", "queue": "mail"}, headers=headers).json()["id"]
    [claimed] = spoken.client.post("/v1/claim", json={"queues": ["mail"]}, headers=headers).json()["jobs"]
    groups = spoken.service.claim_waiters._groups
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(spoken.client.post, "/v1/claim", json=CLAIM, headers=headers)
        request = pb.DequeueRequest(queues=["mail"], wait_seconds=20)
        also = pool.submit(spoken.consumer.Dequeue, request, timeout=PATIENCE, metadata=shown)
        eventually(lambda: sum(len(group.waiters) for group in groups.values()) == 2)

        details = {
            refused(spoken, "/v1/claim", headers, CLAIM),
            refused(spoken, f"/v1/jobs/{job}/wait", headers),
        }
        with pytest.raises(grpc.RpcError) as failed:
            spoken.consumer.Dequeue(request, timeout=PATIENCE, metadata=shown)
        at_once = spoken.client.post("/v1/claim", json=CLAIM | {"wait_seconds": 0}, headers=headers)
        for _ in range(2):
            spoken.client.post("/v1/jobs", json={"task": "t", "queue": "mail"}, headers=headers)
        assert len(waiting.result().json()["jobs"]) == len(also.result().jobs) == 1

    assert claimed["id"] == job
    assert details == {
        "waits has 2 requests that wait, and no more are allowed: end some, or come again later"
    }
    assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert at_once.json()["jobs"] == []
    spoken.client.get(f"/v1/jobs/{job}/wait?timeout_seconds=0.01", headers=headers).raise_for_status()


def test_a_key_has_so_many_connections(spoken: Spoken, make_key: Callable[..., Any]) -> None:
    headers, others = make_key("connections", max_connections=3), make_key("no-connections")
    shown = (("authorization", headers["Authorization"]),)
    workers = pb.ListWorkersRequest()
    held = spoken.server._guard._rates._connections  # type: ignore[attr-defined]  # it asks for keys
    with ExitStack() as stack:
        clients = [stack.enter_context(httpx2.Client(base_url=spoken.address)) for _ in range(3)]
        pending = [
            stack.enter_context(one.stream("GET", "/v1/events/stream", headers=headers))
            for one in clients[:2]
        ]
        assert [one.status_code for one in pending] == [200, 200]
        stream = stack.enter_context(
            grpc.insecure_channel(spoken.target, [("grpc.use_local_subchannel_pool", 1)])
        )
        request = pb.DequeueStreamRequest(queues=["mail"], window=1)
        calls = [
            forebay_pb2_grpc.ConsumerStub(stream).DequeueStream(request, timeout=PATIENCE, metadata=shown)
            for _ in range(2)  # of one connection
        ]
        eventually(lambda: held["connections"] == 3)

        answer = clients[2].get("/v1/workers", headers=headers)
        with pytest.raises(grpc.RpcError) as failed:
            spoken.admin.ListWorkers(workers, metadata=shown, timeout=PATIENCE)
        refused_again = clients[2].get("/v1/workers", headers=others)
        for one in calls:
            one.cancel()
        eventually(lambda: held["connections"] == 2)
        spoken.admin.ListWorkers(workers, metadata=shown, timeout=PATIENCE)
        eventually(lambda: held["connections"] == 2)

        # All requests of one connection count once, and other keys are not refused.
        assert [clients[2].get("/v1/workers", headers=headers).status_code for _ in range(3)] == [200] * 3
        assert held["connections"] == 3
    eventually(lambda: "connections" not in held)

    assert (answer.status_code, answer.headers["connection"], refused_again.status_code) == (
        429,
        "close",
        200,
    )
    assert answer.json()["code"] == "too_many_requests"
    reason = "connections has 3 open connections, and no more are allowed: end some, or come again later"
    assert (answer.json()["detail"], failed.value.details()) == (reason, reason)
    assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_key_has_so_many_streams(spoken: Spoken, make_key: Callable[..., Any]) -> None:
    headers = make_key("streams", max_streams=1)
    shown = (("authorization", headers["Authorization"]),)
    request = pb.DequeueStreamRequest(queues=["mail"], window=1)

    with spoken.client.stream("GET", "/v1/events/stream", headers=headers) as stream:
        parts = stream.iter_bytes()  # the connection ends with it
        next(parts)
        detail = refused(spoken, "/v1/events/stream", headers)
        with pytest.raises(grpc.RpcError) as failed:
            list(spoken.consumer.DequeueStream(request, timeout=PATIENCE, metadata=shown))

    assert detail == "streams has 1 open streams, and no more are allowed: end some, or come again later"
    assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert failed.value.details() == detail


def test_a_key_moves_so_many_bytes_a_second(spoken: Spoken, make_key: Callable[..., Any]) -> None:
    headers = make_key("bytes", bytes_rate=1_000)
    large = {"task": "t", "queue": "mail", "args": ["x" * 1_000_000]}

    assert spoken.client.post("/v1/jobs", json=large, headers=headers).status_code == 201

    assert refused(spoken, "/v1/workers", headers) == (
        "bytes moves too many bytes: requests and answers may have 1,000 a second together"
    )
    shown = (("authorization", headers["Authorization"]),)
    with pytest.raises(grpc.RpcError) as failed:
        spoken.admin.ListWorkers(pb.ListWorkersRequest(), metadata=shown, timeout=PATIENCE)
    assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_key_has_so_many_bytes_of_bodies_under_way(
    spoken: Spoken, make_key: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_rates_and_quotas, "MOST_BODY_BYTES", 300_000)
    headers, others = make_key("bodies"), make_key("no-bodies")
    large = {"task": "t", "queue": "mail", "args": ["x" * 200_000]}
    held = spoken.server._guard._rates._bodies  # type: ignore[attr-defined]  # it asks for keys
    url = httpx2.URL(spoken.address)
    token = headers["Authorization"].encode()
    beginnings = [b"Content-Length: 500000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n7a120\r\n"]
    for path in (b"/v1/jobs", b"/v1/jobs?x=1", b"/v1/store/insert"):
        for begin in beginnings:
            with socket.create_connection((url.host, url.port or 0), timeout=PATIENCE) as slow:
                slow.sendall(b"POST %b HTTP/1.1\r\nHost: x\r\nAuthorization: %b\r\n" % (path, token))
                slow.sendall(begin + b" " * 200_000)
                eventually(lambda: held["bodies"] == 200_000)

                assert refused(spoken, "/v1/jobs", headers, large) == (
                    "bodies has 300,000 bytes of requests under way, and no more are allowed: end some, or "
                    "come again later"
                )
                message = pb.EnqueueRequest(
                    job=pb.NewJob(task="t", queue="mail", args_json="[]" + " " * 200_000)
                )
                shown = (("authorization", headers["Authorization"]),)
                with pytest.raises(grpc.RpcError) as failed:
                    spoken.producer.Enqueue(message, timeout=PATIENCE, metadata=shown)
                assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                assert spoken.client.post("/v1/jobs", json=large, headers=others).status_code == 201

            eventually(lambda: "bodies" not in held)
            assert spoken.client.post("/v1/jobs", json=large, headers=headers).status_code == 201
            assert spoken.producer.Enqueue(message, timeout=PATIENCE, metadata=shown).state == "pending"


def test_leases_that_differ_by_a_little_are_one_group() -> None:
    kinds = {group_key_of(ClaimRequest(lease_seconds=30 + number / 100)) for number in range(101)}

    assert {kind.lease_ms for kind in kinds} == {30_000, 31_000}
    longest = [group_key_of(ClaimRequest(lease_seconds=seconds)).lease_ms for seconds in (1, 456, 86_400)]
    assert longest == [1_000, 460_000, 86_400_000]
    assert group_key_of(ClaimRequest()).lease_ms is None


def test_a_client_has_so_many_groups_of_waiting_claims() -> None:
    usage = ClientRateLimiter(None, ManualClock()).usage("a")
    with ExitStack() as stack:
        for number in range(client_rates_and_quotas.MAX_GROUPS):
            stack.enter_context(usage.reserve_wait(number))
        stack.enter_context(usage.reserve_wait(0))
        with pytest.raises(TooManyRequests, match="a has 100 groups of waiting claims"):
            stack.enter_context(usage.reserve_stream("new"))

    with usage.reserve_stream("new"):
        pass


def test_strangers_take_nothing_from_the_bucket_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_rates_and_quotas, "MAX_CLIENTS", 5)
    one = ClientRateLimiter(Limit(scope="global", rate=1, burst=1), ManualClock())
    one.take("key")

    for number in range(10):
        one.take(f"stranger@2001:db8:{number}::1")

    with pytest.raises(TooManyRequests):
        one.take("key")


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("::1", "::2", True),
    ],
)
def test_an_ipv6_network_is_one_address(first: str, second: str, is_same: bool) -> None:
    one = ClientRateLimiter(Limit(scope="global", rate=1, burst=1), ManualClock())
    one.take(f"stranger@{first}")

    try:
        one.take(f"stranger@{second}")
    except TooManyRequests:
        assert is_same
    else:
        assert not is_same


def test_bytes_come_back_with_the_time() -> None:
    clock = ManualClock()
    one = ClientRateLimiter(None, clock, Quota(bytes_rate=100))
    one.usage("a").spend(350)

    with pytest.raises(TooManyRequests) as failed:
        one.usage("a")
    assert (failed.value.retry_after, failed.value.reset_seconds) == (2.5, 4)
    clock.advance(ms=2_500)
    with pytest.raises(TooManyRequests):
        one.usage("a")
    clock.advance(ms=10)
    one.usage("a")
