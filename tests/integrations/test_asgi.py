"""A web app with Forebay inside, as its own test client drives it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from litestar import Litestar, get
from litestar.di import NamedDependency
from litestar.testing import TestClient as LitestarClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from forebay import Forebay
from forebay.errors import ConfigError
from forebay.integrations.asgi import lifespan
from forebay.integrations.fastapi import Queue, the_queue
from forebay.integrations.litestar import the_queue as the_litestar_queue

WITHIN = 60.0


class Shop:
    """A queue with one task, and what its hooks have said."""

    def __init__(self, url: str) -> None:
        self.queue = Forebay(url)
        self.double = self.queue.task(name="double")(_double)
        self.hook_calls: list[str] = []
        self.queue.on_start(lambda: self.hook_calls.append("started"))
        self.queue.on_stop(lambda: self.hook_calls.append("stopped"))

    async def order(self) -> str:
        job = await self.double.enqueue_async(21)
        return str(await job.result_async(timeout=WITHIN))


def _double(number: int) -> int:
    return 2 * number


def on_fastapi(shop: Shop) -> TestClient:
    app = FastAPI(lifespan=lifespan(shop.queue))
    app.get("/")(shop.order)
    return TestClient(app)


def on_starlette(shop: Shop) -> TestClient:
    async def order(_: Request) -> PlainTextResponse:
        return PlainTextResponse(await shop.order())

    return TestClient(Starlette(routes=[Route("/", order)], lifespan=lifespan(shop.queue)))


def on_litestar(shop: Shop) -> LitestarClient[Litestar]:
    @get("/")
    async def order() -> str:
        return await shop.order()

    return LitestarClient(Litestar([order], lifespan=[lifespan(shop.queue)]))


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(f"sqlite:///{tmp_path}/jobs.db")
    yield shop
    shop.queue.close()


@pytest.mark.parametrize("client", [on_fastapi, on_starlette, on_litestar])
def test_a_worker_lives_as_long_as_the_app(shop: Shop, client: Callable[..., Any]) -> None:
    with client(shop) as web:
        assert "42" in web.get("/").text
        assert shop.hook_calls == ["started"]
    assert shop.hook_calls == ["started", "stopped"]


def test_an_app_may_be_started_again(shop: Shop) -> None:
    for _ in range(2):
        with on_fastapi(shop) as web:
            assert web.get("/").json() == "42"
    assert shop.hook_calls == ["started", "stopped"] * 2


def test_a_worker_that_cannot_start_keeps_the_app_from_starting(shop: Shop) -> None:
    @shop.queue.on_start
    def fail() -> None:
        raise RuntimeError("no database")

    with pytest.raises(RuntimeError, match="no database"), on_fastapi(shop):
        pass


def depending_on_fastapi(shop: Shop) -> TestClient:
    app = FastAPI(lifespan=lifespan(shop.queue, works=False))

    @app.get("/")
    async def name(queue: Queue) -> str:
        return repr(queue)

    return TestClient(app)


def depending_on_litestar(shop: Shop) -> LitestarClient[Litestar]:
    @get("/")
    async def name(queue: NamedDependency[Forebay]) -> str:
        return repr(queue)

    life = lifespan(shop.queue, works=False)
    return LitestarClient(Litestar([name], lifespan=[life], dependencies={"queue": the_litestar_queue}))


@pytest.mark.parametrize("client", [depending_on_fastapi, depending_on_litestar])
def test_a_view_may_ask_for_the_queue(shop: Shop, client: Callable[..., Any]) -> None:
    with client(shop) as web:
        assert "Forebay on sqlite, 1 tasks" in web.get("/").text
    assert shop.hook_calls == []  # nothing ran there


def test_a_test_may_put_another_queue_in_its_place(shop: Shop) -> None:
    client = depending_on_fastapi(shop)
    assert isinstance(client.app, FastAPI)

    with client as web, Forebay("memory://") as other:
        client.app.dependency_overrides[the_queue] = lambda: other
        assert "Forebay on memory, 0 tasks" in web.get("/").text


def test_an_app_without_a_queue_says_so() -> None:
    app = FastAPI()

    @app.get("/")
    async def name(queue: Queue) -> str:
        return repr(queue)

    with TestClient(app) as web, pytest.raises(ConfigError, match=r"lifespan=lifespan\(queue\)"):
        web.get("/")


def test_lives_of_others_begin_after_the_worker_and_end_before_it(shop: Shop) -> None:
    @asynccontextmanager
    async def own(app: Any) -> AsyncIterator[dict[str, str]]:
        shop.hook_calls.append("own")
        yield {"greeting": "hello"}
        shop.hook_calls.append("own ends")

    async def greet(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.state.greeting)

    app = Starlette(routes=[Route("/", greet)], lifespan=lifespan(shop.queue, own))
    with TestClient(app) as web:
        assert web.get("/").text == "hello"

    assert shop.hook_calls == ["started", "own", "own ends", "stopped"]


def test_what_is_no_queue_is_refused() -> None:
    with pytest.raises(ConfigError, match="lifespan takes the Forebay object, not"):
        lifespan("sqlite:///jobs.db")  # type: ignore[arg-type]
