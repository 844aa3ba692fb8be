"""The queue as a dependency of FastAPI.

    app = FastAPI(lifespan=lifespan(queue))

    @app.post("/orders")
    async def order(queue: Queue) -> str: ...

In a test `app.dependency_overrides[the_queue]` replaces it.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from fastapi.requests import HTTPConnection

from forebay.app.app import Forebay
from forebay.integrations.asgi import queue_of


def the_queue(connection: HTTPConnection) -> Forebay:
    """Return the queue that the `lifespan` of the app was given."""
    return queue_of(connection.app)


Queue = Annotated[Forebay, Depends(the_queue)]
