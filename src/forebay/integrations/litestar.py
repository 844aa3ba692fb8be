"""Dependency of Litestar that provides the queue.

app = Litestar([order], lifespan=[lifespan(queue)], dependencies={"queue": the_queue})

@post("/orders")
async def order(queue: NamedDependency[Forebay]) -> str: ...
"""

from __future__ import annotations

from typing import Any

from litestar import Request
from litestar.di import Provide

from forebay.app.app import Forebay
from forebay.integrations.asgi import queue_of


def _provide_queue(request: Request[Any, Any, Any]) -> Forebay:
    return queue_of(request.app)


the_queue: Provide = Provide(_provide_queue, sync_to_thread=False)
