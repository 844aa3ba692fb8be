"""Stores behind a live server: one for all tests of a process, and each store under a path of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from functools import lru_cache
from itertools import count
from threading import Thread
from typing import Any, Final

import uvicorn
from litestar.types import Receive, Scope, Send

from forebay.clock import Clock, SystemClock
from forebay.service.auth import OpenAccess
from forebay.service.client_rates_and_quotas import ClientRateLimiter
from forebay.service.http.app import MAX_BODY
from forebay.service.http.auth import AuthMiddleware
from forebay.service.http.store_rpc import StoreRpc
from forebay.service.service import Service
from forebay.stores.contract.engine import Engine
from forebay.stores.factory import open_engine
from forebay.stores.memory.engine import MemoryEngine
from tests.worker.support import eventually

PATIENCE: Final = 60.0
_numbers = count(1)


class Switchboard:
    """Leads each request to the store that its path names."""

    def __init__(self) -> None:
        self.services: dict[str, tuple[Service, AuthMiddleware]] = {}
        self.loop = asyncio.new_event_loop()
        listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        config = uvicorn.Config(self, log_config=None, lifespan="off", access_log=False, ws="none")
        server = uvicorn.Server(config)
        Thread(target=self.loop.run_until_complete, args=(server.serve([listening]),), daemon=True).start()
        eventually(lambda: server.started)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _, name, rest = scope["path"].split("/", 2)
        _, app = self.services[name]
        await app({**scope, "path": f"/{rest}"}, receive, send)  # type: ignore[arg-type]  # the same with another path

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Something on the loop of the server, until it is done."""
        asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    async def serve(self, name: str, engine: Engine) -> None:
        # Without maintenance tasks: what happens by the clock is what tests do themselves.
        service = Service(engine, maintenance_tasks=())
        door = StoreRpc(_nothing, service, MAX_BODY)
        self.services[name] = (
            service,
            AuthMiddleware(door, OpenAccess(ClientRateLimiter(None, SystemClock()))),
        )
        await service.start()

    async def end_all(self) -> None:
        while self.services:
            service, _ = self.services.popitem()[1]
            await service.stop()


@lru_cache(maxsize=1)
def _switchboard() -> Switchboard:
    return Switchboard()


async def _nothing(*_: Any) -> None:
    raise AssertionError("only the store is asked for")


def make_engine(clock: Clock) -> Engine:
    """An empty store behind the server of the tests."""
    board, name = _switchboard(), str(next(_numbers))
    board.do(board.serve(name, MemoryEngine(clock=clock)))
    return open_engine(f"{board.address}/{name}")


def release() -> None:
    """Let go of the stores of a test."""
    board = _switchboard()
    board.do(board.end_all())
