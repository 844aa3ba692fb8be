"""Web apps with the dashboard under a path, on a real server in a thread of the tests."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from litestar import Litestar, asgi
from starlette.applications import Starlette
from starlette.routing import Mount

from forebay import Forebay
from forebay.dashboard.mount import Dashboard
from forebay.integrations.asgi import lifespan
from tests.worker.support import eventually

PATIENCE: Final = 60.0
PATH: Final = "/in/jobs"


def on_fastapi(queue: Forebay, **options: Any) -> Any:
    jobs = Dashboard(queue, **options)
    app = FastAPI(lifespan=lifespan(queue, jobs.lifespan, works=False))
    app.mount(PATH, jobs)
    return app


def on_starlette(queue: Forebay, **options: Any) -> Any:
    """Mounted in what is mounted, so that the path has two parts."""
    jobs = Dashboard(queue, **options)
    inner = Mount("/jobs", app=jobs)
    return Starlette(routes=[Mount("/in", routes=[inner])], lifespan=jobs.lifespan)


def on_litestar(queue: Forebay, **options: Any) -> Any:
    jobs = Dashboard(queue, path=PATH, **options)
    return Litestar([asgi(PATH, is_mount=True, copy_scope=True)(jobs)], lifespan=[jobs.lifespan])


@contextmanager
def running(app: Any) -> Iterator[str]:
    """The address of a server for this app while the block lasts."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on", access_log=False))
        thread = Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        eventually(lambda: server.started or not thread.is_alive())
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive()
