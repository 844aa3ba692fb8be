"""A real server on loopback, in a thread of the tests."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import Event, Thread
from typing import Any, Final

import httpx2
import pytest
import uvicorn

from forebay.service.http.app import http_app
from forebay.service.http.connection_timeouts import TimedConnection
from forebay.service.server_security import ServerSecurity
from forebay.service.service import Service
from forebay.stores.contract.claims_and_results import SettleAndClaimResult
from forebay.stores.contract.engine import Engine
from forebay.stores.memory.store import MemoryStore
from tests.worker.support import eventually

PATIENCE: Final = 60.0
_numbers = count(1)


class Served:
    """A server with a client that knows its address, and queues that no other test has."""

    def __init__(self, address: str, service: Service) -> None:
        self.address = address
        self.service = service
        self.client = httpx2.Client(base_url=address, timeout=PATIENCE)

    def queue(self, **settings: object) -> str:
        """A new queue."""
        name = f"q{next(_numbers)}"
        store = self.service.pool.engine.store()
        try:
            store.save_queue(name, settings)  # type: ignore[arg-type]  # a plain text names it
        finally:
            store.close()
        return name

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> httpx2.Response:
        return self.client.request(method, path, json=body, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> httpx2.Response:
        return self.ask("POST", path, {} if body is None else body, **more)

    def done(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """The answer to a request that must be served."""
        answer = self.ask(method, path, body, **more)
        assert answer.is_success, answer.text
        return answer.json()

    def enqueue(self, queue: str, **fields: Any) -> str:
        """The id of a new job."""
        job_id: str = self.done("POST", "/v1/jobs", {"task": "t", "queue": queue, **fields})["id"]
        return job_id

    def claim(self, queue: str, **fields: Any) -> list[dict[str, Any]]:
        body = {"queues": [queue], "wait_seconds": 0, **fields}
        jobs: list[dict[str, Any]] = self.done("POST", "/v1/claim", body)["jobs"]
        return jobs

    def claimed(self, queue: str, **fields: Any) -> dict[str, Any]:
        """A job that has just been enqueued and claimed."""
        self.enqueue(queue, **fields)
        [job] = self.claim(queue)
        return job

    def job(self, job_id: str) -> Any:
        return self.done("GET", f"/v1/jobs/{job_id}")


class Holder:
    """A client with a key of its own."""

    def __init__(self, served: Served, token: str) -> None:
        self._served = served
        self._headers = {"Authorization": f"Bearer {token}"}

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        more = {**self._headers, **headers}
        return self._served.client.request(method, path, json=body, headers=more)

    def code(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """How a request was answered."""
        answer = self.ask(method, path, body)
        return answer.status_code, answer.json().get("code", "") if answer.content else ""

    def enqueue(self, queue: str, **fields: Any) -> str:
        """The id of a new job."""
        job_id: str = self.ask("POST", "/v1/jobs", {"task": "t", "queue": queue, **fields}).json()["id"]
        return job_id


class Held:
    """Holds up settle-and-claims on their thread until they may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_begun = Event()
        self.may_go = Event()
        real = MemoryStore.settle_and_claim

        def settle_and_claim(store: MemoryStore, *args: Any, **more: Any) -> SettleAndClaimResult:
            answer = real(store, *args, **more)
            if answer.jobs:
                self.has_begun.set()
                assert self.may_go.wait(PATIENCE)
            return answer

        monkeypatch.setattr(MemoryStore, "settle_and_claim", settle_and_claim)


@contextmanager
def serving(
    engine: Engine,
    *,
    security: ServerSecurity | None = None,
    connecting: type[TimedConnection] = TimedConnection,
    around: Callable[[Any], Any] = lambda app: app,
    **options: Any,
) -> Iterator[Served]:
    """A server for this store while the block lasts."""
    service = Service(engine)
    if security is not None:
        options |= {
            "guard": security.guard(service),
            "hosts": security.allowed_hosts,
            "debug": security.debug,
        }
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            around(http_app(service, version="test", **options)),
            http=connecting,
            log_config=None,
            lifespan="on",
            access_log=False,
        )
        server = uvicorn.Server(config)
        thread = Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        eventually(lambda: server.started or not thread.is_alive())
        served = Served(f"http://127.0.0.1:{listening.getsockname()[1]}", service)
        try:
            yield served
        finally:
            served.client.close()
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive()
