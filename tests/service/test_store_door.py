"""The way into the store over HTTP: who is told what before anything is read, and who has left."""

from __future__ import annotations

import socket
from contextlib import ExitStack, closing
from threading import Event
from typing import Any

import pytest

from forebay.domain.api_key import Grant
from forebay.domain.job import NewJob, QueueName
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.http.store_rpc import StoreRpc
from forebay.service.server_security import ServerSecurity
from forebay.stores.factory import open_engine
from forebay.stores.memory.store import MemoryStore
from forebay.stores.rpc import store_methods
from tests.service.live_server import PATIENCE, Served, serving
from tests.worker.support import eventually


def head(served: Served, path: str, token: str, length: int) -> bytes:
    """The beginning of a call."""
    host = served.address.removeprefix("http://")
    return (
        f"POST /v1/store/{path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


def connected(served: Served) -> socket.socket:
    host, _, port = served.address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def test_who_may_not_make_a_call_is_told_so_before_its_body_is_read() -> None:
    with serving(open_engine("memory://"), security=ServerSecurity(requires_keys=True)) as served:
        engine = served.service.pool.engine
        with closing(engine.store()) as store, closing(engine.reader()) as reader:
            token = ApiKeyAdmin(store, reader, actor="ann").create("viewer", [Grant.parse("view:mine")]).token
        answers = []
        for path in ("insert", "settle_and_claim", "save_limit", "save_document", "nothing"):
            with connected(served) as asking:
                asking.sendall(head(served, path, token, 1_000_000))  # and nothing of it
                answers.append(asking.recv(65_536)[9:12])

    assert answers == [b"403"] * 4 + [b"422"]


def test_a_call_whose_client_has_left_is_not_made_unless_it_has_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, may_go, doors = Event(), Event(), list[Any]()
    real = MemoryStore.insert

    def insert(store: MemoryStore, jobs: Any, **more: Any) -> Any:
        begun.set()
        assert may_go.wait(PATIENCE)
        return real(store, jobs, **more)

    def seen(app: Any) -> Any:
        door = app
        while not isinstance(door, StoreRpc):
            door = door._app
        doors.append(door)
        return app

    def called(stack: ExitStack, served: Served, queue: QueueName, task: str) -> socket.socket:
        body = store_methods()["insert"].encode_call([[NewJob(task=task, queue=queue)]], {})
        asking = stack.enter_context(connected(served))
        asking.sendall(head(served, "insert", "", len(body)) + body)
        return asking

    with serving(open_engine("memory://"), around=seen) as served, ExitStack() as stack:
        stack.callback(may_go.set)
        queue = QueueName(served.queue())
        monkeypatch.setattr(MemoryStore, "insert", insert)
        first = called(stack, served, queue, "begun")
        assert begun.wait(PATIENCE)
        [door] = doors
        waits = called(stack, served, queue, "waits")
        eventually(lambda: door._in_flight == 2)

        waits.close()
        eventually(lambda: door._in_flight == 1)
        may_go.set()
        assert first.recv(65_536).startswith(b"HTTP/1.1 200")

        found = served.done("POST", "/v1/jobs/search", {"where": {"queues": [queue]}})["jobs"]
        assert [job["task"] for job in found] == ["begun"]
