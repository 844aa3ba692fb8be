"""A real server that speaks HTTP and gRPC, in a thread of the tests, and one way to ask it by either.

Messages are built and read here by what they say of themselves, and not by the forms that the service uses.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from threading import Event, Thread
from typing import Any, Final

import grpc
import httpx2
from google.protobuf.message import Message

from forebay.service.generated import forebay_pb2, forebay_pb2_grpc
from forebay.service.server import Server, open_listener
from forebay.service.server_security import ListenAddress, ServerSecurity
from forebay.service.service import Service
from forebay.stores.contract.engine import Engine
from tests.service.live_server import PATIENCE
from tests.worker.support import eventually

HERE: Final = ListenAddress("127.0.0.1", 0)
TIMESTAMP: Final = "google.protobuf.Timestamp"


class Spoken:
    """A server with its addresses, and a client for each."""

    def __init__(self, server: Server, address: str, target: str) -> None:
        self.server = server
        self.service: Service = server.service
        self.address = address
        self.target = target
        self.client = httpx2.Client(base_url=address, timeout=PATIENCE)
        self.channel = grpc.insecure_channel(target)
        self.producer = forebay_pb2_grpc.ProducerStub(self.channel)
        self.consumer = forebay_pb2_grpc.ConsumerStub(self.channel)
        self.admin = forebay_pb2_grpc.AdminStub(self.channel)

    def queue(self, name: str) -> str:
        """A new queue."""
        self.admin.CreateQueue(forebay_pb2.CreateQueueRequest(name=name), timeout=PATIENCE)
        return name

    def enqueue(self, queue: str, **fields: Any) -> str:
        """The id of a new job."""
        job = forebay_pb2.NewJob(task="t", queue=queue, **fields)
        answer = self.producer.Enqueue(forebay_pb2.EnqueueRequest(job=job), timeout=PATIENCE)
        return str(answer.id)

    def state(self, job_id: str) -> str:
        request = forebay_pb2.GetTaskStatusRequest(id=job_id)
        return str(self.producer.GetTaskStatus(request, timeout=PATIENCE).state)

    def close(self) -> None:
        self.client.close()
        self.channel.close()


@contextmanager
def running(
    engine: Engine, security: ServerSecurity | None = None, listener: socket.socket | None = None
) -> Iterator[tuple[Server, str, str]]:
    """A server for both protocols while the block lasts, and where it listens for HTTP and for gRPC."""
    listener = listener or open_listener(HERE)
    ready, made = Event(), list[tuple[Server, int]]()

    async def run() -> None:
        server = Server(engine, version="test", security=security)
        made.append((server, server.listen_for_grpc(HERE)))
        ready.set()
        await server.serve([listener])

    thread = Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    [(server, port)] = made
    eventually(lambda: server.started or not thread.is_alive())
    try:
        yield server, f"127.0.0.1:{listener.getsockname()[1]}", f"127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        listener.close()
        assert not thread.is_alive()


@contextmanager
def speaking(engine: Engine, *, security: ServerSecurity | None = None) -> Iterator[Spoken]:
    """The same with clients that speak without TLS."""
    with running(engine, security) as (server, http, target):
        spoken = Spoken(server, f"http://{http}", target)
        grpc.channel_ready_future(spoken.channel).result(PATIENCE)
        try:
            yield spoken
        finally:
            spoken.close()


def message_of(message: Message, fields: dict[str, Any]) -> Message:
    """Fill a message with what HTTP would be sent as JSON."""
    known = message.DESCRIPTOR.fields_by_name
    for name, value in fields.items():
        if f"{name}_json" in known:
            setattr(message, f"{name}_json", json.dumps(value))
        elif value is None:
            if "without" in known:
                message.without.append(name)
        else:
            _set(message, known[name], value)
    return message


def _set(message: Any, field: Any, value: Any) -> None:
    if isinstance(value, dict) and field.message_type.GetOptions().map_entry:
        getattr(message, field.name).update(value)
    elif isinstance(value, dict):
        getattr(message, field.name).SetInParent()
        message_of(getattr(message, field.name), value)
    elif isinstance(value, list) and field.message_type is not None:
        for one in value:
            message_of(getattr(message, field.name).add(), one)
    elif isinstance(value, list):
        getattr(message, field.name).extend(value)
    elif field.message_type is not None:
        getattr(message, field.name).FromDatetime(datetime.fromisoformat(value))
    else:
        setattr(message, field.name, value)


def fields_of(message: Any) -> dict[str, Any]:
    """What a message says, as HTTP would say it in JSON."""
    return dict(_field_value(message, field) for field in message.DESCRIPTOR.fields)


def _field_value(message: Any, field: Any) -> tuple[str, Any]:
    value, name = getattr(message, field.name), field.name.removesuffix("_json")
    if field.is_repeated:
        if field.message_type is None:
            return name, list(value)
        if field.message_type.GetOptions().map_entry:
            return name, dict(value)
        return name, [_one(field, one) for one in value]
    if field.has_presence and not message.HasField(field.name):
        return name, None
    return name, json.loads(value) if name != field.name else _one(field, value)


def _one(field: Any, value: Any) -> Any:
    if field.message_type is None:
        return value
    if field.message_type.full_name == TIMESTAMP:
        return value.ToJsonString()
    return fields_of(value)
