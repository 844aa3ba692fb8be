"""The service and its page under a path of another app."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.websockets import WebSocketDisconnect

from forebay import Forebay
from forebay.dashboard.mount import Dashboard, EmbeddedUser
from forebay.domain.api_key import Grant
from forebay.errors import ConfigError
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.http.cookies import SESSION
from forebay.service.http.cross_site_check import PAGE_HEADER
from tests.dashboard.mounted import PATH, PATIENCE, on_fastapi, on_litestar, on_starlette, running

FROM_US = {PAGE_HEADER: "1"}
HOSTS = [on_fastapi, on_starlette, on_litestar]


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Forebay]:
    with Forebay(f"sqlite:///{tmp_path}/jobs.db") as app:
        app.enqueue("greet", queue="mail")
        yield app


def key_for(queue: Forebay, grant: str) -> str:
    store, reader = queue.engine.store(), queue.engine.reader()
    try:
        return ApiKeyAdmin(store, reader, actor="ann").create("ops", [Grant.parse(grant)]).token
    finally:
        store.close()
        reader.close()


@pytest.fixture(params=HOSTS, ids=lambda host: host.__name__)
def client(request: pytest.FixtureRequest, queue: Forebay) -> Iterator[httpx2.Client]:
    with (
        running(request.param(queue)) as address,
        httpx2.Client(base_url=address, timeout=PATIENCE) as client,
    ):
        yield client


def test_the_page_finds_its_files_under_the_path(client: httpx2.Client) -> None:
    page = client.get(f"{PATH}/dashboard/queues/mail.daily")

    assert page.status_code == 200
    assert f'<meta name="forebay-base" content="{PATH}"' in page.text
    files = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(files) == 3
    for file in files:
        found = client.get(urljoin(str(page.url), file))
        assert (found.status_code, urlsplit(file).path) == (200, file)
        assert file.startswith(f"{PATH}/dashboard/")
    assert (
        client.get(f"{PATH}/dashboard/", headers={"If-None-Match": page.headers["etag"]}).status_code == 304
    )


def test_who_comes_to_the_path_itself_is_sent_to_the_page(client: httpx2.Client) -> None:
    found = client.get(f"{PATH}/", follow_redirects=True)

    assert (found.status_code, found.url.path) == (200, f"{PATH}/dashboard/")


def test_a_key_opens_the_api_under_the_path_and_nothing_does_without(
    client: httpx2.Client, queue: Forebay
) -> None:
    token = key_for(queue, "operate")

    assert client.get(f"{PATH}/v1/queues").status_code == 401
    assert client.get(f"{PATH}/health/ready").json() == {"status": "ok"}
    assert client.get("/v1/queues").status_code == 404
    bearer = {"Authorization": f"Bearer {token}"}
    assert [one["name"] for one in client.get(f"{PATH}/v1/queues", headers=bearer).json()["queues"]] == [
        "mail"
    ]
    made = client.post(f"{PATH}/v1/jobs/search", headers=bearer, json={"where": {"queues": ["mail"]}})
    assert [job["task"] for job in made.json()["jobs"]] == ["greet"]


def test_a_session_is_shown_under_the_path_alone_and_changes_nothing_for_other_sites(
    client: httpx2.Client, queue: Forebay
) -> None:
    token = key_for(queue, "operate")

    begun = client.post(f"{PATH}/v1/session", headers={"Authorization": f"Bearer {token}"})

    assert f"; Path={PATH}/" in begun.headers["Set-Cookie"]
    assert [cookie.path for cookie in client.cookies.jar if cookie.name == SESSION] == [f"{PATH}/"]
    pause = f"{PATH}/v1/queues/mail/pause"
    assert client.post(pause).status_code == 403
    assert client.post(pause, headers={**FROM_US, "Origin": "https://other.example"}).status_code == 403
    assert client.post(pause, headers=FROM_US).status_code == 200
    assert client.delete(f"{PATH}/v1/session", headers=FROM_US).json() == {"done": True}
    assert client.get(f"{PATH}/v1/session").status_code == 401


def test_over_tls_the_cookie_is_for_the_path_alone_and_for_tls_alone(
    client: httpx2.Client, queue: Forebay
) -> None:
    # The server around believes a proxy on loopback, as uvicorn does by default.
    over_tls = {"X-Forwarded-Proto": "https"}
    bearer = {"Authorization": f"Bearer {key_for(queue, 'operate')}"}

    begun = client.post(f"{PATH}/v1/session", headers={**bearer, **over_tls})
    client.cookies.clear()

    name, _, rest = begun.headers["Set-Cookie"].partition("=")
    value, _, flags = rest.partition(";")
    assert (name, flags) == ("__Secure-forebay", f" HttpOnly; SameSite=Strict; Path={PATH}/; Secure")
    for shown, status in ((name, 200), ("forebay", 401)):
        headers = {"Cookie": f"{shown}={value}", **over_tls}
        assert client.get(f"{PATH}/v1/session", headers=headers).status_code == status


def test_events_are_told_under_the_path(client: httpx2.Client, queue: Forebay) -> None:
    bearer = {"Authorization": f"Bearer {key_for(queue, 'view')}"}

    with client.stream("GET", f"{PATH}/v1/events/stream", headers=bearer) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert "event: queues" in stream.iter_lines()


def test_a_python_program_uses_the_store_through_the_path(client: httpx2.Client, queue: Forebay) -> None:
    token = key_for(queue, "admin")

    with Forebay(f"{str(client.base_url).rstrip('/')}{PATH}", api_key=token) as remote:
        job = remote.enqueue("greet", queue="far")

    assert queue.job(job.id).refresh().queue == "far"


def people(scope: Mapping[str, Any]) -> EmbeddedUser | None:
    """Who has logged in to the shop."""
    name = scope["session"].get("user")
    return None if name is None else EmbeddedUser(name, "admin" if name == "ann" else "view")


async def people_async(scope: Mapping[str, Any]) -> EmbeddedUser | None:
    return people(scope)


def shop(queue: Forebay, admit: Callable[..., Any]) -> Starlette:
    """An app that knows its people by a cookie of its own."""
    jobs = Dashboard(queue, admit=admit)

    async def log_in(request: Request) -> PlainTextResponse:
        request.session["user"] = request.query_params["name"]
        return PlainTextResponse("hello")

    return Starlette(
        routes=[Route("/login", log_in), Mount(PATH, app=jobs)],
        middleware=[Middleware(SessionMiddleware, secret_key="for a test")],  # noqa: S106
        lifespan=jobs.lifespan,
    )


@pytest.mark.parametrize("admit", [people, people_async])
def test_the_program_says_who_may_enter_and_what_they_may_do(
    queue: Forebay, admit: Callable[..., Any]
) -> None:
    pause = f"{PATH}/v1/queues/mail/pause"

    with TestClient(shop(queue, admit)) as client:
        refused, page = client.get(f"{PATH}/v1/session"), client.get(f"{PATH}/dashboard/")
        client.get("/login?name=bob")
        seen, paused = client.get(f"{PATH}/v1/session").json(), client.post(pause, headers=FROM_US)
        begun = client.post(f"{PATH}/v1/session", headers={**FROM_US, "Authorization": "Bearer fbk_x.y"})
        client.get("/login?name=ann")
        own = client.get(f"{PATH}/dashboard/")
        forged, done = client.post(pause), client.post(pause, headers=FROM_US)
        log = client.post(f"{PATH}/v1/audit/search", json={}, headers=FROM_US).json()

    assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
    assert (page.status_code, own.status_code) == (401, 200)
    assert "Set-Cookie" not in begun.headers
    assert (seen["is_open"], seen["has_key"]) == (False, False)
    assert (seen["name"], seen["is_open"], seen["grants"]) == (
        "bob",
        False,
        [{"role": "view", "queues": "*"}],
    )
    assert (paused.status_code, forged.status_code, done.status_code) == (403, 403, 200)
    assert [line["actor"].partition("#")[0] for line in log["lines"][:1]] == ["ann"]


def test_who_admits_gives_a_visitor(queue: Forebay) -> None:
    with TestClient(shop(queue, lambda scope: True)) as client, pytest.raises(TypeError, match="not True"):
        client.get(f"{PATH}/v1/queues")
    with pytest.raises(ConfigError, match="'boss' is no role"):
        EmbeddedUser("ann", "boss")
    with pytest.raises(ConfigError, match="EmbeddedUser needs a name"):
        EmbeddedUser(" ")


@pytest.mark.parametrize("host", HOSTS)
def test_local_lets_in_this_machine_without_a_proxy_and_no_other_page(
    host: Callable[..., Any], queue: Forebay
) -> None:
    with running(host(queue, admit="local")) as address:
        asking = httpx2.Client(base_url=f"{address}{PATH}", timeout=PATIENCE)
        with asking as client:
            assert client.get("/v1/queues").status_code == 200
            assert client.get("/v1/queues", headers={"X-Forwarded-For": "203.0.113.7"}).status_code == 403
            assert client.get("/v1/queues", headers={"Forwarded": "for=203.0.113.7"}).status_code == 403
            assert client.get("/v1/queues", headers={"Host": "jobs.example"}).status_code == 403
            assert client.get("/v1/queues", headers={"Origin": "https://other.example"}).status_code == 403


def test_local_lets_in_no_client_from_another_machine(queue: Forebay) -> None:
    app = on_fastapi(queue, admit="local")

    with TestClient(app, base_url="http://10.0.0.1", client=("10.0.0.2", 5000)) as client:
        answer = client.get(f"{PATH}/v1/queues")

    assert answer.status_code == 403
    assert "admit='keys'" in answer.json()["detail"]


def test_a_prefix_that_a_proxy_has_cut_off_is_no_part_of_the_path(queue: Forebay) -> None:
    jobs = Dashboard(queue, admit=lambda _: EmbeddedUser("ada", "view"))
    app = FastAPI(lifespan=jobs.lifespan)
    app.mount(PATH, jobs)

    with TestClient(app, root_path="/api") as client:
        for path in (PATH, f"/api{PATH}"):
            assert client.get(f"{path}/v1/session").json()["name"] == "ada"
            sent = client.get(f"{path}/", follow_redirects=False)
            assert urlsplit(sent.headers["location"]).path == f"/api{PATH}/dashboard/"


def test_a_websocket_is_closed(queue: Forebay) -> None:
    with (
        TestClient(on_fastapi(queue)) as client,
        pytest.raises(WebSocketDisconnect) as closed,
        client.websocket_connect(f"{PATH}/v1/events"),
    ):
        pass
    assert closed.value.reason == "a dashboard speaks HTTP"


def test_one_that_was_not_started_says_what_is_missing(queue: Forebay) -> None:
    app = Starlette(routes=[Mount(PATH, app=Dashboard(queue))])

    with TestClient(app) as client:
        answer = client.get(f"{PATH}/dashboard/")

    assert answer.status_code == 503
    assert "give its lifespan to the app" in answer.json()["detail"]


def test_an_app_may_be_started_again(queue: Forebay) -> None:
    app = on_fastapi(queue)

    for _ in range(2):
        with TestClient(app) as client:
            assert client.get(f"{PATH}/health/ready").status_code == 200


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"admit": "all"}, "admit is 'keys', 'local' or a function, not 'all'"),
        ({"path": "jobs"}, "path begins with a slash, such as /jobs, and not as 'jobs'"),
    ],
)
def test_what_cannot_be_meant_is_refused(queue: Forebay, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        Dashboard(queue, **options)


def test_a_store_behind_a_service_has_a_dashboard_there() -> None:
    with Forebay("http://127.0.0.1:9") as remote, pytest.raises(ConfigError, match="dashboard of its own"):
        Dashboard(remote)


PROGRAM = """
import sys, uvicorn
from fastapi import FastAPI
from forebay import Forebay
from forebay.dashboard.mount import Dashboard
from forebay.integrations.asgi import lifespan

queue = Forebay(sys.argv[1])
jobs = Dashboard(queue, admit="local")
app = FastAPI(lifespan=lifespan(queue, jobs.lifespan))
app.mount("/jobs", jobs)
uvicorn.run(app, port=0)  # without a limit on how long it waits for its clients
"""


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_stops_is_not_held_up_by_who_looks_on(tmp_path: Path, sent: signal.Signals) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    command = [sys.executable, "-u", "-c", PROGRAM, url]
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stderr is not None
            stderr_lines = iter(process.stderr)
            address = next(
                found[0] for line in stderr_lines if (found := re.search(r"http://[0-9.:]+", line))
            )
            with (
                httpx2.Client(timeout=PATIENCE) as client,
                client.stream("GET", f"{address}/jobs/v1/events/stream") as stream,
            ):
                lines = stream.iter_lines()
                assert "event: queues" in lines
                process.send_signal(sent)
                for _ in lines:
                    pass
            process.stderr.read()
            process.wait(PATIENCE)
        finally:
            process.kill()
