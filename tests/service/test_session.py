"""Sessions of browsers: a cookie with an id, and who cannot use it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from forebay.domain.api_key import Grant
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.browser_sessions import SessionAdmin
from forebay.service.http.cross_site_check import PAGE_HEADER
from forebay.service.server_security import ServerSecurity
from forebay.stores.factory import open_engine
from tests.service.live_protocols import running
from tests.service.live_server import PATIENCE, Served, serving
from tests.urls import SHARED, url_of
from tests.worker.support import eventually

FROM_US = {PAGE_HEADER: "1"}
COOKIE = "forebay"


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[Served, str]]:
    """A server that asks for keys, and the token of an operator."""
    engine = open_engine("memory://")
    store, reader = engine.store(), engine.reader()
    store.save_queue("mail")  # type: ignore[arg-type]  # a plain text names it
    token = ApiKeyAdmin(store, reader, actor="ann").create("ops", [Grant.parse("operate")]).token
    with serving(engine, security=ServerSecurity(requires_keys=True)) as served:
        yield served, token
    store.close()
    reader.close()


@pytest.fixture
def browser(guarded: tuple[Served, str]) -> Iterator[httpx2.Client]:
    """A user who has logged in; only the cookie is shown from now on."""
    served, token = guarded
    with httpx2.Client(base_url=served.address, timeout=PATIENCE) as client:
        answer = client.post("/v1/session", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 200
        yield client


def test_a_key_begins_a_session_whose_cookie_scripts_cannot_read(guarded: tuple[Served, str]) -> None:
    served, token = guarded

    answer = served.client.post("/v1/session", headers={"Authorization": f"Bearer {token}"})
    served.client.cookies.clear()

    cookie = answer.headers["Set-Cookie"]
    assert re.fullmatch(r"forebay=[\w-]{43}; HttpOnly; SameSite=Strict; Path=/", cookie)
    assert token not in cookie + answer.text
    with_key = served.client.get("/v1/session", headers={"Cookie": f"{COOKIE}={token}; forebay_key={token}"})
    assert with_key.status_code == 401


@pytest.mark.parametrize(
    "security",
    [
        ServerSecurity(requires_keys=True, public_url="https://jobs.example.org"),
        ServerSecurity(requires_keys=True, behind_tls_proxy=True),
    ],
    ids=["public-url", "proxy"],
)
def test_over_tls_the_cookie_is_of_this_host_alone(security: ServerSecurity) -> None:
    engine = open_engine("memory://")
    store, reader = engine.store(), engine.reader()
    token = ApiKeyAdmin(store, reader, actor="ann").create("ops", [Grant.parse("view")]).token
    with (
        running(engine, security) as (_, address, _),
        httpx2.Client(base_url=f"http://{address}", timeout=PATIENCE) as client,
    ):
        begun = client.post("/v1/session", headers={"Authorization": f"Bearer {token}"})
        client.cookies.clear()
        cookie = begun.headers["Set-Cookie"]
        value = re.fullmatch(r"__Host-forebay=([\w-]{43}); HttpOnly; SameSite=Strict; Path=/; Secure", cookie)
        assert value is not None, cookie
        for name, status in (("__Host-forebay", 200), ("forebay", 401)):
            shown = client.get("/v1/session", headers={"Cookie": f"{name}={value[1]}"})
            assert shown.status_code == status
    store.close()
    reader.close()


def test_a_session_says_who_one_is_and_what_one_may_do(browser: httpx2.Client) -> None:
    session = browser.get("/v1/session").json()

    assert (session["name"], session["is_open"], session["engine"]) == ("ops", False, "memory")
    assert session["grants"] == [{"role": "operate", "queues": "*"}]
    assert "pause_queue" in session["operations"]
    assert "configure_queue" not in session["operations"]


def test_without_a_key_there_is_no_session(guarded: tuple[Served, str]) -> None:
    served, _ = guarded

    assert served.client.get("/v1/session").status_code == 401
    assert served.client.post("/v1/session").status_code == 401
    assert served.client.get("/v1/queues", headers={"Cookie": f"{COOKIE}=fbk_ops.wrong"}).status_code == 401


def test_what_changes_something_comes_from_the_page_and_from_no_other(browser: httpx2.Client) -> None:
    own = str(browser.base_url).rstrip("/")

    assert browser.post("/v1/queues/mail/pause", headers=FROM_US).status_code == 200
    assert browser.post("/v1/queues/mail/resume", headers={**FROM_US, "Origin": own}).status_code == 200
    assert browser.post("/v1/queues/mail/pause").status_code == 403
    for origin in ("https://elsewhere.example", "null", f"{own}0", "https://[", f"{own}.example"):
        refused = browser.post("/v1/queues/mail/pause", headers={**FROM_US, "Origin": origin})
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert browser.get("/v1/queues/mail").json()["state"] == "active"


def test_a_logout_ends_the_session_on_the_server(browser: httpx2.Client) -> None:
    stolen = {"Cookie": f"{COOKIE}={browser.cookies[COOKIE]}"}
    ended = browser.delete("/v1/session", headers=FROM_US)

    assert ended.json() == {"done": True}
    assert ended.headers["Set-Cookie"] == f"{COOKIE}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0"
    assert browser.get("/v1/session").status_code == 401
    assert browser.get("/v1/session", headers=stolen).status_code == 401


def test_a_session_begins_with_a_key_and_not_with_a_session(browser: httpx2.Client) -> None:
    refused = browser.post("/v1/session", headers=FROM_US)

    assert (refused.status_code, "Bearer" in refused.json()["detail"]) == (401, True)


@pytest.mark.parametrize("engine", SHARED)
def test_a_session_holds_on_every_server_of_a_store(engine: str, tmp_path: Path) -> None:
    url = url_of(engine, tmp_path)
    engines = open_engine(url), open_engine(url)
    store, reader = engines[0].store(), engines[0].reader()
    keys = ApiKeyAdmin(store, reader, actor="ann")
    name = f"ops-{uuid4().hex[:8]}"
    token = keys.create(name, [Grant.parse("view")]).token
    security = ServerSecurity(requires_keys=True)
    with serving(engines[0], security=security) as here, serving(engines[1], security=security) as there:
        here.client.post("/v1/session", headers={"Authorization": f"Bearer {token}"})
        shown = {"Cookie": f"{COOKIE}={here.client.cookies[COOKIE]}"}
        assert there.client.get("/v1/session", headers=shown).json()["name"] == name
        [gone] = SessionAdmin(store, reader, actor="ann").revoke_all(name)
        assert gone.session.name == name
        for served in (here, there):
            eventually(
                partial(
                    lambda client: client.get("/v1/session", headers=shown).status_code == 401, served.client
                )
            )
    store.close()
    reader.close()


def test_a_role_is_the_same_with_a_cookie(browser: httpx2.Client) -> None:
    refused = browser.patch("/v1/queues/mail", json={"weight": 2}, headers=FROM_US)

    assert refused.status_code == 403


def test_a_server_that_asks_for_no_keys_keeps_none(plain: Served) -> None:
    answer = plain.client.post("/v1/session", headers={"Authorization": "Bearer fbk_x.y"})

    assert answer.json()["is_open"]
    assert "Set-Cookie" not in answer.headers
    assert "save_schedule" in answer.json()["operations"]
