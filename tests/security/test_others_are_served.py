"""Attacks of small keys and of strangers on a server: others are answered, and its memory stays small."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPResponse
from pathlib import Path
from socket import create_connection, socket
from threading import Event
from typing import Any, Final

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from forebay.domain.api_key import Grant
from forebay.domain.concurrency_and_rate_limits import GLOBAL, Limit
from forebay.domain.job import MAX_COST, QueueName
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.generated import forebay_pb2 as pb
from forebay.service.generated import forebay_pb2_grpc
from forebay.service.grpc.keyless_call_limits import MAX_OPEN_CALLS
from forebay.stores.factory import open_engine
from tests.cli.command_runner import DEADLINE
from tests.security.measured import ALLOWED, MIB, QUEUE, Address, Measured, random_text, server_process
from tests.worker.support import eventually

OTHER: Final = QueueName("b")
SOON: Final = 0.1
RATE: Final = 100  # starts a second of all queues
MODULUS: Final = 2**61 - 1  # of the hashes of all numbers
STRANGERS: Final = 200
SLOW: Final = 30


class World:
    """A server, a client that attacks it, and another one."""

    def __init__(self, address: Address, attacker: Measured, other: Measured) -> None:
        self.address = address
        self.attacker = attacker
        self.other = other
        self.idle = other.used()

    def is_well(self) -> bool:
        """Whether the other client is answered soon by a server that has given memory back."""
        return self.is_answering() and self.other.used() - self.idle < ALLOWED

    def is_answering(self) -> bool:
        return self.other.usual_seconds(f"/v1/queues/{OTHER}") < SOON

    @contextmanager
    def under(self, attack: Callable[[], object]) -> Iterator[None]:
        """Attack again and again while the block lasts, at least once."""
        is_over = Event()

        def go_on() -> None:
            attack()
            while not is_over.is_set():
                attack()

        with ThreadPoolExecutor(1) as threads:
            attacking = threads.submit(go_on)
            try:
                yield
            finally:
                is_over.set()
            attacking.result(DEADLINE)

    def serves_other(self) -> bool:
        """Whether the other client enqueues a job and is given it."""
        job_id = self.other.ask("POST", "/v1/jobs", {"task": "t", "queue": OTHER})["id"]
        claim = {"queues": [OTHER], "limit": 1, "wait_seconds": 20}
        return [job["id"] for job in self.other.ask("POST", "/v1/claim", claim)["jobs"]] == [job_id]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    url = f"sqlite:///{tmp_path}/jobs.db"
    engine = open_engine(url)
    tokens = []
    with closing(engine.store()) as store, closing(engine.reader()) as reader:
        store.save_limit(Limit(scope=GLOBAL, rate=RATE, burst=RATE))
        for queue in (QUEUE, OTHER):
            store.save_queue(queue, {})
            grants = [Grant.parse(f"{role}:{queue}") for role in ("produce", "consume")]
            tokens.append(ApiKeyAdmin(store, reader, actor="test").create(f"key-{queue}", grants).token)
    # Behind a proxy what needs no key has no rate for each address: here that must not hold strangers up.
    with server_process(url, tmp_path, "--behind-tls-proxy") as address, ExitStack() as stack:
        found = [Measured(address.pid, address.http, token, engine) for token in tokens]
        for one, queue in zip(found, (QUEUE, OTHER), strict=True):
            stack.callback(one.client.close)
            # What is loaded at the first request of a kind is loaded before memory is measured.
            one.ask("POST", "/v1/jobs", {"task": "t", "queue": queue})
            [job] = one.ask("POST", "/v1/claim", {"queues": [queue], "wait_seconds": 20})["jobs"]
            one.ask("POST", f"/v1/jobs/{job['id']}/ack", {"lease": job["lease"]})
        yield World(address, *found)


def test_colliding_hashes_hold_no_other_client_up(world: World) -> None:
    """H1: numbers of one hash in the arguments of a job."""
    numbers = [{"~": "int", "v": hex((number + 1) * MODULUS)} for number in range(23_000)]
    colliding = json.dumps({"task": "t", "queue": QUEUE, "args": [{"~": "set", "v": numbers}]})

    def attack() -> None:
        answer = world.attacker.client.post("/v1/jobs", content=colliding)
        assert (answer.status_code, answer.json()["code"]) == (422, "payload")

    assert len(colliding) < MIB
    with world.under(attack):
        eventually(world.is_answering)
        assert world.serves_other()
    eventually(world.is_well)


def test_large_jobs_take_no_memory_from_others(world: World) -> None:
    """H2: many outcomes of one job, and results beyond what a job keeps."""
    [job_id] = world.attacker.enqueue(1)
    outcomes = {"outcomes": [{"id": job_id, "lease": "1-absent"}] * 1_000}
    large = {"outcomes": [{"id": job_id, "lease": "1-absent", "result": random_text(15_000_000)}]}
    [refused] = world.attacker.ask("POST", "/v1/settle", large)["settled"]
    assert refused["problem"]["code"] == "payload"

    with world.attacker.within(), world.under(lambda: world.attacker.ask("POST", "/v1/settle", outcomes)):
        eventually(world.is_answering)
        assert world.serves_other()
    eventually(world.is_well)


def test_bodies_that_never_end_take_no_memory_from_others(world: World) -> None:
    """H2: a key has a bound on the bytes of its requests that are under way."""
    head = (
        f"POST /v1/jobs/batch HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {world.attacker.token}\r\n"
        "Content-Length: 16000000\r\n\r\n"
    )
    where = (world.other.host, world.other.port)
    with ExitStack() as stack, world.attacker.within():
        slow = [stack.enter_context(create_connection(where, DEADLINE)) for _ in range(SLOW)]
        for one in slow:
            with suppress(ConnectionError):  # of one that is refused meanwhile
                one.sendall(head.encode() + b" " * 8_000_000)

        eventually(world.is_answering)
        assert world.serves_other()
    eventually(world.is_well)


def test_large_messages_take_no_memory_from_others(world: World) -> None:
    """H2: messages over gRPC, which the library has in memory before it tells their size."""
    job = pb.NewJob(task="t", queue=QUEUE, args_json=json.dumps([random_text(3_900_000)]))
    shown = (("authorization", f"Bearer {world.attacker.token}"),)
    # Four arrive at a time, and two are decoded; each is there up to six times, as bytes and as values.
    with ExitStack() as stack, world.attacker.within(2 * ALLOWED):
        calls = list[Any]()
        for _ in range(4):
            stub = forebay_pb2_grpc.ProducerStub(stack.enter_context(channel_to(world.address.grpc)))
            request = pb.EnqueueRequest(job=job)
            calls += [stub.Enqueue.future(request, metadata=shown, timeout=DEADLINE) for _ in range(15)]

        eventually(world.is_answering)
        assert world.serves_other()
        assert {one.code() for one in calls} == {grpc.StatusCode.INVALID_ARGUMENT}
    eventually(world.is_well)


def test_large_messages_of_strangers_take_no_memory_from_others(world: World) -> None:
    """H2 and M3: calls that need no key, with messages as large as any."""
    large = health_pb2.HealthCheckRequest(service="x" * 4_000_000)
    with ExitStack() as stack, world.attacker.within():
        calls = list[Any]()
        for _ in range(4):
            health = health_pb2_grpc.HealthStub(stack.enter_context(channel_to(world.address.grpc)))
            calls += [health.Check.future(large, timeout=DEADLINE) for _ in range(15)]

        eventually(world.is_answering)
        assert world.serves_other()
        assert {one.code() for one in calls} == {grpc.StatusCode.NOT_FOUND}
    eventually(world.is_well)


def test_messages_that_never_end_hold_no_other_client_up(world: World) -> None:
    """H2: beginnings of messages that do not go on, as many as a connection may have."""
    shown = (("authorization", f"Bearer {world.attacker.token}"),)
    with ExitStack() as stack, world.attacker.within():
        connection = stack.enter_context(channel_to(world.address.grpc))
        enqueue = connection.stream_unary("/forebay.v1.Producer/Enqueue")
        silence = Event()
        stack.callback(silence.set)
        calls = [
            enqueue.future(iter(silence.wait, True), metadata=shown, timeout=DEADLINE) for _ in range(SLOW)
        ]
        for one in calls:
            stack.callback(one.cancel)
        health = health_pb2_grpc.HealthStub(stack.enter_context(channel_to(world.address.grpc)))

        check_request = health_pb2.HealthCheckRequest()
        assert health.Check(check_request, timeout=DEADLINE).status == health_pb2.HealthCheckResponse.SERVING
        eventually(world.is_answering)
        assert world.serves_other()
    eventually(world.is_well)


def test_a_costly_job_takes_no_rate_from_others_for_long(world: World) -> None:
    """H3: a cost at the start, and one that is charged at the end."""
    job = {"task": "t", "queue": QUEUE}
    assert world.attacker.client.post("/v1/jobs", json=job | {"cost": MAX_COST}).status_code == 403
    victims = job | {"limit_keys": {"tenant": "victim"}}
    assert world.attacker.client.post("/v1/jobs", json=victims).status_code == 403
    world.attacker.ask("POST", "/v1/jobs", job | {"cost": RATE})
    claim = {"queues": [QUEUE], "wait_seconds": 20}
    [claimed] = world.attacker.ask("POST", "/v1/claim", claim)["jobs"]
    ack = {"lease": claimed["lease"], "cost": MAX_COST}
    world.attacker.ask("POST", f"/v1/jobs/{claimed['id']}/ack", ack)

    # The bucket owes its burst, which is earned in a second. It owed a million, which took three hours.
    assert world.serves_other()
    eventually(world.is_well)


def test_refused_bodies_hold_no_connection(world: World) -> None:
    """M2: strangers that send one byte of a body that was refused."""
    where = (world.other.host, world.other.port)
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16000000\r\n\r\n"
    with ExitStack() as stack:
        strangers = [stack.enter_context(create_connection(where, DEADLINE)) for _ in range(STRANGERS)]
        for one in strangers:
            one.sendall(head)
            assert status(one) == 401
            one.sendall(b"x")

        eventually(world.is_answering)
        assert all(is_closed(one) for one in strangers)
    eventually(world.is_well)


def status(connection: socket) -> int:
    answer = HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def is_closed(connection: socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_watches_of_strangers_take_no_call_from_others(world: World) -> None:
    """M3: more of them than there is room for, on several connections."""
    shown = (("authorization", f"Bearer {world.other.token}"),)
    with ExitStack() as stack, world.attacker.within():
        watches = list[Any]()
        for _ in range(4):
            health = health_pb2_grpc.HealthStub(stack.enter_context(channel_to(world.address.grpc)))
            check_request = health_pb2.HealthCheckRequest()
            watches += [health.Watch(check_request, timeout=DEADLINE) for _ in range(MAX_OPEN_CALLS // 2)]
        for one in watches:
            stack.callback(one.cancel)

        assert grpc.StatusCode.RESOURCE_EXHAUSTED in {first_of(one) for one in watches}
        producer = forebay_pb2_grpc.ProducerStub(stack.enter_context(channel_to(world.address.grpc)))
        request = pb.EnqueueRequest(job=pb.NewJob(task="t", queue=OTHER))
        assert producer.Enqueue(request, metadata=shown, timeout=DEADLINE).state == "pending"
        eventually(world.is_answering)
    eventually(world.is_well)


def channel_to(target: str) -> grpc.Channel:
    """A connection of its own."""
    return grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)])


def first_of(watch: Any) -> Any:
    """The first status that a watch tells, or the code of its refusal."""
    try:
        return next(watch).status
    except grpc.RpcError as exc:
        return exc.code()
